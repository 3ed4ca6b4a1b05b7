"""Takes the codec off a batch's records, for a broker: what it unpacks is bounded, whoever asks.

`max.decompressed.message.bytes` bounds each record (Kafka's newest key), and UNPACKED_BYTES_MAX all of a batch, as they
are unpacked together.  A batch without a codec is neither copied nor held to any of that.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.record.compression import Codec, Expands, decompress
from odradek.record.kernels.decode import longest
from odradek.record.record_batch import Batch

_LENGTH_BYTES_MAX = 5  # Of the varint before each record.


def unpack(batch: Batch, record_bytes_max: int, bytes_max: int = UNPACKED_BYTES_MAX) -> memoryview:
    """Returns the records of a batch without their codec.

    Raises Refused: CORRUPT_MESSAGE for what can't be unpacked, INVALID_RECORD for a record larger than
    record_bytes_max, or for more than bytes_max in all.
    """
    codec = batch.codec
    if codec is Codec.NONE:
        return batch.payload
    if not batch.records_count:  # What compaction leaves to keep a producer's last sequence.
        return memoryview(b"")
    room = max(batch.records_count * (record_bytes_max + _LENGTH_BYTES_MAX), 1)
    try:
        payload = decompress(codec, batch.payload, min(bytes_max, room))
    except Expands as expands:
        raise _too_large(record_bytes_max) if room < bytes_max else _invalid(expands.detail) from None
    if len(payload) > record_bytes_max and longest(payload) > record_bytes_max:
        raise _too_large(record_bytes_max)
    return payload


def _too_large(record_bytes_max: int) -> Refused:
    return _invalid(f"a record unpacks to more than max.decompressed.message.bytes, which is {record_bytes_max}")


def _invalid(detail: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD, detail)
