"""JSON text to a typed struct, with an error that says where it went wrong."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from serve.protocol.messages import RequestError

T = TypeVar("T")
_LARGE = 2**20


def parse(decoder: msgspec.json.Decoder[T], text: bytes, expected: str) -> T:
    """Decode `text`.

    Args:
        decoder: of the struct that the route takes.
        text: the JSON.
        expected: what the route takes, in a few words.

    Raises:
        RequestError: it is not JSON, not of this form, or holds NaN or Infinity.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise RequestError("The JSON body has the wrong form", expected=expected, got=error) from error
    except msgspec.DecodeError as error:
        if not text:
            raise RequestError("The body is empty", expected=expected) from error
        if _holds_non_finite(text):
            raise RequestError(
                "The JSON body holds NaN or Infinity",
                expected="finite numbers",
                todo="Look at the sensor or the simulation that made this observation; a policy cannot act on it",
            ) from error
        raise RequestError("The body is not JSON", expected=expected, got=error) from error
    except RecursionError as error:
        raise RequestError("The JSON body is nested too deeply", expected=expected) from error


def check_batch(count: int, most: int) -> None:
    """Refuse a batch before arrays are made of it, which would take many times its body's bytes.

    Raises:
        RequestError: it is too large.
    """
    if count > most:
        raise RequestError("The batch is too large", expected=f"at most {most} observations", got=count)


def parse_msgpack(decoder: msgspec.msgpack.Decoder[T], data: bytes, expected: str) -> T:
    """Decode msgpack.

    Raises:
        RequestError: it is not msgpack, or not of this form.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise RequestError("The msgpack body has the wrong form", expected=expected, got=error) from error
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise RequestError("The body is not msgpack", expected=expected, got=error) from error
    except RecursionError as error:
        raise RequestError("The msgpack body is nested too deeply", expected=expected) from error


class _NonFiniteError(Exception):
    """The bare words NaN and Infinity, which many writers of JSON use although JSON has no such numbers."""


def _refuse_constant(word: str) -> float:
    raise _NonFiniteError(word)


def _holds_non_finite(text: bytes) -> bool:
    """Whether the text would be JSON up to its first bare NaN or Infinity. Costs a second parse, of bad bodies only."""
    if len(text) > _LARGE:
        return False  # it would hold up every thread for seconds, and only for a better message
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except _NonFiniteError:
        return True
    except (ValueError, RecursionError):
        return False
    return False
