"""Which local array each value lives in: arrays are used again as soon as nobody reads them any more."""

from __future__ import annotations

from dataclasses import dataclass

from export.edge.program import Program, Value, reads, writes


@dataclass
class Slot:
    """A local array of the generated function."""

    name: str
    dtype: str
    size: int


@dataclass(frozen=True)
class Memory:
    """Where every value lies."""

    slots: tuple[Slot, ...]
    names: dict[Value, str]
    """Name in C of each value: a slot's, or a parameter's."""

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(Value(slot.dtype, slot.size).nbytes for slot in self.slots)


def plan_memory(program: Program) -> Memory:
    """Give every value a slot of its type, the smallest number of them that a program run in order needs."""
    names = {program.obs: "obs", program.action: "action", program.head: "head"}
    last = {value: at for at, step in enumerate(program.steps) for value in (*reads(step), writes(step))}
    slots: list[Slot] = []
    busy: dict[str, Value] = {}
    for at, step in enumerate(program.steps):
        value = writes(step)
        if value not in names:
            slot = _free(slots, busy, value)
            slot.size = max(slot.size, value.size)
            names[value], busy[slot.name] = slot.name, value
        busy = {name: held for name, held in busy.items() if last[held] > at}
    return Memory(tuple(slots), names)


def _free(slots: list[Slot], busy: dict[str, Value], value: Value) -> Slot:
    """A slot of the value's type that nothing lives in; a new one where there is none."""
    for slot in slots:
        if slot.dtype == value.dtype and slot.name not in busy:
            return slot
    slots.append(Slot(f"{value.dtype}_{len(slots)}", value.dtype, value.size))
    return slots[-1]
