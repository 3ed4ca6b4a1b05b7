"""Decompression of a batch's records in a broker, with bounds for every caller.

`max.decompressed.message.bytes` (Kafka's newest key) bounds each record. UNPACKED_BYTES_MAX bounds the whole batch,
because its records are unpacked together. A batch without a codec is neither copied nor bounded.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.record.compression import Codec, Expands, decompress
from odradek.record.kernels.decode import longest
from odradek.record.record_batch import Batch

_LENGTH_BYTES_MAX = 5  # Size of the varint before each record.


def unpack(batch: Batch, record_bytes_max: int, bytes_max: int = UNPACKED_BYTES_MAX) -> memoryview:
    """Return the decompressed records of a batch.

    Raise Refused: CORRUPT_MESSAGE if the records can't be unpacked; INVALID_RECORD for a record larger than
    record_bytes_max, or, as Expands, for more than bytes_max in total.
    """
    codec = batch.codec
    if codec is Codec.NONE:
        return batch.payload
    if not batch.records_count:  # Compaction leaves an empty batch to preserve a producer's last sequence.
        return memoryview(b"")
    room = max(batch.records_count * (record_bytes_max + _LENGTH_BYTES_MAX), 1)
    try:
        payload = decompress(codec, batch.payload, min(bytes_max, room))
    except Expands as expands:
        if room < bytes_max:
            raise _too_large(record_bytes_max) from None
        raise Expands(ErrorCode.INVALID_RECORD, expands.detail) from None
    if len(payload) > record_bytes_max and longest(payload) > record_bytes_max:
        raise _too_large(record_bytes_max)
    return payload


def _too_large(record_bytes_max: int) -> Refused:
    text = f"a record decompresses to more than max.decompressed.message.bytes ({record_bytes_max})"
    return Refused(ErrorCode.INVALID_RECORD, text)
