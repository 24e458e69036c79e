"""The observations that scales are decided on: played by the policy itself, or given in a file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from paddleport.errors import ArtifactError, ObservationError
from paddleport.files import read_bytes
from paddleport.observation import array_of_many
from paddleport.spaces import Leaves, Space, batch_size, leaf_spaces, rows_of

MOST_ROWS = 2**16
"""All of what was played as a rule: the rare observations, at an episode's start, matter most."""
MOST_ELEMENTS = 2**24
"""Numbers in one batch of observations: what a policy of images makes of them has to fit into memory."""
_FILE_LIMIT = 2**30


def most_rows(space: Space) -> int:
    """How many observations of this space are looked at, at most."""
    elements = sum(int(np.prod(leaf.shape, dtype=np.int64)) for leaf in leaf_spaces(space).values())
    return max(1, min(MOST_ROWS, MOST_ELEMENTS // max(1, elements)))


def read_observations(path: Path, space: Space) -> Leaves:
    """Observations in an `.npz`: an array [n, …] for each of the policy's inputs, under its name.

    More than `most_rows` are thinned evenly.

    Args:
        path: the file.
        space: the observation space.

    Raises:
        ArtifactError: the file cannot be read, or its observations are not of this space.
    """
    leaves = leaf_spaces(space)
    arrays = _arrays(path)
    if arrays.keys() != leaves.keys():
        raise ArtifactError(
            f"{path} holds other arrays than this policy's observation has",
            expected=", ".join(leaves),
            got=", ".join(arrays) or "none",
            todo="Save one with: numpy.savez(path, obs=observations)",
        )
    try:
        checked = {name: array_of_many(leaf, arrays[name], name) for name, leaf in leaves.items()}
    except ObservationError as error:
        raise ArtifactError(f"{path} holds no observations of this policy", got=error) from error
    counts = {name: len(array) for name, array in checked.items()}
    if len(set(counts.values())) != 1:
        raise ArtifactError(f"The arrays of {path} are not equally long", got=counts)
    return thinned(checked, most_rows(space))


def thinned(obs: Leaves, limit: int) -> Leaves:
    """At most `limit` rows, evenly spread, the first and the last among them."""
    count = batch_size(obs)
    return obs if count <= limit else rows_of(obs, np.linspace(0, count - 1, limit).round().astype(np.intp))


def _arrays(path: Path) -> Leaves:
    read_bytes(path, _FILE_LIMIT)
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
        if total > _FILE_LIMIT:
            raise ValueError(f"it unpacks to {total} bytes, and {_FILE_LIMIT} is the most")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}
    except Exception as error:  # a broken archive fails in a dozen ways, from zlib to NumPy's header
        raise ArtifactError(
            f"{path} cannot be read", expected="an .npz with an array for each input", got=error
        ) from error
