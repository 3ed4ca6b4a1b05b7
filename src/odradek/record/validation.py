"""Checks a producer's records against the header of their batch: the one check that Batch.checked leaves out.

Kafka reads every record of every batch it appends.  Here that is the caller's choice: compiled, it costs about as much
as the checksum where there is no codec, and a decompression where there is one.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import BATCH_DECOMPRESSED_BYTES_MAX
from odradek.record.batch import Batch
from odradek.record.compression import decompress
from odradek.record.kernels.decode import validate


def check_records(batch: Batch, decompressed_bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX) -> None:
    """Raises Refused unless there are exactly records_count well-formed records with offset deltas from 0 up.

    The code is CORRUPT_MESSAGE for what does not decompress, INVALID_RECORD for the rest (Kafka 4.3.0 answers
    INVALID_RECORD for a wrong count, UNKNOWN_SERVER_ERROR for garbage, and lets deltas out of order pass).
    """
    payload = decompress(batch.codec, batch.payload, decompressed_bytes_max)
    bad = validate(payload, batch.records_count)
    if bad == batch.records_count:
        raise Refused(ErrorCode.INVALID_RECORD, f"bytes are left behind the last of {batch.records_count} records")
    if bad >= 0:
        raise Refused(ErrorCode.INVALID_RECORD, f"record {bad} of {batch.records_count} is malformed")
