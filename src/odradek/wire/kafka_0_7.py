"""Recognition of requests in the protocol of Kafka 0.7, which no listener supports, so that the log can name it.

│ i32 size │ i16 type │ i16 length │ topic │ i32 partition │ rest ...            type 0 produce, 1 fetch, 4 offsets
│ i32 size │ i16 type │ i16 count  │ (i16 length │ topic │ i32 partition │ rest) ...   type 2 multifetch, 3 multiproduce

The rest is an i32 length and messages where records are produced, and otherwise 12 bytes: an i64 offset or time, and an
i32 bound.  Read as a request of today, the type is an API key and the length of the topic a version, so such a request
fails in its header, its version or its body.  Only there is it looked at, and only as a whole: a topic with a legal
name, and a size that fits to the byte.  A multifetch of a topic of one or two letters
can be a request of today as well.
"""

from __future__ import annotations

import re
from struct import Struct

from odradek.base.limits import BATCH_BYTES_MAX, TOPIC_NAME_CHARACTERS_MAX
from odradek.base.units import INT16_MAX
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import request_header_version
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer

_PRODUCE, _FETCH, _MULTIFETCH, _MULTIPRODUCE, _OFFSETS = range(5)
_MULTIPLE = {_MULTIFETCH, _MULTIPRODUCE}
_PRODUCING = {_PRODUCE, _MULTIPRODUCE}
_FRONT = Struct(">hh")
_FRONT_BYTES = _FRONT.size
_LENGTH = Struct(">h")
_PARTITION = Struct(">i")
_PARTITION_AND_LENGTH = Struct(">ii")
_REQUEST_BYTES = _PARTITION.size + 12
_TOPIC = re.compile(rb"[a-zA-Z0-9._-]{1,%d}" % TOPIC_NAME_CHARACTERS_MAX)
_HEADER = Struct(">hhih")
# Any negative size stands for null, and which one it was is no longer known.  It was a part of the partition: its lower
# half, or its last byte before the first one of a length.
_NULL_SIZES = (-1, -256)


def explain_frame(frame: Buffer, malformed: Malformed) -> Malformed:
    """Return the error to log for a frame, without its size, that was refused as `malformed`."""
    if not is_kafka_0_7(frame):
        return malformed
    return Malformed("the client uses the protocol of Kafka 0.7, which is not supported")


def explain_request(request: Request, body: Buffer, malformed: Malformed) -> Malformed:
    """Return the error to log for a request whose header could be read.

    The frame is put together from its parts, a copy, so a large one is not looked at.  Neither is one whose client id
    was not UTF-8: only messages of more than 10 KB can lie there.
    """
    client_id = b"" if request.client_id is None else request.client_id.encode()
    if request.api_key not in range(5) or len(client_id) > INT16_MAX or len(body) > BATCH_BYTES_MAX:
        return malformed
    tags = b"\0" if request_header_version(request.api_key, request.api_version) >= 2 else b""
    rest = client_id + tags + bytes(body)
    for size in _NULL_SIZES if request.client_id is None else (len(client_id),):
        frame = _HEADER.pack(request.api_key, request.api_version, request.correlation_id, size) + rest
        explained = explain_frame(frame, malformed)
        if explained is not malformed:
            return explained
    return malformed


def is_kafka_0_7(frame: Buffer) -> bool:
    """Return True if a frame, without its size, is a whole request of Kafka 0.7."""
    data = memoryview(frame)
    if len(data) < _FRONT_BYTES:
        return False
    kind, count = _FRONT.unpack_from(data)
    if kind not in range(5):
        return False
    at = _FRONT_BYTES
    if kind not in _MULTIPLE:
        return _part_end(data, at - _LENGTH.size, is_producing=kind in _PRODUCING) == len(data)
    while count > 0 and 0 < at < len(data):
        at = _part_end(data, at, is_producing=kind in _PRODUCING)
        count -= 1
    return count == 0 and at == len(data) > _FRONT_BYTES


def _part_end(data: memoryview, at: int, *, is_producing: bool) -> int:
    """Return the position after what is asked of one partition, or -1 if that is not what the bytes are."""
    if at + _LENGTH.size > len(data):
        return -1
    (size,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    end = at + size
    if size < 1 or end + _PARTITION_AND_LENGTH.size > len(data) or _TOPIC.fullmatch(data, at, end) is None:
        return -1
    partition, length = _PARTITION_AND_LENGTH.unpack_from(data, end)
    # A producer asks for any partition as -1.
    if partition < -1 or (is_producing and length < 0):
        return -1
    return int(end + _PARTITION_AND_LENGTH.size + length) if is_producing else end + _REQUEST_BYTES
