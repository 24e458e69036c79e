"""The errors that a user can meet.

Each message says what was expected, what came and what to do. The command prints it as one line and
exits with `exit_code`; the server answers it as JSON. Anything else that escapes is a defect of ours.
"""

from __future__ import annotations


class PaddleportError(Exception):
    """Base of every error that Paddleport raises on purpose.

    Args:
        what: what went wrong, as a sentence without its full stop.
        expected: what would have been right.
        got: what came instead.
        todo: what the reader can do about it, as a sentence without its full stop.
    """

    exit_code = 1

    def __init__(self, what: str, *, expected: object = None, got: object = None, todo: str | None = None) -> None:
        self.what = what
        self.expected = expected
        self.got = got
        self.todo = todo
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        parts = [
            f"{label} {_clip(value)}"
            for label, value in (("expected", self.expected), ("got", self.got))
            if value is not None
        ]
        sentence = (self.what + (": " + ", ".join(parts) if parts else "")).rstrip(".")
        if not self.todo:
            return f"{sentence}."
        return f"{sentence}. {self.todo}" + ("" if self.todo.endswith("?") else ".")


class UsageError(PaddleportError):
    """The command line, a configuration or an argument cannot be meant as it stands."""

    exit_code = 2


class ArtifactError(PaddleportError):
    """A run, checkpoint or bundle is missing, damaged, or written by a newer version."""


class ObservationError(PaddleportError):
    """An observation does not belong to the policy's observation space."""


class GateError(PaddleportError):
    """A hand-over was refused: what a stage made is not equal enough to what it was made from."""


class TrainingError(PaddleportError):
    """Training cannot go on, for example because a number stopped being finite."""


class ServerError(PaddleportError):
    """A policy server could not be reached or refused the request.

    `status` is the HTTP status, or None where there was no answer at all.
    """

    def __init__(self, what: str, *, status: int | None = None, todo: str | None = None) -> None:
        self.status = status
        super().__init__(what, todo=todo)


class MissingExtraError(PaddleportError):
    """A package that this command needs is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package {package!r}, which is not installed here",
            todo=f"In a checkout of Paddleport, install it with: pip install '.[{extra}]'",
        )


def _clip(value: object, limit: int = 300) -> str:
    """Keep a message readable when what came is huge."""
    text = str(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
