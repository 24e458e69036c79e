"""Trunks: from the features of an observation to the hidden vector that heads stand on."""

from __future__ import annotations

import importlib
import inspect
import math
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - Paddle's own convention

from paddleport.checkpoint import NetworkInfo
from paddleport.errors import UsageError
from paddleport.spaces import Space, describe
from train.encoding import VECTOR, ImageLayout, encoding_of

ACTIVATIONS = {"tanh": F.tanh, "relu": F.relu}
IMAGE_WIDTH = 512
"""Width of what NatureCNN makes of an image."""
_CHANNELS_FIRST = {"HWC": [0, 3, 1, 2], "CHW": None, "HW": None}
_FORBIDDEN = (nn.Dropout, nn.Dropout2D, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm)


class NatureCNN(nn.Layer):
    """Three convolutions and a fully connected layer (Mnih et al. 2015, methods, model architecture).

    Args:
        layout: of the image.
    """

    def __init__(self, layout: ImageLayout) -> None:
        super().__init__()
        self.layout = layout
        self.convolutions = nn.LayerList(
            [
                nn.Conv2D(layout.channels, 32, kernel_size=8, stride=4),
                nn.Conv2D(32, 64, kernel_size=4, stride=2),
                nn.Conv2D(64, 64, kernel_size=3, stride=1),
            ]
        )
        self.flat_size = 64 * _conv_size(layout.height) * _conv_size(layout.width)
        self.linear = nn.Linear(self.flat_size, IMAGE_WIDTH)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        """uint8 [batch, …] in the environment's layout → [batch, 512]."""
        features = scaled_image(image, self.layout, self.linear.weight.dtype)
        for convolution in self.convolutions:
            features = F.relu(convolution(features))
        return F.relu(self.linear(features.reshape([-1, self.flat_size])))


class Trunk(nn.Layer):
    """A NatureCNN for each image, what they give beside the vector, and fully connected layers behind.

    Args:
        space: the observation space.
        hidden_sizes: width of each fully connected layer; none where images are enough.
        activation: a key of `ACTIVATIONS`, after each fully connected layer.
    """

    def __init__(self, space: Space, hidden_sizes: tuple[int, ...], activation: str) -> None:
        super().__init__()
        encoding = encoding_of(space)
        self._images, self._has_vector = list(encoding.images), encoding.vector_size > 0
        self.images = nn.LayerList([NatureCNN(layout) for layout in encoding.images.values()])
        widths = (encoding.vector_size + IMAGE_WIDTH * len(self.images), *hidden_sizes)
        self.layers = nn.LayerList([nn.Linear(*pair) for pair in zip(widths, hidden_sizes, strict=False)])
        self.activation = ACTIVATIONS[activation]
        self.width = widths[-1]

    def forward(self, features: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Features [batch, …] → [batch, width]."""
        # Paddle rewrites this code when it is exported, and knows no `zip(strict=…)`.
        parts = [self.images[index](features[name]) for index, name in enumerate(self._images)]
        if self._has_vector:
            parts.append(features[VECTOR])
        hidden = parts[0] if len(parts) == 1 else paddle.concat(parts, axis=-1)
        for layer in self.layers:
            hidden = self.activation(layer(hidden))
        return hidden


class UserTrunk(nn.Layer):
    """A user's own layer in a trunk's place.

    The class is made with one argument, the shape of each feature of one observation by name: `vector`, and each
    image by its own name as [channels, height, width]. It has an attribute `width`, and its `forward` takes a dict of
    tensors, float32 [batch, …] (vectors normalised, images in 0 … 1), and returns [batch, width].

    Args:
        space: the observation space.
        name: `module:Class`.

    Raises:
        UsageError: there is no such class, or it is not of this form.
    """

    def __init__(self, space: Space, name: str) -> None:
        super().__init__()
        encoding = encoding_of(space)
        self._layouts = encoding.images
        shapes: dict[str, tuple[int, ...]] = {
            key: (each.channels, each.height, each.width) for key, each in encoding.images.items()
        }
        if encoding.vector_size:
            shapes[VECTOR] = (encoding.vector_size,)
        self.layer = _made(trunk_class(name), name, shapes)
        self.width = int(self.layer.width)
        if paddle.in_dynamic_mode():  # as it is made first; what the compiled engine makes later is of the same class
            _try_out(self.layer, name, shapes)

    def forward(self, features: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Features [batch, …] → [batch, width]."""
        # Of the weights' own type: parity evaluates the policy in float64 too.
        kind = next((parameter.dtype for parameter in self.layer.parameters()), paddle.float32)
        scaled = {name: scaled_image(features[name], layout, kind) for name, layout in self._layouts.items()}
        if VECTOR in features:
            scaled[VECTOR] = features[VECTOR]
        hidden: paddle.Tensor = self.layer(scaled)
        return hidden


def make_trunk(space: Space, info: NetworkInfo) -> Trunk | UserTrunk:
    """The trunk that `info` describes.

    Raises:
        UsageError: there is nothing to learn from, or the user's class is not of the form that `UserTrunk` says.
    """
    encoding = encoding_of(space)
    if not encoding.images and not encoding.vector_size:
        raise UsageError("There is nothing in this observation space", expected="numbers", got=describe(space))
    if info.trunk_class:
        return UserTrunk(space, info.trunk_class)
    return Trunk(space, info.hidden_sizes, info.activation)


def scaled_image(image: paddle.Tensor, layout: ImageLayout, dtype: Any = "float32") -> paddle.Tensor:  # noqa: ANN401
    """uint8 [batch, …] in the environment's layout → `dtype` [batch, channels, height, width] in 0 … 1."""
    scaled = image.astype(dtype) / 255.0
    if layout.order == "HW":
        return scaled.unsqueeze(1)
    order = _CHANNELS_FIRST[layout.order]
    return scaled.transpose(order) if order else scaled


def trunk_class(name: str) -> type[nn.Layer]:
    """Import a user's trunk by `module:Class`.

    Raises:
        UsageError: there is no such module or class, or it is no `paddle.nn.Layer`.
    """
    module, _, attribute = name.partition(":")
    expected = "module:Class, a paddle.nn.Layer in a module that Python finds"
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        todo = f"Run the command from the folder that holds {module.replace('.', '/') or 'the module'}.py"
        if module.endswith(".py"):
            todo = f"Write {module.removesuffix('.py').replace('/', '.')}:{attribute}, without .py"
        raise UsageError("Cannot import this trunk", expected=expected, got=f"{name!r} ({error})", todo=todo) from error
    if not (inspect.isclass(found) and issubclass(found, nn.Layer)):
        raise UsageError("This trunk is no layer", expected=expected, got=f"{name!r}, {type(found).__name__}")
    return found


def _made(kind: Any, name: str, shapes: dict[str, tuple[int, ...]]) -> Any:  # noqa: ANN401 - the user's own class
    try:
        layer = kind(shapes)
    except Exception as error:  # the class is the user's, and may raise anything
        got = f"{type(error).__name__}: {error}"
        raise UsageError(f"The trunk {name} cannot be made", expected=f"{name}(shapes) to work", got=got) from error
    if not isinstance(getattr(layer, "width", None), int):
        raise UsageError(f"The trunk {name} does not say how wide it is", expected="an attribute width, an integer")
    if strange := [type(each).__name__ for each in layer.sublayers(include_self=True) if isinstance(each, _FORBIDDEN)]:
        raise UsageError(
            f"The trunk {name} acts otherwise than it learns",
            expected="layers without random numbers or running statistics",
            got=", ".join(sorted(set(strange))),
            todo="Leave them out; LayerNorm and GroupNorm are fine",
        )
    return layer


def _try_out(layer: Any, name: str, shapes: dict[str, tuple[int, ...]]) -> None:  # noqa: ANN401
    """Let a user's layer see two observations, learning and acting.

    Raises:
        UsageError: it fails, gives another shape than it says, or answers otherwise when it acts.
    """
    batch = {key: paddle.linspace(0.1, 1, 2 * math.prod(shape)).reshape([2, *shape]) for key, shape in shapes.items()}
    expected = f"[batch, {layer.width}], the same whether it learns or acts"
    try:
        with paddle.no_grad():
            learning = layer(dict(batch))
            layer.eval()
            acting = layer(dict(batch))
            layer.train()
        got = " and ".join(str(list(each.shape)) for each in (learning, acting))
        fits = learning.shape == acting.shape == [2, layer.width]
        if fits and not bool(paddle.allclose(learning, acting)):
            fits, got = False, "other numbers when it acts"
    except Exception as error:  # the class is the user's, and may raise anything
        raise _refused(name, expected, f"{type(error).__name__}: {error}") from error
    if not fits:
        raise _refused(name, expected, got)


def _refused(name: str, expected: str, got: str) -> UsageError:
    return UsageError(f"The forward of the trunk {name} gives something else", expected=expected, got=got)


def _conv_size(size: int) -> int:
    """Height or width behind the three convolutions."""
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        size = (size - kernel) // stride + 1
    return size
