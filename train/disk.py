"""What a run says when its disk is full or fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from paddleport.errors import TrainingError


@contextlib.contextmanager
def writing_to(run: Path) -> Iterator[None]:
    """Around what writes into the run directory: an OSError becomes a message with the way to go on.

    Raises:
        TrainingError: something could not be written.
    """
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise TrainingError(
            f"Cannot write to {run}",
            got=f"{error.strerror or error}{where}",
            todo="No checkpoint is lost. Free some space, or mend the disk, and continue with: "
            f"paddleport train --run-dir {run} --resume",
        ) from error
