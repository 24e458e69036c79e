"""Every step of a program as a C function and the line that calls it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatchmethod

import numpy as np

from export.edge.c.helpers import HELPERS, NEEDS
from export.edge.c.text import constant, identifier, real
from export.edge.integers import fixed_point, sum_bounds, tanh_thresholds, tanh_unit
from export.edge.program import (
    C_TYPES,
    Activate,
    Choose,
    Combine,
    FloatLayer,
    IntegerLayer,
    Mean,
    Operation,
    OperationKind,
    Patches,
    Pointwise,
    Quantize,
    Value,
)
from paddleport.spaces import Array
from quantize.grid import DIGIT_BASE

_SIGNS: dict[OperationKind, str] = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


@dataclass
class Steps:
    """What has been written so far; `names` says where each value lies."""

    names: dict[Value, str]
    constants: list[str] = field(default_factory=list)
    constant_bytes: int = 0
    scratch_bytes: list[int] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    _used: set[str] = field(default_factory=lambda: {"all_finite", *HELPERS})
    _tanh_tables: dict[tuple[float, float], str] = field(default_factory=dict)

    @singledispatchmethod
    def write(self, step: object) -> None:
        """Write one step."""
        raise TypeError(f"no such step: {step}")

    @write.register
    def _(self, step: Activate) -> None:
        self._need(f"{step.activation}_each")
        self.calls.append(f"{step.activation}_each({self.names[step.value]}, {step.value.size}u);")

    @write.register
    def _(self, step: Pointwise) -> None:
        name = self._name(step.name.rpartition(", ")[2])
        lines = self._operations(name, step.operations, "i")
        kind = C_TYPES[step.result.dtype]
        cast = "" if step.result.dtype == "float32" else f"({kind})"
        take = "source[i]" if step.source.dtype == "float32" else "(float)source[i]"
        body = [f"float value = {take};", *lines, f"result[i] = {cast}value;"]
        self._function(step.name, name, step.source, step.result, _loop("i", step.result.size, body))
        self._call(name, step.source, step.result)

    @write.register
    def _(self, step: Combine) -> None:
        name = self._name(step.name)
        left, right = ("*" + side if value.size < step.result.size else f"{side}[i]"
                       for side, value in (("left", step.left), ("right", step.right)))  # fmt: skip
        body = _loop("i", step.result.size, [f"result[i] = {_apply(step.kind, left, right)};"])
        head = f"static void {name}(const float *left, const float *right, float *result)"
        self._define(step.name, head, body)
        arguments = (self.names[value] for value in (step.left, step.right, step.result))
        self.calls.append(f"{name}({', '.join(arguments)});")

    @write.register
    def _(self, step: Mean) -> None:
        name = self._name(step.name)
        body = [
            "float sum = 0.0f;",
            *_loop("i", step.source.size, ["sum += source[i];"]),
            f"result[0] = sum / {real(step.source.size)};",
        ]
        self._function(step.name, name, step.source, step.result, body)
        self._call(name, step.source, step.result)

    @write.register
    def _(self, step: Quantize) -> None:
        name = self._name("on_int8_steps")
        self._need("on_grid")
        low, high = ("0.0f", "255.0f") if step.grid.unsigned else ("-128.0f", "127.0f")
        first, *second = (real(each) for each in step.grid.steps)
        if second:
            body = [
                f"const int32_t coarse = on_grid(source[i], {first}, {low}, {high});",
                f"const float left = source[i] - (float)coarse * {first};",
                f"result[i] = (int16_t)({DIGIT_BASE} * coarse + on_grid(left, {second[0]}, {low}, {high}));",
            ]
        else:
            body = [f"result[i] = ({C_TYPES[step.result.dtype]})on_grid(source[i], {first}, {low}, {high});"]
        self._function(step.name, name, step.source, step.result, _loop("i", step.result.size, body))
        self._call(name, step.source, step.result)

    @write.register
    def _(self, step: Choose) -> None:
        name = self._name("best_choice")
        size = step.source.size
        body = [
            "size_t best = 0u;",
            *_loop("i", size, ["if (source[i] > source[best]) {", "    best = i;", "}"]),
            f"result[0] = (int32_t)best + ({step.start});" if step.start else "result[0] = (int32_t)best;",
        ]
        self._function(step.name, name, step.source, step.result, body)
        self._call(name, step.source, step.result)

    @write.register
    def _(self, step: FloatLayer) -> None:
        name = self._name(step.name)
        weight = self._constant(f"{name}_weight", step.weight.astype(np.float32))
        bias = self._constant(f"{name}_bias", step.bias.astype(np.float32))
        inputs, outputs = step.weight.shape
        body = _blocks(weight, bias, inputs, outputs)
        self._layer(step, name, body, self._operations(name, step.prepare, ""))

    @write.register
    def _(self, step: IntegerLayer) -> None:
        name = self._name(step.name)
        sum_bounds(step)
        weight = self._constant(f"{name}_weight", step.weight)
        bias = self._constant(f"{name}_bias", step.bias.astype(np.int32))
        outputs, inputs = step.weight.shape
        finish = self._finish(step, name)
        body = []
        if outputs >= 4:
            body += _four_outputs(weight, bias, inputs, outputs, finish)
        if outputs % 4:
            body += _one_output(weight, bias, inputs, outputs, finish)
        self._layer(step, name, body, [])

    def _finish(self, step: IntegerLayer, name: str) -> str:
        """The C expression, with {sum} and {at} in it, that makes an output of a sum."""
        if step.grid is None:
            scale = self._constant(f"{name}_scale", step.scale.astype(np.float32))
            return f"(float){{sum}} * {scale}[{{at}}]"
        size = step.grid.steps[0]
        unit = tanh_unit(step) if step.activation == "tanh" else size
        fixed = fixed_point(step, unit)
        multiplier = self._constant(f"{name}_multiplier", fixed.multiplier)
        self._need("scaled")
        number = f"scaled({{sum}}, {multiplier}[{{at}}], {fixed.shift}u)"
        if step.activation != "tanh":
            low = 0 if step.grid.unsigned or step.activation == "relu" else -128
            self._need("within")
            return f"({C_TYPES[step.grid.dtype]})within({number}, {low}, {255 if step.grid.unsigned else 127})"
        self._need("step_of_tanh")
        key = (size, unit)
        if key not in self._tanh_tables:
            self._tanh_tables[key] = self._constant(f"{name}_tanh", tanh_thresholds(size, unit))
        return f"step_of_tanh({number}, {self._tanh_tables[key]})"

    def _layer(self, step: FloatLayer | IntegerLayer, name: str, body: list[str], prepare: list[str]) -> None:
        """A linear layer, run once, or on every patch of an image."""
        if step.patches is None:
            self._function(step.name, name, step.source, step.result, body)
            self._call(name, step.source, step.result)
            return
        patch = Value(step.source.dtype if isinstance(step, IntegerLayer) else "float32", step.patches.size)
        self.scratch_bytes.append(patch.nbytes)
        pixel = f"{name}_pixel"
        self._function(f"{step.name}, one pixel", pixel, patch, step.result, body)
        outputs = len(step.bias)
        start = f"const {C_TYPES[step.source.dtype]} *start = source"
        around = _gathered(step.patches, patch, outputs, prepare, pixel, start)
        self._function(step.name, name, step.source, step.result, around)
        self._call(name, step.source, step.result)

    def _operations(self, name: str, operations: tuple[Operation, ...], at: str) -> list[str]:
        lines = []
        for number, each in enumerate(operations):
            if each.kind == "tanh":
                self._need("tanh_of")
                lines.append("value = tanh_inside(clamp(value, -9.0f, 9.0f));")
                continue
            array = np.asarray(each.constant)
            other = f"{self._constant(f'{name}_{number}', array)}[{at}]" if array.ndim else real(float(array))
            lines.append(f"value = {_apply(each.kind, 'value', other)};")
        return lines

    def _constant(self, name: str, array: Array) -> str:
        self.constants.append(constant(name, array))
        self.constant_bytes += array.nbytes
        return name

    def _need(self, *helpers: str) -> None:
        for helper in helpers:
            self.helpers.update((helper, *NEEDS.get(helper, ())))

    def _name(self, wanted: str) -> str:
        name, number = identifier(wanted), 2
        while name in self._used:
            name, number = f"{identifier(wanted)}_{number}", number + 1
        self._used.add(name)
        return name

    def _call(self, name: str, source: Value, result: Value) -> None:
        self.calls.append(f"{name}({self.names[source]}, {self.names[result]});")

    def _function(self, title: str, name: str, source: Value, result: Value, body: list[str]) -> None:
        given, made = C_TYPES[source.dtype], C_TYPES[result.dtype]
        head = f"static void {name}(const {given} *restrict source, {made} *restrict result)"
        self._define(title, head, body)

    def _define(self, title: str, head: str, body: list[str]) -> None:
        lines = "".join(f"    {line}\n" for line in body)
        self.functions.append(f"/* {title} */\n{head}\n{{\n{lines}}}\n")


def _loop(index: str, count: int | str, body: list[str]) -> list[str]:
    limit = count if isinstance(count, str) else f"{count}u"
    return [f"for (size_t {index} = 0u; {index} < {limit}; {index}++) {{", *_indented(body), "}"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _blocks(weight: str, bias: str, inputs: int, outputs: int) -> list[str]:
    """Blocks of outputs side by side, so that a compiler turns each input into few vector operations."""
    width = f"WIDTH({outputs}u)"
    products = _loop("j", width, [f"sum[j] += x * weight[i * {outputs}u + j];"])
    body = [
        "/* The last block goes back over outputs that are there already: all blocks are equally wide. */",
        f"const size_t first = start + {width} < {outputs}u ? start : {outputs}u - {width};",
        f"const float *weight = {weight} + first;",
        f"float sum[{width}];",
        *_loop("j", width, [f"sum[j] = {bias}[first + j];"]),
        *_loop("i", inputs, ["const float x = source[i];", *products]),
        *_loop("j", width, ["result[first + j] = sum[j];"]),
    ]
    return [f"for (size_t start = 0u; start < {outputs}u; start += {width}) {{", *_indented(body), "}"]


def _apply(kind: OperationKind, left: str, right: str) -> str:
    if kind in _SIGNS:
        return f"{left} {_SIGNS[kind]} {right}"
    return f"{left} {'<' if kind == 'maximum' else '>'} {right} ? {right} : {left}"


def _four_outputs(weight: str, bias: str, inputs: int, outputs: int, finish: str) -> list[str]:
    """Four rows of weights at a time, so that an input is loaded once for four products."""
    names = "abcd"
    rows = [f"{name} += x * row[{'i' if at == 0 else f'i + {at * inputs}u'}];" for at, name in enumerate(names)]
    places = ["j", *(f"j + {at}u" for at in (1, 2, 3))]
    body = [
        f"const int8_t *row = {weight} + j * {inputs}u;",
        *(f"int32_t {name} = {bias}[{place}];" for name, place in zip(names, places, strict=True)),
        *_loop("i", inputs, ["const int32_t x = source[i];", *rows]),
        *(f"result[{at}] = {finish.format(sum=name, at=at)};" for name, at in zip(names, places, strict=True)),
    ]
    return [f"for (size_t j = 0u; j < {outputs - outputs % 4}u; j += 4u) {{", *_indented(body), "}"]


def _one_output(weight: str, bias: str, inputs: int, outputs: int, finish: str) -> list[str]:
    body = [
        f"const int8_t *row = {weight} + j * {inputs}u;",
        f"int32_t sum = {bias}[j];",
        *_loop("i", inputs, ["sum += (int32_t)source[i] * row[i];"]),
        f"result[j] = {finish.format(sum='sum', at='j')};",
    ]
    return [f"for (size_t j = {outputs - outputs % 4}u; j < {outputs}u; j++) {{", *_indented(body), "}"]


def _gathered(patches: Patches, patch: Value, outputs: int, prepare: list[str], pixel: str, start: str) -> list[str]:
    """Gather each patch of an image, and run the layer on it."""
    (far, middle, near), strides = patches.kernel, patches.strides
    offset = " + ".join(f"{index} * {stride}u" for index, stride in zip("abc", strides, strict=True))
    kind = C_TYPES[patch.dtype]
    element = f"start[{offset}]"
    taken = f"({kind}){element}"
    store = f"patch[(a * {middle}u + b) * {near}u + c]"
    inner = [f"float value = {taken};", *prepare, f"{store} = value;"] if prepare else [f"{store} = {taken};"]
    loops = _loop("a", far, _loop("b", middle, _loop("c", near, inner)))
    body = [
        f"{kind} patch[{patches.size}];",
        f"{start} + y * {patches.row_step}u + x * {patches.column_step}u;",
        *loops,
        f"{pixel}(patch, result + (y * {patches.columns}u + x) * {outputs}u);",
    ]
    return _loop("y", patches.rows, _loop("x", patches.columns, body))
