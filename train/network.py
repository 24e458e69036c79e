"""The policy network: raw observation in, environment action out.

Everything between the two (normalisation, trunk, heads, the deterministic action in the environment's own units)
is in `PolicyNetwork.forward`, so that the exported graph is the whole function.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - Paddle's own convention

from paddleport.checkpoint import Checkpoint, NetworkInfo
from paddleport.errors import ArtifactError, UsageError
from paddleport.spaces import Array, Box, Discrete, Space, describe

NORMALIZED_LIMIT = 10.0
"""Normalised observations are clipped to ± this."""

ACTIVATIONS = {"tanh": F.tanh, "relu": F.relu}
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class MLP(nn.Layer):
    """Fully connected layers with an activation after each.

    Args:
        inputs: width of the input.
        hidden_sizes: width of each layer.
        activation: a key of `ACTIVATIONS`.
    """

    def __init__(self, inputs: int, hidden_sizes: tuple[int, ...], activation: str) -> None:
        super().__init__()
        widths = (inputs, *hidden_sizes)
        self.layers = nn.LayerList([nn.Linear(*pair) for pair in zip(widths, hidden_sizes, strict=False)])
        self.activation = ACTIVATIONS[activation]

    def forward(self, features: paddle.Tensor) -> paddle.Tensor:
        """[batch, inputs] → [batch, hidden_sizes[-1]]."""
        for layer in self.layers:
            features = self.activation(layer(features))
        return features


class ActorCritic(nn.Layer):
    """Actor and critic with separate trunks, on observations that are normalised already: what training updates.

    Args:
        observation_space: a Box of one dimension.
        action_space: Discrete (outputs `logits`) or Box (outputs `mean` and `log_std`).
        info: sizes and switches.

    Raises:
        UsageError: a space that no head or trunk is there for.
    """

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__()
        inputs = _vector_size(observation_space)
        width = info.hidden_sizes[-1]
        self.info = info
        self.action_space = action_space
        self.policy_trunk = MLP(inputs, info.hidden_sizes, info.activation)
        self.policy_head = nn.Linear(width, _head_size(action_space))
        self.value_trunk = MLP(inputs, info.hidden_sizes, info.activation)
        self.value_head = nn.Linear(width, 1)
        if isinstance(action_space, Box):
            zeros = nn.initializer.Constant(0.0)
            self.log_std = self.create_parameter([action_space.size], default_initializer=zeros)

    def heads(self, features: paddle.Tensor) -> dict[str, paddle.Tensor]:
        """Normalised observations → the distribution's parameters [batch, …] and `value` [batch, 1]."""
        output = self.policy_head(self.policy_trunk(features))
        value = self.value_head(self.value_trunk(features))
        if isinstance(self.action_space, Discrete):
            return {"logits": output, "value": value}
        # Added to zeros of the batch's shape: a broadcast that every exporter keeps.
        log_std = paddle.zeros_like(output) + self.log_std
        return {"mean": output, "log_std": log_std, "value": value}


class QNetwork(nn.Layer):
    """A value for each action (Mnih et al. 2015), optionally by dueling streams (Wang et al. 2016, equation 9).

    Args:
        observation_space: a Box of one dimension.
        action_space: Discrete.
        info: sizes and switches.

    Raises:
        UsageError: a space that no trunk or head is there for.
    """

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__()
        if not isinstance(action_space, Discrete):
            raise UsageError(
                "Q-values need a finite choice of actions",
                expected="a Discrete action space",
                got=describe(action_space),
            )
        width = info.hidden_sizes[-1]
        self.info = info
        self.action_space = action_space
        self.trunk = MLP(_vector_size(observation_space), info.hidden_sizes, info.activation)
        self.head = nn.Linear(width, action_space.n)
        if info.dueling:
            self.state_head = nn.Linear(width, 1)

    def heads(self, features: paddle.Tensor) -> dict[str, paddle.Tensor]:
        """Normalised observations → `q_values` [batch, n]."""
        hidden = self.trunk(features)
        output = self.head(hidden)
        if self.info.dueling:
            output = self.state_head(hidden) + (output - output.mean(axis=-1, keepdim=True))
        return {"q_values": output}


class _WithNormalizer(nn.Layer):
    """The observation normaliser in front of a network."""

    info: NetworkInfo

    def _add_normalizer(self, observation_space: Space) -> None:
        if self.info.normalize_obs:
            inputs = _vector_size(observation_space)
            self.register_buffer("obs_mean", paddle.zeros([inputs], dtype="float32"))
            self.register_buffer("obs_std", paddle.ones([inputs], dtype="float32"))

    def normalize(self, obs: paddle.Tensor) -> paddle.Tensor:
        """Raw observations [batch, inputs] → what the trunks take, float32."""
        obs = obs.astype("float32")
        if not self.info.normalize_obs:
            return obs
        return paddle.clip((obs - self.obs_mean) / self.obs_std, -NORMALIZED_LIMIT, NORMALIZED_LIMIT)


class PolicyNetwork(ActorCritic, _WithNormalizer):
    """The policy's whole function: an `ActorCritic` between the observation normaliser and the action in its units."""

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__(observation_space, action_space, info)
        self._add_normalizer(observation_space)
        self.distribution_outputs = ("logits",) if isinstance(action_space, Discrete) else ("mean", "log_std")
        if isinstance(action_space, Box):
            for name, values in affine_bounds(action_space).items():
                self.register_buffer(name, paddle.to_tensor(values), persistable=False)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what `forward` returns, in order."""
        return ("action", *self.distribution_outputs, "value")

    def action(self, outputs: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """The deterministic action in the environment's units: int64 [batch], or the Box's type [batch, size]."""
        if isinstance(self.action_space, Discrete):
            return _best(outputs["logits"], self.action_space)
        clipped = paddle.minimum(paddle.maximum(outputs["mean"], self.mean_low), self.mean_high)
        action = clipped * self.action_scale + self.action_offset
        bounded = paddle.minimum(paddle.maximum(action, self.action_low), self.action_high)
        return bounded.astype(self.action_space.dtype)

    def forward(self, obs: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
        """Raw observations → `output_names`, in order; `value` is [batch]."""
        outputs = self.heads(self.normalize(obs))
        distribution = [outputs[name] for name in self.distribution_outputs]
        return (self.action(outputs), *distribution, outputs["value"].squeeze(-1))


class QPolicyNetwork(QNetwork, _WithNormalizer):
    """The greedy policy's whole function: a `QNetwork` between the observation normaliser and the best action."""

    output_names = ("action", "q_values")
    distribution_outputs = ("q_values",)

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__(observation_space, action_space, info)
        self._add_normalizer(observation_space)

    def action(self, outputs: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """The greedy action, int64 [batch]."""
        return _best(outputs["q_values"], self.action_space)

    def forward(self, obs: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
        """Raw observations → `output_names`, in order."""
        outputs = self.heads(self.normalize(obs))
        return self.action(outputs), outputs["q_values"]


def policy_network(observation_space: Space, action_space: Space, info: NetworkInfo) -> Any:  # noqa: ANN401 - of either kind
    """The whole policy that `info` describes."""
    kind = QPolicyNetwork if info.kind == "q_values" else PolicyNetwork
    return kind(observation_space, action_space, info)


def _best(values: paddle.Tensor, space: Discrete) -> paddle.Tensor:
    """The action with the largest value, int64 [batch]."""
    best = paddle.argmax(values, axis=-1)
    return best + space.start if space.start else best


def affine_bounds(space: Box) -> dict[str, Array]:
    """Constants, float32 [size], of the affine map from [-1, 1] to the bounds.

    A dimension without two finite bounds is not scaled: `mean_low` and `mean_high` are then the largest floats.

    Raises:
        UsageError: two bounds are further apart than float32 can say.
    """
    low, high = (bound.reshape(-1) for bound in space.bounds())
    both = np.isfinite(low) & np.isfinite(high)
    if (np.abs(np.where(both, high - low, 0.0)) > _FLOAT32_MAX).any():
        raise UsageError(
            "This action space is wider than float32 reaches",
            expected=f"bounds that are at most {_FLOAT32_MAX:.3g} apart, or infinite",
            got=describe(space),
        )
    span = np.where(both, high, 0.0) - np.where(both, low, 0.0)
    middle = np.where(both, high, 0.0) + np.where(both, low, 0.0)
    constants = {
        "mean_low": np.where(both, -1.0, -_FLOAT32_MAX),
        "mean_high": np.where(both, 1.0, _FLOAT32_MAX),
        "action_scale": np.where(both, span / 2, 1.0),
        "action_offset": middle / 2,
    }
    rounded = {name: values.astype(np.float32) for name, values in constants.items()}
    return rounded | {"action_low": _inside(low, np.inf), "action_high": _inside(high, -np.inf)}


def _inside(bounds: Array, inwards: float) -> Array:
    """Bounds, float64 [size], as the nearest float32 that are not outside them."""
    nearest = np.clip(bounds, -_FLOAT32_MAX, _FLOAT32_MAX).astype(np.float32)
    outside = nearest < bounds if inwards > 0 else nearest > bounds
    outside &= np.isfinite(bounds)
    return np.where(outside, np.nextafter(nearest, np.float32(inwards)), nearest).astype(np.float32)


def initial_weights(network: nn.Layer, rng: np.random.Generator) -> dict[str, Array]:
    """Orthogonal weights and zero biases by structural path, as PPO's reference implementations use.

    Gains: √2 in the trunks, 0.01 for the policy's head, 1 for heads of values (Engstrom et al. 2020, table 1; Huang et
    al. 2022, detail 2). Drawn with NumPy, so that both engines start from the same numbers.
    """
    weights = {}
    for name, parameter in network.named_parameters():
        shape = tuple(parameter.shape)
        if len(shape) != 2:
            weights[name] = np.zeros(shape, dtype=np.float32)
            continue
        gain = {"policy_head.weight": 0.01}.get(name, 1.0 if "head." in name else 2**0.5)
        weights[name] = _orthogonal(shape, gain, rng)
    return weights


def state_arrays(network: nn.Layer) -> dict[str, Array]:
    """The network's parameters and buffers as NumPy arrays, by structural path."""
    return {name: np.asarray(tensor.numpy()) for name, tensor in network.state_dict().items()}


def load_arrays(network: nn.Layer, arrays: dict[str, Array]) -> None:
    """Set the network's parameters and buffers.

    Raises:
        ArtifactError: a name is missing or too many, or a shape differs.
    """
    state = network.state_dict()
    wrong = sorted(
        name
        for name in state.keys() | arrays.keys()
        if name not in state or name not in arrays or tuple(state[name].shape) != arrays[name].shape
    )
    if wrong:
        raise ArtifactError("These weights do not belong to this network", got=", ".join(wrong))
    for name, tensor in state.items():
        tensor.set_value(arrays[name])


def network_of(checkpoint: Checkpoint, tensors: dict[str, Array] | None = None) -> Any:  # noqa: ANN401
    """Rebuild a checkpoint's policy, ready to evaluate (eager mode).

    Args:
        checkpoint: the verified checkpoint.
        tensors: other weights for the same network, such as a quantized run's own.
    """
    state = checkpoint.state
    network = policy_network(state.observation_space, state.action_space, state.network)
    load_arrays(network, checkpoint.policy_tensors() if tensors is None else tensors)
    network.eval()
    return network


def run_network(network: Any, obs: Array) -> dict[str, Array]:  # noqa: ANN401 - a PolicyNetwork or its quantized twin
    """Evaluate in Paddle: raw observations [batch, …] → every named output as a NumPy array."""
    with paddle.no_grad():
        outputs = network(paddle.to_tensor(obs))
    return {name: np.asarray(out.numpy()) for name, out in zip(network.output_names, outputs, strict=True)}


def _orthogonal(shape: tuple[int, ...], gain: float, rng: np.random.Generator) -> Array:
    """Saxe et al. 2013: Q of a Gaussian matrix's QR, signs fixed so that it is uniformly distributed."""
    rows, columns = max(shape), min(shape)
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    q *= np.sign(np.diag(r))
    return (gain * (q if shape[0] >= shape[1] else q.T)).astype(np.float32)


def _vector_size(space: Space) -> int:
    if isinstance(space, Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        return space.size
    raise UsageError(
        "This observation space has no network yet", expected="a Box vector of floats", got=describe(space)
    )


def _head_size(space: Space) -> int:
    if isinstance(space, Discrete):
        return space.n
    if len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        return space.size
    raise UsageError(
        "This action space has no head yet", expected="Discrete, or a Box vector of floats", got=describe(space)
    )
