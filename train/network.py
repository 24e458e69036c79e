"""The policy network: raw observation in, environment action out.

Everything between the two (normalisation, image scaling, trunk, heads, the deterministic action in the environment's
own units) is in `PolicyNetwork.forward`, so that the exported graph is the whole function.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - Paddle's own convention

from paddleport.checkpoint import Checkpoint, NetworkInfo
from paddleport.errors import ArtifactError, UsageError
from paddleport.spaces import (
    OBSERVATION,
    Array,
    Box,
    Discrete,
    Leaf,
    Leaves,
    MultiBinary,
    MultiDiscrete,
    Space,
    describe,
)
from train.actions import ActionHead, best, head_size
from train.encoding import VECTOR, encoding_of
from train.normalizer import NORMALIZED_LIMIT
from train.trunks import make_trunk

Tensors: TypeAlias = dict[str, paddle.Tensor]


class ActorCritic(nn.Layer):
    """Actor and critic on the features of an observation (`train.encoding`): what training updates.

    Args:
        observation_space: the observation space.
        action_space: Box (outputs `mean` and `log_std`), or a finite choice (outputs `logits`).
        info: sizes and switches.

    Raises:
        UsageError: a space that no head or trunk is there for.
    """

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__()
        self.info = info
        self.action_space = action_space
        size = head_size(action_space)
        self.policy_trunk = make_trunk(observation_space, info)
        self.policy_head = nn.Linear(self.policy_trunk.width, size)
        if not info.shared_trunk:
            self.value_trunk = make_trunk(observation_space, info)
        self.value_head = nn.Linear(self.policy_trunk.width, 1)
        if isinstance(action_space, Box):
            zeros = nn.initializer.Constant(0.0)
            self.log_std = self.create_parameter([size], default_initializer=zeros)

    def heads(self, features: Tensors) -> Tensors:
        """Features → the distribution's parameters [batch, …] and `value` [batch, 1]."""
        hidden = self.policy_trunk(features)
        output = self.policy_head(hidden)
        value = self.value_head(hidden if self.info.shared_trunk else self.value_trunk(features))
        if not isinstance(self.action_space, Box):
            return {"logits": output, "value": value}
        # Added to zeros of the batch's shape: a broadcast that every exporter keeps.
        log_std = paddle.zeros_like(output) + self.log_std
        return {"mean": output, "log_std": log_std, "value": value}


class QNetwork(nn.Layer):
    """A value for each action (Mnih et al. 2015), optionally by dueling streams (Wang et al. 2016, equation 9).

    Args:
        observation_space: the observation space.
        action_space: Discrete.
        info: sizes and switches.

    Raises:
        UsageError: a space that no trunk or head is there for.
    """

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__()
        if not isinstance(action_space, Discrete):
            raise UsageError(
                "DQN gives a value to each of a finite choice of actions",
                expected="a Discrete action space",
                got=describe(action_space),
                todo="PPO and A2C take every action space: --algo ppo",
            )
        self.info = info
        self.action_space = action_space
        self.trunk = make_trunk(observation_space, info)
        self.head = nn.Linear(self.trunk.width, action_space.n)
        if info.dueling:
            self.state_head = nn.Linear(self.trunk.width, 1)

    def heads(self, features: Tensors) -> Tensors:
        """Features → `q_values` [batch, n]."""
        hidden = self.trunk(features)
        output = self.head(hidden)
        if self.info.dueling:
            output = self.state_head(hidden) + (output - output.mean(axis=-1, keepdim=True))
        return {"q_values": output}


class _WithEncoder(nn.Layer):
    """What stands in front of a network: from raw observations to features."""

    info: NetworkInfo

    def _add_encoder(self, observation_space: Space) -> None:
        self.encoding = encoding_of(observation_space)
        self.normalizes = self.info.normalize_obs and self.encoding.numbers_size > 0
        if self.normalizes:
            size = [self.encoding.numbers_size]
            self.register_buffer("obs_mean", paddle.zeros(size, dtype="float32"))
            self.register_buffer("obs_std", paddle.ones(size, dtype="float32"))

    def features(self, obs: paddle.Tensor | Tensors) -> Tensors:
        """Raw observations [batch, …] → what the trunks take: what `Encoding.features` does in NumPy."""
        leaves = obs if isinstance(obs, dict) else {OBSERVATION: obs}
        encoding = self.encoding
        parts = []
        if encoding.numbers:
            rows = [_flat(leaf, leaves[name].astype("float32")) for name, leaf in encoding.numbers.items()]
            parts.append(self._normalized(rows[0] if len(rows) == 1 else paddle.concat(rows, axis=-1)))
        kind: Any = parts[0].dtype if parts else "float32"  # float64 where parity evaluates in it
        parts += [_one_hot(leaf, leaves[name]).astype(kind) for name, leaf in encoding.choices.items()]
        features = {name: leaves[name] for name in encoding.images}
        if parts:
            features[VECTOR] = parts[0] if len(parts) == 1 else paddle.concat(parts, axis=-1)
        return features

    def _normalized(self, numbers: paddle.Tensor) -> paddle.Tensor:
        if not self.normalizes:
            return numbers
        return paddle.clip((numbers - self.obs_mean) / self.obs_std, -NORMALIZED_LIMIT, NORMALIZED_LIMIT)


class PolicyNetwork(ActorCritic, _WithEncoder):
    """The policy's whole function: an `ActorCritic` between the encoder and the action in its units."""

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__(observation_space, action_space, info)
        self._add_encoder(observation_space)
        self.distribution_outputs = ("mean", "log_std") if isinstance(action_space, Box) else ("logits",)
        self.action = ActionHead(action_space, squash=info.squash)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what `forward` returns, in order."""
        return ("action", *self.distribution_outputs, "value")

    def forward(self, obs: paddle.Tensor | Tensors) -> tuple[paddle.Tensor, ...]:
        """Raw observations → `output_names`, in order; `value` is [batch].

        Args:
            obs: [batch, …], or a dict of these where the observation has parts.
        """
        outputs = self.heads(self.features(obs))
        distribution = [outputs[name] for name in self.distribution_outputs]
        return (self.action(outputs), *distribution, outputs["value"].squeeze(-1))


class QPolicyNetwork(QNetwork, _WithEncoder):
    """The greedy policy's whole function: a `QNetwork` between the encoder and the best action."""

    output_names = ("action", "q_values")
    distribution_outputs = ("q_values",)

    def __init__(self, observation_space: Space, action_space: Space, info: NetworkInfo) -> None:
        super().__init__(observation_space, action_space, info)
        self._add_encoder(observation_space)

    def action(self, outputs: Tensors) -> paddle.Tensor:
        """The greedy action, int64 [batch]."""
        return best(outputs["q_values"], self.action_space.start)

    def forward(self, obs: paddle.Tensor | Tensors) -> tuple[paddle.Tensor, ...]:
        """Raw observations → `output_names`, in order."""
        outputs = self.heads(self.features(obs))
        return self.action(outputs), outputs["q_values"]


def policy_network(observation_space: Space, action_space: Space, info: NetworkInfo) -> Any:  # noqa: ANN401 - of either kind
    """The whole policy that `info` describes."""
    kind = QPolicyNetwork if info.kind == "q_values" else PolicyNetwork
    return kind(observation_space, action_space, info)


def _one_hot(leaf: Leaf, values: paddle.Tensor) -> paddle.Tensor:
    """[batch, …] → float32 [batch, leaf size]."""
    if isinstance(leaf, Discrete):
        return F.one_hot(values - leaf.start if leaf.start else values, leaf.n)
    if isinstance(leaf, MultiDiscrete):
        starts = leaf.starts
        columns = [F.one_hot(values[:, index] - starts[index], n) for index, n in enumerate(leaf.nvec)]
        return paddle.concat(columns, axis=-1)
    assert isinstance(leaf, MultiBinary)  # noqa: S101 - the only kind left
    return _flat(leaf, values.astype("float32"))


def _flat(leaf: Box | MultiBinary, values: paddle.Tensor) -> paddle.Tensor:
    """[batch, …] → [batch, size]."""
    return values if len(leaf.shape) == 1 else values.reshape([-1, leaf.size])


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


def network_of(checkpoint: Checkpoint, tensors: dict[str, Array] | None = None, *, trust_code: bool = False) -> Any:  # noqa: ANN401
    """Rebuild a checkpoint's policy, ready to evaluate (eager mode).

    Args:
        checkpoint: the verified checkpoint.
        tensors: other weights for the same network, such as a quantized run's own.
        trust_code: whether to import the trunk that the checkpoint names, where it names one.

    Raises:
        UsageError: it names one, and is not trusted.
    """
    state = checkpoint.state
    if state.network.trunk_class and not trust_code:
        raise UsageError(
            f"{checkpoint.path} names a trunk of its maker's own, and importing it runs its code",
            got=state.network.trunk_class,
            todo="Add --trust-code if you trust whoever made this run",
        )
    network = policy_network(state.observation_space, state.action_space, state.network)
    load_arrays(network, checkpoint.policy_tensors() if tensors is None else tensors)
    network.eval()
    return network


def run_network(network: Any, obs: Leaves) -> dict[str, Array]:  # noqa: ANN401 - a PolicyNetwork or its quantized twin
    """Evaluate in Paddle: raw observations [batch, …] → every named output as a NumPy array."""
    with paddle.no_grad():
        outputs = network({name: paddle.to_tensor(array) for name, array in obs.items()})
    return {name: np.asarray(out.numpy()) for name, out in zip(network.output_names, outputs, strict=True)}
