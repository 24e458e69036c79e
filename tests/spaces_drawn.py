"""Observations drawn from a space of the contract, for tests without an environment."""

from paddleport.spaces import Box, integer_range, leaf_spaces


def drawn(space, rows, rng):
    """Observations [rows, …] of a space."""
    leaves = {}
    for name, leaf in leaf_spaces(space).items():
        if isinstance(leaf, Box) and leaf.dtype.startswith("f"):
            leaves[name] = (5 + 3 * rng.standard_normal((rows, *leaf.shape))).astype(leaf.dtype)
        else:
            low, high = (0, int(leaf.high)) if isinstance(leaf, Box) else integer_range(leaf)
            leaves[name] = rng.integers(low, high, endpoint=True, size=(rows, *leaf.shape)).astype(leaf.dtype)
    return leaves
