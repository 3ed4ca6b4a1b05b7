"""Producer snapshots: Kafka's bytes, fallback without a valid one, and retention of snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simdisk import SimDisk

from odradek.base.units import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.producers.snapshots import (
    BadSnapshot,
    Snapshots,
    decode_snapshot,
    encode_snapshot,
)
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch

GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.4.0" / "data"
DIRECTORY = "/data/t-0"
T = TimestampMs(1_700_000_000_000)
CONFIG = LogConfig(segment_bytes=500)

INT64 = st.integers(0, INT64_MAX)
SENT = st.tuples(st.integers(-1, INT32_MAX), INT64, st.integers(0, INT32_MAX))
PRODUCERS = st.lists(
    st.builds(
        lambda key, epoch, before, sent, time, coordinator, first: ProducerStateEntry(
            ProducerId(key),
            ProducerEpoch(epoch),
            () if sent is None else (*before, (*sent, time)),
            coordinator,
            Offset(first),
            TimestampMs(time),
        ),
        INT64,
        st.integers(-1, INT16_MAX),
        st.lists(st.tuples(st.integers(-1, INT32_MAX), INT64, st.integers(0, INT32_MAX), INT64), max_size=4),
        st.none() | SENT,
        st.integers(-1, INT64_MAX),
        st.integers(-1, INT32_MAX),
        st.integers(-1, INT64_MAX),
    ),
    max_size=5,
    unique_by=lambda producer: producer.id,
)


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/*.snapshot")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_snapshots_have_kafkas_bytes(path: Path) -> None:
    raw = path.read_bytes()
    assert encode_snapshot(decode_snapshot(raw)) == raw


def test_transaction_in_kafkas_snapshot_is_read() -> None:
    (open_one,) = decode_snapshot((GOLDEN / "control-0" / "00000000000000000001.snapshot").read_bytes())
    assert (open_one.first_offset, open_one.coordinator_epoch, open_one.last_sequence) == (0, -1, 0)
    (ended,) = decode_snapshot((GOLDEN / "control-0" / "00000000000000000006.snapshot").read_bytes())
    assert ended.batches == ((2, 4, 0, ended.last_timestamp),)
    assert (ended.first_offset, ended.coordinator_epoch) == (-1, 0)


@given(PRODUCERS)
def test_snapshot_round_trip(producers: list[ProducerStateEntry]) -> None:
    raw = encode_snapshot(producers)
    assert len(raw) == 10 + 46 * sum(max(1, len(producer.batches)) for producer in producers)
    assert decode_snapshot(raw) == producers


@given(PRODUCERS, st.integers(0, 300), st.integers(1, 255), st.integers(-60, 60))
def test_damaged_snapshot_is_refused(producers: list[ProducerStateEntry], place: int, change: int, grown: int) -> None:
    raw = bytearray(encode_snapshot(producers))
    raw[place % len(raw)] ^= change
    if grown < 0:
        del raw[grown:]
    raw += bytes(max(grown, 0))
    with pytest.raises(ValueError):
        decode_snapshot(bytes(raw))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        decode_snapshot(raw)


def there(disk: SimDisk) -> Snapshots:
    names = [entry.name for entry in disk.entries(DIRECTORY)]
    return Snapshots(disk, DIRECTORY, [Offset(int(name[:20])) for name in names if name.endswith(".snapshot")])


def test_missing_snapshot_is_bad() -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    snapshots = Snapshots(disk, DIRECTORY, [Offset(7)])
    with pytest.raises(BadSnapshot, match="does not exist"):
        snapshots.read(Offset(7))
    disk.create(snapshots.path(Offset(7)))
    with pytest.raises(BadSnapshot, match="0 bytes are too short"):
        snapshots.read(Offset(7))


def test_newest_valid_snapshot_is_used() -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    snapshots = Snapshots(disk, DIRECTORY, [])
    assert snapshots.newest(Offset(99)) == ([], -1)
    for offset in (9, 3, 6):
        snapshots.write(Offset(offset), [ProducerStateEntry(ProducerId(offset))])
    assert snapshots.offsets == [3, 6, 9]
    assert snapshots.newest(Offset(8)) == ([ProducerStateEntry(ProducerId(6))], 6)
    disk.create(snapshots.path(Offset(6)))
    assert snapshots.newest(Offset(8)) == ([ProducerStateEntry(ProducerId(3))], 3)
    assert snapshots.offsets == [3, 9] == there(disk).offsets


@pytest.mark.parametrize(
    ("offsets", "bases", "end", "removed"),
    [
        ([], {0}, 9, []),
        ([9], {0}, 9, []),
        ([5], {0}, 9, []),  # Of a clean stop before the last.
        ([3, 5], {0}, 9, [3]),
        ([5, 10], {0}, 9, [10]),
        ([4, 5, 6], {0, 5}, 9, [4]),
        ([4, 5], {0, 5}, 9, [4]),
        ([5, 9], {0, 5, 9}, 9, []),
    ],
)
def test_snapshots_of_segments_and_the_newest_are_kept(
    offsets: list[int], bases: set[int], end: int, removed: list[int]
) -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    snapshots = Snapshots(disk, DIRECTORY, [])
    for offset in offsets:
        snapshots.write(Offset(offset), [])
    snapshots.delete_strays({Offset(each) for each in bases}, Offset(end))
    assert snapshots.offsets == [offset for offset in offsets if offset not in removed] == there(disk).offsets


# ---------------------------------------------------------------- in a log


def write(log: Log, sequence: int, *, producer: int = 1, transactional: bool = False) -> None:
    raw = encode_batch(
        [(None, b"v" * 60, (), T)],
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=transactional,
    )
    log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), T)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk


def create_log(disk: SimDisk) -> Log:
    log = Log.open(disk, DIRECTORY, CONFIG, T)
    for sequence in range(20):
        write(log, sequence)
        if sequence % 6 == 0:
            write(log, sequence // 6, producer=2, transactional=True)
        if sequence % 6 == 3:
            marker = EndMarker(False, 0)
            log.append(end_marker_batch(marker, ProducerId(2), ProducerEpoch(0), T), LeaderEpoch(0), T)
    assert len(log.segments) > 4
    return log


def recoverable_state(log: Log) -> dict[int, tuple[object, ...]]:
    """Return the producer state on which all ways of recovery must agree."""
    return {
        one.id: (one.epoch, one.batches, one.coordinator_epoch, one.first_offset, one.last_timestamp)
        for one in log.producers
    }


def test_batches_that_may_be_resent_are_known_after_a_restart(disk: SimDisk) -> None:
    """The producer got no response: five batches are in the log, and the broker restarted cleanly."""
    log = Log.open(disk, DIRECTORY, CONFIG, T)
    for sequence in range(6):
        write(log, sequence)
    close_log(log, T)
    again = Log.open(disk, DIRECTORY, CONFIG, T, clean_shutdown=True)
    known = again.producers.get(ProducerId(1))
    assert known is not None
    assert [sent[:2] for sent in known.batches] == [(one, one) for one in (1, 2, 3, 4, 5)]


def test_snapshot_lists_the_newest_batch_last() -> None:
    """A reader with one entry per producer keeps the last one."""
    entry = ProducerStateEntry(ProducerId(1), ProducerEpoch(0), ((4, 9, 0, T), (7, 12, 2, T + 1)), -1, Offset(-1), T)
    raw = encode_snapshot([entry])
    assert raw[10:56] != raw[56:]
    assert encode_snapshot([entry._replace(batches=entry.batches[-1:])])[10:] == raw[56:]


def test_each_roll_and_clean_stop_writes_a_snapshot(disk: SimDisk) -> None:
    log = create_log(disk)
    bases = [segment.base_offset for segment in log.segments]
    assert there(disk).offsets == bases[1:]
    close_log(log, T)
    assert there(disk).offsets == [*bases[1:], log.end_offset]


def test_log_without_idempotent_producers_has_no_snapshot(disk: SimDisk) -> None:
    log = Log.open(disk, DIRECTORY, CONFIG, T)
    log.append(Batch.checked(memoryview(encode_batch([(None, b"v", (), T)]))), LeaderEpoch(0), T)
    close_log(log, T)
    assert there(disk).offsets == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", ["none", "the last", "all but the first", "all", "all damaged"])
def test_older_snapshot_restores_the_state(disk: SimDisk, clean: bool, lost: str) -> None:
    log = create_log(disk)
    expected = recoverable_state(log)
    if clean:
        close_log(log, T)
    all_offsets = there(disk).offsets
    lost_offsets = {"none": [], "the last": all_offsets[-1:], "all but the first": all_offsets[1:]}.get(
        lost, all_offsets
    )
    for offset in lost_offsets:
        path = f"{DIRECTORY}/{offset:020d}.snapshot"
        if lost == "all damaged":
            disk.open(path).write(3, b"\xee")
        else:
            disk.unlink(path)
    again = Log.open(
        disk.kill(), DIRECTORY, CONFIG, T, recovery_point=log.end_offset if clean else Offset(0), clean_shutdown=clean
    )
    if clean and lost == "all":
        assert len(again.producers) == 0  # As if written by a broker that knew no producers, as in Kafka.
    else:
        assert recoverable_state(again) == expected


def test_recovery_rewrites_missing_snapshots(disk: SimDisk) -> None:
    log = create_log(disk)
    before = {offset: there(disk).read(offset) for offset in there(disk).offsets}
    for offset in before:
        disk.unlink(f"{DIRECTORY}/{offset:020d}.snapshot")
    Log.open(disk, DIRECTORY, CONFIG, T)
    assert {offset: there(disk).read(offset) for offset in there(disk).offsets} == before
    for offset in before:
        disk.unlink(f"{DIRECTORY}/{offset:020d}.snapshot")
    Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=log.end_offset)
    assert {offset: there(disk).read(offset) for offset in there(disk).offsets} == before


def test_wrong_snapshot_beyond_the_recovery_point_is_ignored(disk: SimDisk) -> None:
    log = create_log(disk)
    expected = recoverable_state(log)
    for segment in log.segments[2:]:
        there(disk).write(segment.base_offset, [ProducerStateEntry(ProducerId(666))])
    again = Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=Offset(log.segments[1].base_offset + 1))
    assert recoverable_state(again) == expected


def test_truncation_restores_the_earlier_producer_state(disk: SimDisk) -> None:
    log = create_log(disk)
    plain = SimDisk()
    plain.make_directory(DIRECTORY)
    for end in range(log.end_offset, 0, -1):
        truncate_to(log, Offset(end), T)
        for entry in disk.entries(DIRECTORY):
            plain.create(f"{DIRECTORY}/{entry.name}").write(0, disk.open(f"{DIRECTORY}/{entry.name}").pread(0, 9999))
        assert max(there(disk).offsets, default=0) <= end
        for offset in there(plain).offsets:
            plain.unlink(f"{DIRECTORY}/{offset:020d}.snapshot")
        for name in [entry.name for entry in plain.entries(DIRECTORY)]:
            if name not in {entry.name for entry in disk.entries(DIRECTORY)}:
                plain.unlink(f"{DIRECTORY}/{name}")
        found_out = Log.open(plain, DIRECTORY, CONFIG, T)
        assert found_out.end_offset == log.end_offset
        assert recoverable_state(log) == recoverable_state(found_out)


def test_truncation_makes_no_open_transaction_stable(disk: SimDisk) -> None:
    """Its marker is below the truncation point and above the high watermark: the snapshot after it shows no end."""
    log = Log.open(disk, DIRECTORY, CONFIG, T)
    write(log, 0, producer=2, transactional=True)
    log.append(end_marker_batch(EndMarker(False, 0), ProducerId(2), ProducerEpoch(0), T), LeaderEpoch(0), T)
    log.roll(T)
    write(log, 0)
    write(log, 1)
    high_watermark = Offset(1)
    for end in (3, 2, 1):
        log.producers.high_watermark_advanced(high_watermark)
        assert log.producers.first_unstable == 0
        assert truncate_to(log, Offset(end), T)
        assert log.producers.first_unstable == 0
    assert [one.id for one in log.producers.open_transactions()] == [2], "the marker is gone, too"


def test_reset_log_has_no_producers(disk: SimDisk) -> None:
    log = create_log(disk)
    close_log(log, T)
    again = Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=log.end_offset, clean_shutdown=True)
    truncate_fully(again, Offset(1000), T)
    assert len(again.producers) == 0
    assert there(disk).offsets == []
    assert len(Log.open(disk.kill(), DIRECTORY, CONFIG, T, start_offset=Offset(1000)).producers) == 0


def test_retention_keeps_the_snapshot_of_the_new_first_segment(disk: SimDisk) -> None:
    log = create_log(disk)
    expected = recoverable_state(log)
    start = log.segments[3].base_offset
    advance_start(log, start)
    disk.unlink(f"{DIRECTORY}/{start:020d}.snapshot")
    assert delete_old_segments(log, T, log.end_offset) == 3
    log.reaper.reap(TimestampMs(T + 10**9))
    assert there(disk).offsets[0] == start
    assert recoverable_state(Log.open(disk.kill(), DIRECTORY, CONFIG, T)) == expected


def test_snapshot_emptied_by_a_power_failure_is_ignored(disk: SimDisk) -> None:
    log = create_log(disk)
    expected = recoverable_state(log)
    log.roll(T)
    path = f"{DIRECTORY}/{log.end_offset:020d}.snapshot"
    disk.unlink(path)
    disk.create(path)
    assert recoverable_state(Log.open(disk.kill(), DIRECTORY, CONFIG, T)) == expected
