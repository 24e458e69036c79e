"""A body's bytes, bounded before and after decompression."""

from __future__ import annotations

import zlib
from typing import Any

from serve.protocol.messages import RequestError

# zlib's own header, or gzip's, whichever is there.
_ANY_HEADER = zlib.MAX_WBITS | 32


def read_wsgi_body(environ: dict[str, Any], limit: int) -> bytes:
    """The whole body of a WSGI request, as it was sent.

    Args:
        environ: the WSGI environment.
        limit: most bytes that are taken.

    Raises:
        RequestError: it is too large (413), cut short, or a raw tensor of no announced length (400).
    """
    # A body sent in chunks announces no length; HTTP says that a length beside it does not count.
    announced = None if "HTTP_TRANSFER_ENCODING" in environ else environ.get("CONTENT_LENGTH")
    length = _length(announced) if announced else None
    if length is not None and length > limit:
        raise _too_large(f"{length} bytes", limit)
    # Whether chunks were cut short, WSGI does not tell. JSON shows it; a raw tensor would lose rows.
    if length is None and environ.get("HTTP_INFERENCE_HEADER_CONTENT_LENGTH") == "0":
        raise RequestError("A raw tensor has to announce its length", expected="Content-Length")
    if length is None and not environ.get("wsgi.input_terminated"):
        return b""
    body: bytes = environ["wsgi.input"].read(limit + 1 if length is None else length)
    if length is not None and len(body) < length:
        raise RequestError("The body was cut short", expected=f"{length} bytes", got=f"{len(body)} bytes")
    if len(body) > limit:
        raise _too_large(f"more than {limit} bytes", limit)
    return body


def _length(announced: str) -> int:
    if not (announced.isascii() and announced.isdigit() and len(announced) < 20):
        raise RequestError("Content-Length is no length", expected="a number of bytes", got=repr(announced))
    return int(announced)


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """The body that was compressed as its `Content-Encoding` says.

    Args:
        body: as it was sent.
        encoding: the header's value.
        limit: most bytes that may come out.

    Raises:
        RequestError: too much comes out (413), it is not whole or not compressed so (400), or the encoding is
            unknown (415).
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise RequestError(
            "The body's Content-Encoding is unknown", status=415, expected="gzip, deflate or none", got=repr(encoding)
        )
    decompressor = zlib.decompressobj(_ANY_HEADER)
    try:
        plain = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestError("The body cannot be decompressed", expected=encoding, got=error) from error
    if len(plain) > limit:
        raise _too_large(f"more than {limit} bytes after decompression", limit)
    if not decompressor.eof or decompressor.unused_data:
        raise RequestError("The body is not one whole compressed stream", expected=f"{encoding}, to its last byte")
    return plain


def check_size(size: int, limit: int) -> None:
    """Refuse a body of more bytes than `limit`.

    Raises:
        RequestError: it is too large (413).
    """
    if size > limit:
        raise _too_large(f"{size} bytes", limit)


def _too_large(got: str, limit: int) -> RequestError:
    return RequestError(
        "The body is too large",
        status=413,
        expected=f"at most {limit} bytes",
        got=got,
        todo="Send fewer observations in one request",
    )
