"""Cleaned logs read by aiokafka's reader, which has codecs and checksums of its own."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from simdisk import SimDisk

from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.record.compression import Codec
from support.cleaning import Writer, compact
from support.logs import T0

DIRECTORY = "/d/t-0"
ABORT = b"\x00\x00\x00\x00"  # The key of such a marker: version 0, type 0.

memory_records = pytest.importorskip("aiokafka.record.memory_records")


class Read(NamedTuple):
    """A record as aiokafka's reader returns it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def batches(log: Log) -> Iterator[Any]:
    for segment in log.segments:
        records = memory_records.MemoryRecords(segment.file.pread(0, segment.size))
        while records.has_next():
            yield records.next_batch()


def read(log: Log) -> tuple[list[Read], list[Read]]:
    """Return all records, and the committed ones."""
    every: list[Read] = []
    committed: dict[int, Read] = {}
    open_transactions: dict[int, list[int]] = {}  # The offsets of a producer's transaction.
    for batch in batches(log):
        assert batch.validate_crc()
        records = [Read(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch]
        if batch.is_control_batch:
            for record in records:
                ended = open_transactions.pop(batch.producer_id, [])
                if record.key == ABORT:
                    for offset in ended:
                        del committed[offset]
            continue
        every += records
        committed |= {record.offset: record for record in records}
        if batch.is_transactional:
            open_transactions.setdefault(batch.producer_id, []).extend(record.offset for record in records)
    return every, list(committed.values())


def latest(records: list[Read]) -> dict[bytes | None, bytes]:
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("codec", Codec)
def test_cleaned_logs_contain_the_last_original_records(codec: Codec, seed: int) -> None:
    random = Random(f"{codec} {seed}")
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=2_000, delete_retention_ms=50 * seed)
    log = Log.open(disk, DIRECTORY, config, T0)
    writer = Writer(log, random, codecs=(codec,))
    dropped = 0
    for _ in range(3):
        writer.write(60)
        for producer in sorted(writer.open):
            writer.end(producer, commit=random.random() < 0.5)
        log.roll(writer.now)
        before, committed_before = read(log)
        cleaning = compact(log, writer.now)
        after, committed_after = read(log)
        there = {record.offset: record for record in before}
        assert all(there[record.offset] == record for record in after)
        assert latest(committed_after) == latest(committed_before)
        assert {record.offset for record in committed_after} <= {record.offset for record in committed_before}
        beneath = [record.key for record in committed_after if record.offset < cleaning.end]
        assert len(beneath) == len(set(beneath)), "the last of each key"
        dropped += len(before) - len(after)
    assert dropped > 100
