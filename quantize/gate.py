"""How far a cheaper policy may be from the one that it stands for: action agreement and return.

Both halves of the gate use this: `quantize` on what Paddle computes, `export` on the ONNX files that it wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from paddleport.errors import GateError
from paddleport.manifest import ReturnStatistics
from paddleport.spaces import Array, Box, Space

if TYPE_CHECKING:
    from train.episodes import Episodes

_Z = 1.959963984540054  # the normal distribution's 97.5 % quantile


class ReturnComparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Two policies on episodes that start from the same seeds."""

    reference: ReturnStatistics
    candidate: ReturnStatistics
    drop: float
    """Mean over the episodes of reference return - candidate return."""
    interval: float | None
    """Half width of the 95 % interval around `drop`; null where one episode cannot tell."""

    @property
    def relative_drop(self) -> float:
        """The drop as a share of the reference's mean return."""
        scale = abs(self.reference.mean)
        return self.drop / scale if scale else (float("inf") if self.drop > 0 else 0.0)


class Tolerance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the gate lets pass; both of its halves go by the same."""

    agreement: float = 0.98
    """Smallest action agreement."""
    drop: float = 0.02
    """Largest drop of the mean return, as a share of it; a drop within the interval passes whatever its size."""


def compare_returns(reference: Episodes, candidate: Episodes) -> ReturnComparison:
    """Compare two policies that were played from the same seeds, episode by episode."""
    differences = reference.returns - candidate.returns
    return ReturnComparison(
        reference=reference.statistics,
        candidate=candidate.statistics,
        drop=float(differences.mean()),
        interval=half_width(float(differences.std()), len(differences)),
    )


def half_width(std: float, count: int) -> float | None:
    """Half width of the 95 % confidence interval of a mean; None where there is one value only.

    Args:
        std: population standard deviation of the values.
        count: how many there are.
    """
    if count < 2:
        return None
    return student_quantile(count - 1) * std / (count - 1) ** 0.5


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t by its expansion in 1/ν, within 0.6 % from ν = 3 on.

    Abramowitz and Stegun 1964, 26.7.5.
    """
    if freedom < 3:
        return (12.706204736, 4.3026527297)[freedom - 1]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def action_agreement(space: Space, expected: Array, got: Array) -> float:
    """How alike two policies act on the same observations, 1 for no difference.

    Finite choices: the share of equal ones. Box: 1 - mean |difference| over the range of each dimension, a dimension
    without two finite bounds being measured by the range that the expected actions span.

    Args:
        space: the action space.
        expected: actions [batch, …].
        got: the other policy's.
    """
    if not isinstance(space, Box):
        return float((expected == got).mean())
    low, high = space.bounds()
    span = np.where(np.isfinite(high - low), high - low, np.ptp(expected, axis=0))
    difference = np.abs(expected.astype(np.float64) - got) / np.maximum(span, 1e-6)
    return float(1.0 - difference.mean())


def check(what: str, agreement: float, returns: ReturnComparison, tolerance: Tolerance, todo: str) -> None:
    """Let a policy pass, or say which figure failed.

    Args:
        what: the policy, as the beginning of a sentence.
        agreement: its action agreement with the reference.
        returns: its returns beside the reference's.
        tolerance: the limits.
        todo: what its maker can try.

    Raises:
        GateError: a figure is outside the tolerance.
    """
    check_agreement(what, agreement, tolerance, todo)
    if returns.relative_drop > tolerance.drop and returns.interval is not None and returns.drop > returns.interval:
        reference, candidate = returns.reference, returns.candidate
        raise GateError(
            f"{what} earns too little",
            expected=f"a mean return within {tolerance.drop:.0%} of the reference's {reference.mean:.1f}, "
            f"or within the 95 % interval of ±{returns.interval:.1f}",
            got=f"{candidate.mean:.1f} over {candidate.episodes} episodes ({returns.relative_drop:.1%} less)",
            todo=todo,
        )


def check_agreement(what: str, agreement: float, tolerance: Tolerance, todo: str) -> None:
    """The first half of `check`, for which no episode has to be played.

    Raises:
        GateError: the agreement is outside the tolerance.
    """
    if not agreement >= tolerance.agreement:
        raise GateError(
            f"{what} acts too differently from the float32 policy",
            expected=f"an action agreement of at least {tolerance.agreement:g}",
            got=f"{agreement:.4f}",
            todo=todo,
        )
