"""Sums of priorities, so that drawing in proportion to them takes logarithmic time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from paddleport.spaces import Array

_WIDTH, _TOP = 16, 256  # few wide levels: most of what a small NumPy operation costs is the call


class SumTree:
    """A tree each of whose nodes holds the sum of the 16 below it; up to 256 stand at the top.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int) -> None:
        self._levels = [_zeros(size)]
        while len(self._levels[-1]) > _TOP:
            self._levels.append(_zeros(len(self._levels[-1]) // _WIDTH))

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._levels[-1].sum())

    def get(self, leaves: Array) -> Array:
        """Values of leaves."""
        values: Array = self._levels[0][leaves]
        return values

    def leaves(self, count: int) -> Array:
        """The first `count` leaves."""
        return self._levels[0][:count].copy()

    def set(self, leaves: Array, values: Array) -> None:
        """Set leaves; of a leaf that is named twice the last value counts."""
        self._levels[0][leaves] = values
        nodes = leaves
        for below, above in pairwise(self._levels):
            nodes = nodes // _WIDTH
            above[nodes] = below.reshape(-1, _WIDTH)[nodes].sum(axis=1)

    def find(self, sums: Array) -> Array:
        """The leaves in whose part of the running total `sums` lie; never one whose value is 0, unless all are."""
        each = np.arange(len(sums))
        top = np.concatenate([[0.0], self._levels[-1].cumsum()])  # what lies before each node, then the sum of all
        left_over = _below(sums, top[-1])
        nodes = top[1:].searchsorted(left_over, side="right")
        left_over = left_over - top[nodes]
        for level in reversed(self._levels[:-1]):
            running = np.zeros((len(sums), _WIDTH + 1))  # [n, 17], as `top`
            level.reshape(-1, _WIDTH).take(nodes, axis=0).cumsum(axis=1, out=running[:, 1:])
            left_over = _below(left_over, running[:, -1])
            child = (running[:, 1:] <= left_over[:, None]).sum(axis=1)
            left_over = left_over - running[each, child]
            nodes = nodes * _WIDTH + child
        return nodes


def _below(sums: Array, limit: Array) -> Array:
    """`sums`, none of them behind the last child: sums on different levels differ in their last bits."""
    below: Array = np.minimum(sums, np.nextafter(limit, 0))
    return below


def _zeros(size: int) -> Array:
    return np.zeros(-(-size // _WIDTH) * _WIDTH)
