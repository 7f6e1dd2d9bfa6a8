"""Compressed bodies: gzip and deflate, unpacked no further than a body may be large."""

from __future__ import annotations

import zlib

from dpserve_verify.errors import InputError
from serving.wire.errors import TooLarge, WrongMediaType

WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's word for the wrapping
SMALL = 1024  # bytes: not worth packing
LEVEL = 1


def unpack(raw: bytes, encoding: str, limit: int) -> bytes:
    """Unpack a body; `encoding` is that of Content-Encoding, "" and identity are none. TooLarge beyond `limit`
    bytes.
    """
    if encoding in ("", "identity"):
        return raw
    if encoding not in WINDOWS:
        raise WrongMediaType(f"Content-Encoding: must be {' or '.join(WINDOWS)}")
    unpacker = zlib.decompressobj(WINDOWS[encoding])
    try:
        unpacked = unpacker.decompress(raw, limit + 1)
    except zlib.error:
        raise InputError(f"body: not {encoding}") from None
    if len(unpacked) > limit:
        raise TooLarge(f"body: more than {limit} bytes, unpacked", limit=limit)
    if not unpacker.eof or unpacker.unused_data:
        raise InputError(f"body: not one whole {encoding} stream")
    return unpacked


def pack(raw: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    """Pack an answer as the client accepts it; return it and the header that says so. A small one stays as it is."""
    words = {part.partition(";")[0].strip().lower() for part in accepted.split(",") if "q=0" not in part}
    encoding = next((name for name in WINDOWS if name in words), None)
    if encoding is None or len(raw) < SMALL:
        return raw, {}
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOWS[encoding])
    return packer.compress(raw) + packer.flush(), {"Content-Encoding": encoding}
