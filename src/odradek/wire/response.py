"""Encoding of an answer frame, split at file slices.

│ i32 length of the rest │ i32 correlation id │ 0 (no tagged fields; only header v1) │ body ...
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from odradek.wire.request import Request
from odradek.wire.schema.api_keys import response_header_version
from odradek.wire.schema.compile import Writer, writer
from odradek.wire.schema.primitives import Chunk, Splices
from odradek.wire.schema.schema import schema_of

# A bytearray has spare capacity, which is wasted while the data waits to be sent. Copying avoids this but takes time.
COPIED_BYTES_MAX = 1024 * 1024

_pack_front = Struct(">ii").pack_into
_ROOM_FOR_HEADER = (bytes(8), bytes(9))  # By header version; the ninth byte is the number of tagged fields, 0.

_WRITERS: dict[tuple[type, int], tuple[Writer[object], bytes]] = {}


def encode_response(request: Request, message: object) -> list[Chunk]:
    """Encode the frame of `message` as the answer to `request`, in the request's version.

    Raise ValueError for values that the version can't represent.
    """
    version = request.api_version
    write, room = _WRITERS.get((type(message), version)) or _writer_of(type(message), version)
    out = bytearray(room)
    splices: Splices = []
    try:
        write(out, message, splices)
        size = len(out) - 4 + sum(splice.size for _, splice in splices) if splices else len(out) - 4
        _pack_front(out, 0, size, request.correlation_id)
    except struct_error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
    if splices:
        return cut(out, splices)
    return [bytes(out) if len(out) < COPIED_BYTES_MAX else memoryview(out)]


def _writer_of(cls: type, version: int) -> tuple[Writer[object], bytes]:
    api_key = schema_of(cls).api_key
    assert api_key is not None, f"{cls.__name__} is not a response"
    entry: tuple[Writer[object], bytes] = (
        writer(cls, version),
        _ROOM_FOR_HEADER[response_header_version(api_key, version)],
    )
    _WRITERS[cls, version] = entry
    return entry


def cut(out: bytearray, splices: Splices) -> list[Chunk]:
    chunks: list[Chunk] = []
    start = 0
    for position, splice in splices:
        chunks.append(bytes(out[start:position]))  # Never empty: at least a length is between two splices.
        if splice.size:
            chunks.append(splice)
        start = position
    if len(out) > start:
        chunks.append(bytes(out[start:]))
    return chunks
