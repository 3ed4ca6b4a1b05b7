"""Chunks: one byte shows whether a run of plain batches may follow, and only then compaction requests a run."""

from __future__ import annotations

from typing import Any

import pytest
from simdisk import SimDisk

from odradek.base.units import NO_EPOCH, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.compaction import cleaner
from odradek.log.compaction.cleanable import cleanable
from odradek.log.compaction.cleaner import Cleaning, Options
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.segment.chunks import Chunk
from odradek.record.batch_filter import RetentionRules
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.kernels.compact import OffsetMap
from odradek.record.kernels.compact_runs import KeyRuns
from odradek.record.record_batch import Batch

NOW = TimestampMs(1_000)
PRODUCER: dict[str, Any] = {"producer_id": ProducerId(1), "producer_epoch": ProducerEpoch(0), "base_sequence": 0}


def batch(key: bytes = b"k", codec: Codec = Codec.NONE, **more: Any) -> bytes:
    return bytes(encode_batch([(key, b"v", (), NOW)], codec, **more))


def chunk_of(data: bytes) -> Chunk:
    return Chunk("0.log", 0, memoryview(data), Offset(0), Offset(100), is_last=True)


MARKER = bytes(end_marker_batch(EndMarker(True, 0), ProducerId(1), ProducerEpoch(0), NOW).view)
KINDS = {
    "plain": (batch(), True),
    "of an idempotent producer": (batch(**PRODUCER), True),
    "compressed": (batch(codec=Codec.LZ4), False),
    "transactional": (batch(is_transactional=True, **PRODUCER), False),
    "a marker": (MARKER, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_chunk_detects_plain_batches(kind: str) -> None:
    data, is_plain = KINDS[kind]
    assert chunk_of(data).has_plain_next == is_plain
    runs = KeyRuns(OffsetMap(24 * 100), 0, 100)
    runs.begin_chunk(memoryview(data), 100)
    assert (runs.run(0, 0, 100) > 0) == is_plain, "as the kernel does"


@pytest.mark.parametrize("size", [0, 1, 22])
def test_end_of_a_chunk_has_no_next_batch(size: int) -> None:
    assert not chunk_of(batch()[:size]).has_plain_next


class Counted:
    """Runs that count their requests."""

    runs = 0

    def __init__(self, *arguments: Any) -> None:
        self._runs = KeyRuns(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    def run(self, *arguments: int) -> int:
        Counted.runs += 1
        return int(self._runs.run(*arguments))


def test_no_run_is_requested_without_plain_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request takes about a microsecond, a sixth of the time for a small transactional batch."""
    monkeypatch.setattr(cleaner, "KeyRuns", Counted)
    monkeypatch.setattr(Counted, "runs", 0)
    disk = SimDisk()
    disk.make_directory("t-0")
    log = Log.open(disk, "t-0", LogConfig(cleanup_compact=True), NOW)
    for number in range(50):
        codec = Codec.NONE if number == 25 else Codec.LZ4
        log.append(Batch.checked(memoryview(bytearray(batch(b"k%d" % (number % 7), codec)))), NO_EPOCH, NOW)
    log.roll(NOW)
    flush_now(log, NOW)
    rules = RetentionRules(NOW, NOW, 1 << 20)
    cleaning = Cleaning(log, cleanable(log, NOW, log.end_offset), Options(1 << 20, 1 << 18, 0.9, bytes(16), rules))
    cleaning.build_map(lambda _: None)
    assert cleaning.end == 50
    assert Counted.runs == 1, "for the one that is not compressed"
