"""The messages of an Arrow IPC body, looked at before they are read: a compressed one may unpack to any size."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc

from dpserve_verify.errors import InputError
from serving.wire.errors import TooLarge

FILE_MAGIC = b"ARROW1\0\0"
MAX_BATCHES = 1000
MAX_DICTIONARY_BYTES = 64 << 20  # as they are read: what is added to one makes the whole of it anew
# In Arrow's format/Message.fbs: the members of the union MessageHeader, and the places of fields in their tables.
SCHEMA, DICTIONARIES, BATCH = 1, 2, 3
HEADER_TYPE, HEADER, DICTIONARY_ID, DICTIONARY_DATA, DICTIONARY_ADDS, COMPRESSION = 1, 2, 0, 1, 2, 3


def check_messages(raw: bytes) -> bytes:
    """Return the stream in `raw`, an Arrow IPC stream or file. InputError where it is compressed or has messages that
    are no part of a table; TooLarge for more than MAX_BATCHES batches, or MAX_DICTIONARY_BYTES; pa.ArrowException where
    it is not Arrow.
    """
    stream = raw[len(FILE_MAGIC) :] if raw.startswith(FILE_MAGIC) else raw
    batches, dictionary_bytes, sizes = 0, 0, dict[bytes, int]()
    for message in ipc.MessageReader.open_stream(pa.py_buffer(stream)):
        metadata = message.metadata.to_pybytes()
        kind, header = _check_message(metadata)
        if kind == BATCH:
            batches += 1
        elif kind == DICTIONARIES:
            name, adds = _field(metadata, header, DICTIONARY_ID), _field(metadata, header, DICTIONARY_ADDS)
            key = b"" if name is None else metadata[name : name + 8]
            before = sizes.get(key, 0) if adds is not None and metadata[adds] else 0
            sizes[key] = before + message.body.size
            dictionary_bytes += sizes[key]
        if batches > MAX_BATCHES or dictionary_bytes > MAX_DICTIONARY_BYTES:
            problem = f"body: at most {MAX_BATCHES} batches, and {MAX_DICTIONARY_BYTES} bytes of dictionaries"
            raise TooLarge(problem, limit=MAX_BATCHES if batches > MAX_BATCHES else MAX_DICTIONARY_BYTES)
    return stream


def _check_message(metadata: bytes) -> tuple[int, int]:
    """Return the kind of a message, and the place of its table. Arrow has verified these bytes as a flatbuffer: every
    place that is followed here lies in them.
    """
    message = _follow(metadata, 0)
    kind = _field(metadata, message, HEADER_TYPE)
    header = _field(metadata, message, HEADER)
    of = None if kind is None else metadata[kind]
    if header is None or of not in (SCHEMA, DICTIONARIES, BATCH):
        raise InputError("body: holds Arrow messages that are no part of a table")
    table: int | None = _follow(metadata, header)
    if of == DICTIONARIES:
        data = _field(metadata, _follow(metadata, header), DICTIONARY_DATA)
        table = None if data is None else _follow(metadata, data)
    if of != SCHEMA and (table is None or _field(metadata, table, COMPRESSION) is not None):
        raise InputError("body: Arrow IPC must not be compressed")
    return of, _follow(metadata, header)


def _field(raw: bytes, table: int, number: int) -> int | None:
    """Return the place of a table's field; None where it has none."""
    places = table - int.from_bytes(raw[table : table + 4], "little", signed=True)
    at = 4 + 2 * number
    if at >= int.from_bytes(raw[places : places + 2], "little"):
        return None
    offset = int.from_bytes(raw[places + at : places + at + 2], "little")
    return table + offset if offset else None


def _follow(raw: bytes, place: int) -> int:
    return place + int.from_bytes(raw[place : place + 4], "little")
