"""A data directory of Apache Kafka 4.4.0, opened byte for byte (tests/interop/capture_golden_logs.py)."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.producers.snapshots import decode_snapshot
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-4.4.0"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NOW = TimestampMs(1_700_000_100_000)
INTERNAL = {"__consumer_offsets", "__transaction_state"}
# The configuration of the topics; the indexes depend on it.
CONFIGS = {"rolled": LogConfig(index_interval_bytes=100, segment_index_bytes=1024)}


class Expected(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def raw(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def expected_records() -> dict[str, list[Expected]]:
    return {
        topic: [
            Expected(
                each["offset"],
                each["timestamp"],
                raw(each["key"]),
                raw(each["value"]),
                tuple((name, raw(value)) for name, value in each["headers"]),
            )
            for each in records
        ]
        for topic, records in json.loads((GOLDEN / "records.json").read_text()).items()
    }


EXPECTED = expected_records()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "data", tmp_path / "data"))


def open_directory(data: Path) -> LogDirectory:
    return open_log_directory(
        RealDisk(),
        str(data),
        NOW,
        broker_id=BrokerId(1),
        cluster_id=CLUSTER_ID,
        config_of=lambda topic: CONFIGS.get(topic, LogConfig()),
    )


def batches_of(log: Log) -> list[Batch]:
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found += iter_batches(log.read(offset, 1000, log.end_offset).read())
        offset = found[-1].next_offset
    return found


def records_of(log: Log) -> list[Expected]:
    batches = [batch for batch in batches_of(log) if not batch.is_control]
    return [Expected(*record) for batch in batches for record in decode(batch) if record.offset >= log.start_offset]


def index_bytes(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.glob("*/*index"))}


@pytest.mark.parametrize("clean", [True, False])
def test_every_record_is_read(data: Path, clean: bool) -> None:
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    directory = open_directory(data)
    assert directory.clean_shutdown == clean
    assert not directory.offline
    assert not directory.problems
    assert {str(name.topic) for name in directory.logs} == set(EXPECTED)
    for name, log in directory.logs.items():
        assert records_of(log) == EXPECTED[name.topic]
    assert not directory.close(NOW)


def test_identity_offsets_and_epochs_match_kafka(data: Path) -> None:
    directory = open_directory(data)
    logs = {str(name.topic): log for name, log in directory.logs.items()}
    assert directory.cluster_id == CLUSTER_ID
    ends = {topic: log.end_offset for topic, log in logs.items()}
    assert ends == {"codecs": 29, "rolled": 24, "stamped": 3, "control": 6, "cut": 6}
    assert {topic: log.start_offset for topic, log in logs.items()} == dict.fromkeys(logs, 0) | {"cut": 4}
    assert all(log.recovery_point == log.end_offset for log in logs.values())
    high_watermarks = {n.topic: o for n, o in directory.checkpoints.high_watermarks.items() if n.topic not in INTERNAL}
    assert high_watermarks == ends
    assert all(log.topic_id for log in logs.values())
    assert logs["codecs"].epochs.entries == [(0, 0)]
    assert logs["cut"].epochs.entries == [(0, 4)]
    assert logs["rolled"].epochs.end_offset_for(LeaderEpoch(0), logs["rolled"].end_offset) == (0, 24)
    directory.close(NOW)


def test_timestamp_lookups_match_kafka(data: Path) -> None:
    directory = open_directory(data)
    for name, log in directory.logs.items():
        records = EXPECTED[name.topic]
        for timestamp in {record.timestamp + delta for record in records for delta in (-1, 0, 1)}:
            found = lookup_timestamp(log, TimestampMs(timestamp))
            if name.topic == "control":  # Markers have timestamps too, and are not in the list of records.
                assert found is not None
                continue
            first = next((r for r in records if r.timestamp >= timestamp), None)
            assert (found[:2] if found else None) == ((first.timestamp, first.offset) if first else None)
    directory.close(NOW)


def test_rebuilt_indexes_have_the_same_bytes(data: Path) -> None:
    before = index_bytes(data)
    assert any(before[name] for name in before if name.startswith("rolled-0"))
    for path in data.glob("*/*index"):
        if path.suffix in (".index", ".timeindex"):
            path.unlink()
    open_directory(data).close(NOW)
    assert index_bytes(data) == before


def test_recovery_writes_the_same_indexes(data: Path) -> None:
    before = index_bytes(data)
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    open_directory(data).close(NOW)
    below_the_start = tuple(f"cut-0/{base:020d}." for base in (0, 2))  # Kafka deletes them at the next retention.
    assert index_bytes(data) == {name: raw for name, raw in before.items() if not name.startswith(below_the_start)}


@pytest.mark.parametrize("lost", ["nothing", "the marker", "snapshots too"])
def test_producers_match_kafkas(data: Path, lost: str) -> None:
    snapshots = {path: path.read_bytes() for path in sorted(data.glob("*/*.snapshot"))}
    newest = {path.parent.name: decode_snapshot(raw) for path, raw in snapshots.items()}
    if lost != "nothing":
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
    if lost == "snapshots too":
        for path in snapshots:
            path.unlink()
    directory = open_directory(data)
    for name, log in directory.logs.items():
        found = [one._replace(batches=one.batches[-1:]) for one in log.producers]
        expected = [one._replace(batches=tuple(sent[:3] for sent in one.batches)) for one in newest[str(name)]]
        assert [one._replace(batches=tuple(sent[:3] for sent in one.batches)) for one in found] == expected
    control = directory.logs[TopicPartition(TopicName("control"), 0)]
    records = control.read(Offset(2), 1000, control.end_offset)
    (aborted,) = control.aborted(Offset(2), records, control.end_offset)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (0, 2, 3)
    directory.close(NOW)
    again = {path: path.read_bytes() for path in sorted(data.glob("*/*.snapshot"))}
    assert {path: decode_snapshot(raw) for path, raw in snapshots.items() if path in again} == {
        path: [one._replace(batches=one.batches[-1:]) for one in decode_snapshot(raw)] for path, raw in again.items()
    }
    assert {path.parent.name for path in again} >= {
        path.parent.name for path in snapshots if decode_snapshot(snapshots[path])
    }


def test_foreign_files_are_kept(data: Path) -> None:
    """An open and a close may rewrite only the checkpoints and the marker, with the same content."""
    kept = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and "checkpoint" not in path.name}
    del kept[data / ".kafka_cleanshutdown"]
    (data / "__cluster_metadata-0").mkdir()
    open_directory(data).close(NOW)
    assert {path: path.read_bytes() for path in kept} == kept
    assert (data / ".kafka_cleanshutdown").exists()
    assert (data / "__cluster_metadata-0").exists()
    again = open_directory(data)
    assert again.clean_shutdown
    assert again.logs[TopicPartition(TopicName("cut"), 0)].start_offset == Offset(4)
    again.close(NOW)
