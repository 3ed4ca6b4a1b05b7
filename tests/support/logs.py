"""Batches for logs, and contents of logs."""

from __future__ import annotations

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch, iter_batches

T0 = TimestampMs(1_700_000_000_000)


def batch(*values: bytes, at: int = T0, step: int = 1) -> Batch:
    """Return a batch with these values, the first at time `at`, each following one `step` ms later."""
    raw = encode_batch([(None, value, (), at + number * step) for number, value in enumerate(values)])
    return Batch.checked(memoryview(raw))


def put(log: Log, *values: bytes, at: int = T0, epoch: int = 0) -> Batch:
    appended = batch(*values, at=at)
    log.append(appended, LeaderEpoch(epoch), TimestampMs(at))
    return appended


def stored(log: Log) -> list[tuple[int, int]]:
    """Return first and last offset of every batch, read as a consumer reads."""
    found: list[tuple[int, int]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        batches = list(iter_batches(log.read(Offset(offset), 500, log.end_offset).read()))
        if not batches:
            break
        found += [(each.base_offset, each.last_offset) for each in batches]
        offset = batches[-1].next_offset
    return found
