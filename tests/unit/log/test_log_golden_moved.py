"""Data directories of Apache Kafka 3.9.1 and 0.11.0.3, opened as a whole (tests/interop/capture_golden_moved.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import RECOVERY_POINTS
from odradek.log.log.log import Log
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.producers.snapshots import decode_snapshot
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from support.golden import Record, found_in, unpack

OLD, NEWER = "0.11.0.3", "3.9.1"
VERSIONS = (OLD, NEWER)
NOW = TimestampMs(1_800_000_000_000)
CREATE_TIME, LOG_APPEND_TIME = 1, 2  # Timestamp types, as named by clients.
COMPACTED = {"compacted", "compacted_transactions", "both"}
STATE = {"__consumer_offsets", "__transaction_state"}


def config_of(topic: TopicName) -> LogConfig:
    if topic in COMPACTED | STATE:
        return LogConfig(cleanup_compact=True, cleanup_delete=False)
    # The configuration of the topic; its indexes depend on it.
    return LogConfig(index_interval_bytes=200) if topic == "segments" else LogConfig()


def open_directory(data: Path) -> LogDirectory:
    directory = open_log_directory(
        RealDisk(), str(data), NOW, broker_id=BrokerId(1), cluster_id=None, config_of=config_of
    )
    assert (directory.offline, directory.problems) == ({}, [])
    return directory


def log_of(directory: LogDirectory, topic: str) -> Log:
    return directory.logs[TopicPartition(TopicName(topic), 0)]


def batches_from(log: Log, offset: Offset) -> Iterator[Batch]:
    while offset < log.end_offset:
        batches = list(iter_batches(log.read(offset, 1000, log.end_offset).read()))
        yield from batches
        offset = batches[-1].next_offset


def records_from(log: Log, offset: Offset) -> Iterator[Record]:
    for batch in batches_from(log, offset):
        kind = LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME
        for record in decode(batch) if not batch.is_control else ():
            if record.offset >= offset:
                yield record.offset, kind, *record[1:4], tuple(record.headers)


@pytest.mark.parametrize("lost", ["nothing", "the marker", "checkpoints too", "indexes and snapshots too"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_is_read(tmp_path: Path, version: str, lost: str) -> None:
    data, found = unpack(version, tmp_path), found_in(version)
    if lost != "nothing":
        (data / ".kafka_cleanshutdown").unlink()
    if "too" in lost:
        (data / RECOVERY_POINTS).unlink()
    if "indexes" in lost:
        for path in (*data.glob("*/*index"), *data.glob("*/*.snapshot")):
            path.unlink()
    for _ in range(2):
        directory = open_directory(data)
        logs = {str(name): log for name, log in directory.logs.items() if name.topic not in STATE}
        assert {name: list(records_from(log, log.start_offset)) for name, log in logs.items()} == found.records
        assert {name: log.start_offset for name, log in logs.items()} == found.starts
        assert not directory.close(NOW)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_offset_is_read_from_its_next_record(tmp_path: Path, version: str) -> None:
    """With Kafka's own indexes, through the gaps of compaction."""
    directory, found = open_directory(unpack(version, tmp_path)), found_in(version)
    for topic in (*COMPACTED, "segments", "cut"):
        log, records = log_of(directory, topic), found.records[f"{topic}-0"]
        for offset in range(log.start_offset, records[-1][0] + 1):
            expected = next(record for record in records if record[0] >= offset)
            assert next(records_from(log, Offset(offset))) == expected
    directory.close(NOW)


@pytest.mark.parametrize("version", VERSIONS)
def test_timestamp_lookups_match_kafka(tmp_path: Path, version: str) -> None:
    directory, found = open_directory(unpack(version, tmp_path)), found_in(version)
    for topic in ("segments", "cut", "every.codec", "stamped"):
        log, records = log_of(directory, topic), found.records[f"{topic}-0"]
        for timestamp in {record[2] + delta for record in records for delta in (-1, 0, 1)}:
            first = next((record for record in records if record[2] >= timestamp), None)
            entry = lookup_timestamp(log, TimestampMs(timestamp))
            assert (entry[:2] if entry else None) == ((first[2], first[0]) if first else None)
    directory.close(NOW)


@pytest.mark.parametrize("has_snapshots", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_producers_and_transactions_match_kafkas(tmp_path: Path, version: str, has_snapshots: bool) -> None:
    """Idempotent producers, aborted and open transactions."""
    data = unpack(version, tmp_path)
    newest = {path.parent.name: decode_snapshot(path.read_bytes()) for path in sorted(data.glob("*/*.snapshot"))}
    if not has_snapshots:
        for path in (*data.glob("*/*.snapshot"), data / ".kafka_cleanshutdown", data / RECOVERY_POINTS):
            path.unlink()
    directory = open_directory(data)
    for name, log in directory.logs.items():
        if name.topic not in COMPACTED | STATE:
            assert states(log.producers) == states(newest.get(str(name), []))
    (numbered,) = log_of(directory, "segments").producers
    assert (numbered.last_sequence, numbered.epoch, numbered.first_offset) == (59, 0, -1)
    log = log_of(directory, "transactions")
    assert sorted(one.first_offset for one in log.producers) == [-1, 12]
    (aborted,) = log.aborted(Offset(0), log.read(Offset(0), 150, log.end_offset), log.end_offset)
    assert (aborted.first_offset, aborted.last_offset) == (0, 1)
    directory.close(NOW)


def states(producers: Iterable[ProducerStateEntry]) -> list[tuple[int, int, int, int]]:
    return sorted((one.id, one.epoch, one.last_sequence, one.first_offset) for one in producers)


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_and_identity_match_kafka(tmp_path: Path, version: str) -> None:
    data = unpack(version, tmp_path)
    directory = open_directory(data)
    assert log_of(directory, "segments").epochs.entries == [(LeaderEpoch(0), 0)]
    assert log_of(directory, "cut").epochs.entries[0][0] == 0
    has_ids = [log.topic_id is not None for log in directory.logs.values()]
    assert all(has_ids) if version == NEWER else not any(has_ids)
    assert (directory.cluster_id is None) == (version == OLD), "it has been in the file since 2.4"
    directory.close(NOW)


def test_rebuilt_indexes_have_the_same_bytes(tmp_path: Path) -> None:
    """Not those of 0.11, which names a batch by its first offset; not of what is compacted, where Kafka counts anew."""
    data = unpack(NEWER, tmp_path)
    paths = [path for path in sorted(data.glob("*/*index")) if not path.parent.name.startswith((*COMPACTED, *STATE))]
    before = {path: path.read_bytes() for path in paths}
    assert sum(map(bool, before.values())) > 5
    for path in paths:
        if path.suffix != ".txnindex":
            path.unlink()
    open_directory(data).close(NOW)
    assert {path: path.read_bytes() for path in paths} == before
