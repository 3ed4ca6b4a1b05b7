"""The control batch that ends a transaction in one partition: one record from its coordinator.

key    │ i16 version = 0 │ i16 type: 0 abort, 1 commit │
value  │ i16 version = 0 │ i32 coordinator epoch       │

Types above 1 belong to KRaft and end no transaction. Compaction may remove the record and keep the batch.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from odradek.base.errors import Refused
from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.record.records import iter_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1


class EndMarker(NamedTuple):
    """The outcome of a transaction, and the epoch of the coordinator that wrote the marker."""

    is_commit: bool
    coordinator_epoch: int


def end_marker_batch(
    marker: EndMarker, producer_id: ProducerId, producer_epoch: ProducerEpoch, now: TimestampMs
) -> Batch:
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    raw = encode_batch(
        [(key, value, (), now)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return Batch.trusted(memoryview(raw))


def end_marker(batch: Batch) -> EndMarker | None:
    """Read the marker of a control batch; return None if it ends no transaction or is unreadable."""
    try:
        record = next(iter_records(batch), None)
    except Refused:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndMarker(kind == _COMMIT, coordinator_epoch)
