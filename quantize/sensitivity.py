"""`--keep-float auto`: the fewest layers left in float that let a quantized policy pass its gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddleport.errors import GateError
from paddleport.progress import stage
from paddleport.spaces import Leaves
from quantize.calibration import thinned
from quantize.comparison import answers, output_error
from quantize.fake import fake_quantized
from quantize.scales import LayerScales
from train.network import PolicyNetwork

_OBSERVATIONS = 256
Gate = Callable[[dict[str, LayerScales]], None]


def keep_fewest(
    network: PolicyNetwork, layers: Mapping[str, LayerScales], obs: Leaves, passes: Gate
) -> tuple[str, ...]:
    """Choose layers to leave in float, one after the other, until the rest passes; then take back what was not needed.

    Each time the layer is left out without which the policy's outputs are nearest to the float policy's. For one layer
    this finds the fewest; for more it is a search that tries n + (n - 1) + … instead of 2ⁿ sets.

    Args:
        network: the float policy whose layers these are.
        layers: scales of every layer, by structural path.
        obs: visited observations [n, …].
        passes: raises GateError where a policy with these layers on their grids does not pass.

    Returns:
        Structural paths of the layers to leave in float.

    Raises:
        GateError: only the float policy itself would pass.
    """
    few = thinned(obs, _OBSERVATIONS)
    exact = answers(network, few)
    names = tuple(name for name in network.distribution_outputs if name != "log_std")
    kept: list[str] = []
    with stage("Looking for layers to keep in float", len(layers)) as advance:
        while len(kept) < len(layers) - 1:
            errors = {}
            for path in layers:
                if path not in kept:
                    twin = fake_quantized(network, _without(layers, [*kept, path]))
                    errors[path] = output_error(exact, answers(twin, few), names)
            kept.append(min(errors, key=errors.__getitem__))
            advance()
            if _holds(passes, _without(layers, kept)):
                return tuple(_needed(kept, layers, passes))
    raise GateError(
        "No layer of this policy can be quantized",
        expected=f"at least one of {len(layers)} layers on its grid to pass the gate",
        todo="Export it in float32: --quantized none",
    )


def _needed(kept: list[str], layers: Mapping[str, LayerScales], passes: Gate) -> list[str]:
    """Those of the kept layers without which the rest does not pass, in the order of the network."""
    needed = list(kept)
    for path in kept[:-1]:  # without the last one it did not pass
        fewer = [other for other in needed if other != path]
        if _holds(passes, _without(layers, fewer)):
            needed = fewer
    return [path for path in layers if path in needed]


def _without(layers: Mapping[str, LayerScales], paths: list[str]) -> dict[str, LayerScales]:
    return {path: scales for path, scales in layers.items() if path not in paths}


def _holds(passes: Gate, layers: dict[str, LayerScales]) -> bool:
    try:
        passes(layers)
    except GateError:
        return False
    return True
