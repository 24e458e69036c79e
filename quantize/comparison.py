"""A float policy, what it does, and how far a quantized one is from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paddleport.progress import stage
from paddleport.spaces import Array, Leaves, batch_size, joined, rows_of
from quantize import gate
from quantize.fake import fake_quantized
from quantize.scales import LayerError, LayerScales, Report
from train.episodes import Episodes, play
from train.network import PolicyNetwork, run_network

GATE_OBSERVATIONS = 1024
_AT_ONCE = 256
Outputs = dict[str, Array]


@dataclass(frozen=True)
class Reference:
    """The float policy, played once.

    Attributes:
        network: the policy.
        env_id: its environment.
        episodes: what it earned, and observations that it visited.
        outputs: its answers to these, by name.
    """

    network: PolicyNetwork
    env_id: str
    episodes: Episodes
    outputs: Outputs

    @classmethod
    def play(cls, network: PolicyNetwork, env_id: str, episodes: int, seed: int) -> Reference:
        """Play whole episodes with the float policy."""
        played = play_stage("Playing float", network, env_id, episodes, seed, keep=GATE_OBSERVATIONS)
        return cls(network, env_id, played, answers(network, played.observations))

    @property
    def observations(self) -> Leaves:
        """What the float policy visited, thinned to `GATE_OBSERVATIONS`."""
        return self.episodes.observations

    def agreement(self, twin: PolicyNetwork) -> float:
        """How alike a quantized policy acts on the visited observations."""
        return self.agreement_of(answers(twin, self.observations))

    def report(self, twin: PolicyNetwork) -> Report:
        """Measure a quantized policy: on the visited observations, and on the same episodes."""
        count, seed = len(self.episodes.returns), self.episodes.seed
        played = play_stage("Playing fake-quantized", twin, self.env_id, count, seed)
        return Report(
            agreement=self.agreement(twin),
            agreement_observations=batch_size(self.observations),
            returns=gate.compare_returns(self.episodes, played),
        )

    def agreement_of(self, outputs: Outputs) -> float:
        """The same from a policy's answers to them."""
        return gate.action_agreement(self.network.action_space, self.outputs["action"], outputs["action"])


def play_stage(label: str, network: PolicyNetwork, env_id: str, episodes: int, seed: int, *, keep: int = 0) -> Episodes:
    """Play whole episodes with a policy in Paddle, with a progress bar."""
    with stage(f"{label}, {episodes} episodes", episodes) as advance:
        return play(
            lambda obs: run_network(network, obs)["action"], env_id, episodes, seed, keep=keep, on_episode=advance
        )


def answers(network: PolicyNetwork, obs: Leaves) -> Outputs:
    """Every output for observations [n, …], some at a time: what a convolution needs grows with the batch."""
    starts = range(0, batch_size(obs), _AT_ONCE)
    return joined([run_network(network, rows_of(obs, slice(start, start + _AT_ONCE))) for start in starts])


def layer_errors(network: PolicyNetwork, layers: Mapping[str, LayerScales], obs: Leaves) -> dict[str, LayerError]:
    """What each layer costs alone: the policy with that layer on its grids and the others float.

    Args:
        network: the float policy whose layers these are.
        layers: scales by structural path.
        obs: visited observations [n, …].
    """
    exact = answers(network, obs)
    found = {}
    for path, scales in layers.items():
        moved = answers(fake_quantized(network, {path: scales}), obs)
        agreement = gate.action_agreement(network.action_space, exact["action"], moved["action"])
        found[path] = LayerError(error=output_error(exact, moved), agreement=agreement)
    return found


def output_error(exact: Outputs, moved: Outputs, names: tuple[str, ...] | None = None) -> float:
    """Root mean square of what changes in an output, over that output's standard deviation; the worst output's.

    Args:
        exact: each output [n, …].
        moved: the same of another policy.
        names: which outputs count; None for every one of numbers, actions aside.
    """
    counted = names or tuple(name for name in exact if name != "action" and exact[name].dtype.kind == "f")
    return max((_relative(exact[name], moved[name]) for name in counted), default=0.0)


def _relative(exact: Array, moved: Array) -> float:
    difference = float(np.sqrt(np.mean((moved.astype(np.float64) - exact) ** 2)))
    spread = float(exact.astype(np.float64).std(axis=0).max())
    return difference / spread if spread > 0 else (0.0 if difference == 0 else float(np.finfo(np.float32).max))
