"""What a policy computes for one observation, step by step: what the C emitter writes down.

A `Value` is an array in memory. A `Tensor` says where in a value the elements of an ONNX tensor lie, so that
transposing and reshaping cost nothing: they change the index, and the next layer's weights follow it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from paddleport.spaces import Array

C_TYPES = {
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Type of an array's elements in C by their NumPy name."""
OperationKind: TypeAlias = Literal["add", "subtract", "multiply", "divide", "maximum", "minimum", "tanh"]
Activation: TypeAlias = Literal["", "relu", "tanh"]
"""Of a layer; empty where it has none."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array of `size` elements of `dtype` (NumPy's name); `parameter` names the C parameter it is, if it is one."""

    dtype: str
    size: int
    parameter: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class Tensor:
    """An ONNX tensor without its batch dimension; element `k` lies at `value[index[k]]`."""

    value: Value
    index: Array

    @property
    def in_order(self) -> bool:
        """Whether the tensor, flattened, is the value itself."""
        return self.index.size == self.value.size and bool((self.index.reshape(-1) == np.arange(self.value.size)).all())


@dataclass(frozen=True)
class Operation:
    """One operation on every element; `constant` is float32 [] or [size], None for tanh."""

    kind: OperationKind
    constant: Array | None = None


@dataclass(frozen=True, eq=False)
class Pointwise:
    """Operations on every element, in order."""

    name: str
    source: Value
    result: Value
    operations: tuple[Operation, ...]


@dataclass(frozen=True, eq=False)
class Activate:
    """An activation in place."""

    name: str
    value: Value
    activation: Literal["relu", "tanh"]


@dataclass(frozen=True, eq=False)
class Combine:
    """Two arrays, element by element; one of a single element goes with every element of the other."""

    name: str
    kind: OperationKind
    left: Value
    right: Value
    result: Value


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of an array, one element."""

    name: str
    source: Value
    result: Value


@dataclass(frozen=True)
class Grid:
    """A grid of whole numbers that real ones are put on: number × step."""

    steps: tuple[float, ...]
    """One, or of a coarse and a fine digit: numbers are then `254 * coarse + fine`, int16."""
    unsigned: bool = False
    """Numbers from 0 to 255 instead of from -128 to 127."""

    @property
    def dtype(self) -> str:
        """Type of the numbers."""
        return "int16" if len(self.steps) > 1 else "uint8" if self.unsigned else "int8"


@dataclass(frozen=True)
class Patches:
    """Which part of an image each output pixel of a convolution sees; strides are in elements of the image."""

    rows: int
    columns: int
    row_step: int
    column_step: int
    kernel: tuple[int, int, int]
    """Sizes of the loops that gather a patch, the outermost first."""
    strides: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Elements of one patch."""
        return int(np.prod(self.kernel))


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """A linear layer in float32, or a convolution, which is that on every patch of an image."""

    name: str
    source: Value
    result: Value
    weight: Array
    """float32 [inputs, outputs]."""
    bias: Array
    patches: Patches | None = None
    prepare: tuple[Operation, ...] = ()
    """What to do with every element of a patch first; constants are scalars."""


@dataclass(frozen=True, eq=False)
class Quantize:
    """Floats onto a grid."""

    name: str
    source: Value
    result: Value
    grid: Grid


@dataclass(frozen=True, eq=False)
class IntegerLayer:
    """A linear layer or convolution on integers: sum of source × weight, and bias, in int32.

    The sum times `scale` is the real number that it stands for. Where `grid` is given, the result is that number after
    the activation, on the grid; else it is the number itself.
    """

    name: str
    source: Value
    result: Value
    weight: Array
    """int8 [outputs, inputs]."""
    bias: Array
    """int32 [outputs]."""
    scale: Array
    """float64 [outputs]."""
    activation: Activation = ""
    grid: Grid | None = None
    patches: Patches | None = None


@dataclass(frozen=True, eq=False)
class Choose:
    """`start` + index of the largest element; the first one where several are."""

    name: str
    source: Value
    result: Value
    start: int


Step: TypeAlias = Pointwise | Activate | Combine | Mean | FloatLayer | Quantize | IntegerLayer | Choose


@dataclass(frozen=True)
class Program:
    """The whole function: `obs` in, `action` and the distribution's first parameter (`head`) out."""

    obs: Value
    action: Value
    head: Value
    head_name: str
    """`logits`, `q_values` or `mean`."""
    steps: tuple[Step, ...] = field(default_factory=tuple)

    @property
    def multiply_adds(self) -> int:
        """How many products the layers sum."""
        layers = (step for step in self.steps if isinstance(step, FloatLayer | IntegerLayer))
        return sum(layer.weight.size * pixels(layer.patches) for layer in layers)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the layers' weights and biases."""
        layers = (step for step in self.steps if isinstance(step, FloatLayer | IntegerLayer))
        return sum(layer.weight.nbytes + layer.bias.nbytes for layer in layers)


def pixels(patches: Patches | None) -> int:
    """How many times a layer runs."""
    return patches.rows * patches.columns if patches else 1


def reads(step: Step) -> tuple[Value, ...]:
    """The values that a step reads."""
    if isinstance(step, Combine):
        return step.left, step.right
    return (step.value,) if isinstance(step, Activate) else (step.source,)


def writes(step: Step) -> Value:
    """The value that a step writes."""
    return step.value if isinstance(step, Activate) else step.result
