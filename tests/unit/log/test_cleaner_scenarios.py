"""Past bugs of Apache Kafka's log cleaner, one scenario per test, and corner cases of compaction."""

from __future__ import annotations

from random import Random

import pytest
from simdisk import SimDisk, Stopped

from odradek.base.units import INT64_MAX, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.compaction import cleaned_segments
from odradek.log.compaction.cleanable import cleanable, must_roll
from odradek.log.compaction.cleaner import Uncleanable
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.log.truncation import truncate_to
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch
from support.cleaning import batches_of, committed, compact, latest, markers_of
from support.logs import T0

DIRECTORY = "/d/t-0"
DAY = 86_400_000
EPOCH = LeaderEpoch(0)


def new_log(**changes: object) -> tuple[SimDisk, Log]:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    config = LogConfig(**{"cleanup_compact": True, "cleanup_delete": False, **changes})  # type: ignore[arg-type]
    return disk, Log.open(disk, DIRECTORY, config, T0)


def put(  # noqa: PLR0917
    log: Log,
    pairs: dict[str, str | None],
    producer: int = -1,
    sequence: int = 0,
    now: int = T0,
    codec: Codec = Codec.NONE,
    epoch: int = 0,
) -> Batch:
    """Append one batch of these keys and values; with a producer, in its transaction."""
    records = [
        (key.encode(), None if value is None else value.encode(), [("header", b"content")], now)
        for key, value in pairs.items()
    ]
    has_producer = producer >= 0
    raw = encode_batch(
        records,
        codec,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch if has_producer else -1),
        base_sequence=sequence if has_producer else -1,
        is_transactional=has_producer,
    )
    batch = Batch.checked(memoryview(raw))
    log.append(batch, EPOCH, TimestampMs(now))
    return batch


def end(log: Log, producer: int, *, commit: bool, epoch: int = 0, now: int = T0) -> None:
    marker = end_marker_batch(EndMarker(commit, 0), ProducerId(producer), ProducerEpoch(epoch), TimestampMs(now))
    log.append(marker, EPOCH, TimestampMs(now))


def values(log: Log) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in latest(committed(log)).items()}


def reopen(disk: SimDisk, log: Log) -> Log:
    again = Log.open(disk.kill(), DIRECTORY, log.config, T0, recovery_point=log.recovery_point)
    again.compaction.cleaned_to = log.compaction.cleaned_to
    return again


def without_indexes(disk: SimDisk, log: Log) -> Log:
    """Return the log as opened with only the .log files."""
    bare = SimDisk()
    bare.make_directory(DIRECTORY)
    for name, node in disk.folders[DIRECTORY].live.items():
        if name.endswith(".log") and node is not None:
            bare.create(f"{DIRECTORY}/{name}").write(0, bytes(node.live))
    return Log.open(bare, DIRECTORY, log.config, T0)


def test_s1_the_map_fills_inside_a_segment_of_aborted_transactions() -> None:
    """Batches copied without decoding keep their aborted transactions in the index (KAFKA-13727)."""
    _, log = new_log()
    for number in range(40):
        put(log, {f"k{number}": "committed", f"l{number}": "committed"})
        put(log, {f"k{number}": "aborted"}, producer=1, sequence=number)
        end(log, 1, commit=False)
    log.roll(T0)
    expected = values(log)
    for _ in range(10):
        cleaning = compact(log, T0, memory_bytes=64 * 24)  # Fewer slots than keys.
        assert values(log) == expected
        assert cleaning.end > 0
    assert log.compaction.cleaned_to == log.segments[-1].base_offset
    assert len(committed(log)) == 80


def test_s2_a_transaction_spans_two_groups() -> None:
    """Its marker stays while data is left in either (KAFKA-8351)."""
    disk, log = new_log(segment_bytes=400)
    put(log, {"a": "1"}, producer=1, sequence=0)
    for number in range(10):
        put(log, {f"filler{number}": "x" * 100})
    put(log, {"b": "1"}, producer=1, sequence=1)
    end(log, 1, commit=True)
    put(log, {"b": "2"})
    log.roll(T0)
    expected = values(log)
    for now in (T0, T0 + 2 * DAY, T0 + 4 * DAY):
        compact(log, TimestampMs(now))
        assert len(markers_of(log)) == 1, "the first batch is still there"
        assert values(log) == expected == values(without_indexes(disk, log))
        assert not without_indexes(disk, log).producers.open_transactions()


def test_s3_a_producers_last_batch_is_kept_by_its_offset() -> None:
    """Coordinators always write sequence 0, and epochs reuse numbers (KAFKA-8335, KAFKA-5490)."""
    disk, log = new_log()
    for epoch in range(3):
        put(log, {"k": str(epoch)}, producer=1, sequence=0, epoch=epoch)
        end(log, 1, commit=True, epoch=epoch)
    put(log, {"k": "last"})
    log.roll(T0)
    for now in (T0, T0 + 2 * DAY, T0 + 4 * DAY):
        compact(log, TimestampMs(now))
    kept = [batch for batch in batches_of(log) if batch.producer_id == 1 and not batch.is_control]
    assert [(batch.base_offset, batch.producer_epoch, batch.records_count) for batch in kept] == [(4, 2, 0)]
    again = without_indexes(disk, log).producers.get(ProducerId(1))
    assert again is not None
    assert (again.epoch, again.batches[-1][:2], again.first_offset) == (2, (0, 4), -1)


def test_s4_tombstones_and_markers_are_removed_after_their_horizon() -> None:
    """The first pass writes it into the header, a later one removes them; no pass postpones it (KAFKA-8522)."""
    _, log = new_log(delete_retention_ms=1000)
    put(log, {"k": "value"})
    put(log, {"k": None})
    put(log, {"t": "value"}, producer=1)
    end(log, 1, commit=True)
    put(log, {"t": "later"})
    put(log, {"t2": "value"}, producer=1, sequence=1)
    end(log, 1, commit=True)
    log.roll(T0)
    compact(log, T0)
    assert [(batch.base_offset, batch.delete_horizon) for batch in batches_of(log)] == [
        (1, T0 + 1000),
        (3, None),  # Its record still existed during the pass.
        (4, None),
        (5, None),
        (6, None),
    ]
    for now, there in ((500, {1, 3}), (999, {1, 3}), (1000, {3}), (1499, {3}), (1500, set())):
        put(log, {f"at {now}": "x"})
        log.roll(T0)
        compact(log, TimestampMs(T0 + now))
        assert {batch.base_offset for batch in batches_of(log)} & {1, 3} == there, now
    assert values(log).items() >= {"t": "later", "t2": "value"}.items()
    assert [offset for offset, _ in markers_of(log)] == [6], "its record is still there"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_trimmed", [True, False])
def test_s4_marker_is_kept_while_a_snapshot_has_its_transaction_open(commit: bool, is_trimmed: bool) -> None:
    """Otherwise a start from that snapshot would consider the transaction open forever, though it has no records."""
    disk, log = new_log(delete_retention_ms=0, segment_bytes=400)
    put(log, {"a": "in the transaction"}, producer=1)
    put(log, {"large": "x" * 200})
    log.roll(T0)
    end(log, 1, commit=commit)
    put(log, {"large too": "x" * 200})
    log.roll(T0)
    if is_trimmed:
        advance_start(log, Offset(2))
        assert delete_below_start(log, T0) == 1
        log.reaper.reap(T0)
    else:
        log.producers.expire(T0, 0)
    for number in range(3):
        put(log, {"a": f"latest {number}", f"large {number}": "x" * 200})
        log.roll(T0)
        compact(log, TimestampMs(T0 + number))
    assert 2 in [segment.base_offset for segment in log.segments]
    assert 0 not in [batch.base_offset for batch in batches_of(log)]
    again = Log.open(disk.kill(), DIRECTORY, log.config, T0, recovery_point=Offset(3), start_offset=log.start_offset)
    assert not log.producers.open_transactions()
    assert not again.producers.open_transactions()


@pytest.mark.parametrize("limit", [700, 3_000])
def test_s5_a_group_becomes_several_segments(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where offsets or positions would not fit; transactions are counted once (KAFKA-6264, KAFKA-20036)."""
    monkeypatch.setattr(cleaned_segments, "INT32_MAX", limit)
    disk, log = new_log()
    for number in range(30):
        put(log, {f"k{number}": "x" * 50}, producer=number % 2, sequence=number // 2)
        if number % 3 == 0:
            end(log, number % 2, commit=number % 2 == 0)
            put(log, {"k": str(number)})
    for producer in range(2):
        end(log, producer, commit=True)
    log.roll(T0)
    expected = values(log)
    compact(log, T0)
    assert len(log.segments) > 2
    assert all(segment.size <= limit for segment in log.segments)
    assert values(log) == expected == values(reopen(disk, log)) == values(without_indexes(disk, log))


def test_s5_distant_offsets_are_split_into_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segments, "INT32_MAX", 10_000)
    _, log = new_log()
    for number in range(3):
        batch = put_at(log, number * 9_000, f"k{number}")
        assert batch.base_offset == number * 9_000
    put_at(log, 27_000, "k0")
    log.roll(T0)
    compact(log, T0)
    assert [segment.base_offset for segment in log.segments] == [0, 18_000, 27_001]
    assert [one.offset for one in committed(log)] == [9_000, 18_000, 27_000]


def test_s5_segment_of_distant_offsets_stays_if_none_near_its_start_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segments, "INT32_MAX", 10_000)
    _, log = new_log()
    for offset, key in ((0, "k0"), (18_000, "k1"), (27_000, "k0")):
        put_at(log, offset, key)
    log.roll(T0)
    compact(log, T0)
    assert [one.offset for one in committed(log)] == [0, 18_000, 27_000]


def put_at(log: Log, offset: int, key: str) -> Batch:
    """Append as a follower does, after a gap."""
    batch = Batch.checked(memoryview(encode_batch([(key.encode(), b"value", (), T0)])))
    batch.stamp(Offset(offset), EPOCH)
    log.append_as_follower([batch], T0)
    return batch


@pytest.mark.parametrize("codec", list(Codec))
def test_s6_cleaner_handles_data_beyond_its_buffers(codec: Codec) -> None:
    """More keys than the map, batches beyond its buffer, whole buffers dropped (KAFKA-3587, 3894, 4019, 6834, 5316)."""
    _, log = new_log(max_message_bytes=1 << 20)
    random = Random(1)
    for number in range(3):
        put(log, {f"{number} {n}": random.randbytes(40).hex() for n in range(300)}, codec=codec)
        put(log, {"large": random.randbytes(20_000).hex() + str(number)}, codec=codec)
    log.roll(T0)
    expected = values(log)
    log.config = LogConfig(cleanup_compact=True, cleanup_delete=False, max_message_bytes=100, segment_bytes=1_000)
    passes = 0
    while log.compaction.cleaned_to < log.segments[-1].base_offset:
        compact(log, T0, memory_bytes=64 * 24, io_bytes=100)
        passes += 1
    assert passes > 3
    assert values(log) == expected
    assert len(committed(log)) == 901


def test_s6_tiny_map_still_makes_progress() -> None:
    """One step of a pass covers as much as fits, even a part of a batch."""
    _, log = new_log()
    put(log, {f"k{number}": "first" for number in range(200)})
    put(log, {f"k{number}": "second" for number in range(200)})
    log.roll(T0)
    ends = []
    while log.compaction.cleaned_to < 400:
        ends.append(compact(log, T0, memory_bytes=1).end)
    assert ends == sorted(set(ends))
    assert ends[0] < 200, "inside the first batch"
    assert values(log) == {f"k{number}": "second" for number in range(200)}
    assert len(committed(log)) == 200


@pytest.mark.parametrize("cleaned_to", [1_000, 30, 15, 3, 0])
def test_s7_checkpoint_may_have_any_offset(cleaned_to: int) -> None:
    """Beyond the end, in the active segment, inside one, below the start (KAFKA-8764, 9826, 8724, 9133, 6266, 3330)."""
    disk, log = new_log()
    for number in range(30):
        put(log, {f"k{number % 5}": str(number)})
        if number % 7 == 6:
            log.roll(T0)
    advance_start(log, Offset(8))
    delete_below_start(log, T0)
    log.compaction.cleaned_to = Offset(cleaned_to)
    expected = values(log)
    compact(log, T0)
    assert log.compaction.cleaned_to == log.segments[-1].base_offset == 28 or cleaned_to == 30
    assert values(log) == expected
    log.roll(T0)
    compact(log, T0)
    assert values(log) == expected
    assert log.compaction.cleaned_to == 30 == log.end_offset
    assert values(reopen(disk, log)).items() >= expected.items()


def test_s7_records_after_a_truncation_are_cleaned() -> None:
    _, log = new_log()
    for number in range(30):
        put(log, {f"k{number % 5}": str(number)})
    log.roll(T0)
    compact(log, T0)
    truncate_to(log, Offset(27), T0)
    assert log.compaction.cleaned_to == 27
    for number in range(27, 40):
        put(log, {f"k{number % 5}": f"again {number}"})
    log.roll(T0)
    compact(log, T0)
    assert values(log) == {f"k{number % 5}": f"again {number}" for number in range(35, 40)}
    assert len(committed(log)) == 5


def several(disk: SimDisk) -> Log:
    log = Log.open(disk, DIRECTORY, LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=600), T0)
    for number in range(12):
        put(log, {f"k{number}": "aborted"}, producer=1, sequence=number)
        put(log, {f"k{number % 3}": str(number)})
    end(log, 1, commit=False)
    log.roll(T0)
    flush_now(log)
    return log


@pytest.mark.slow
def test_s8_crash_at_any_call_of_a_pass_loses_nothing() -> None:
    """In cleaning, splitting, swapping, deleting; by kill and power failure (KAFKA-12520; LogLoaderTest's phases)."""
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    log = several(disk)
    expected, begin = values(log), disk.calls
    compact(log, T0)
    calls, end_offset = disk.calls - begin, log.end_offset
    assert calls > 50
    for number in range(calls):
        for is_kill in (True, False):
            disk = SimDisk()
            disk.reorders = number % 2 == 0
            disk.make_directory(DIRECTORY)
            log = several(disk)
            disk.stop_at(number)
            with pytest.raises(Stopped):
                compact(log, T0)
            left = disk.kill() if is_kill else disk.crash(Random(number))
            again = Log.open(left, DIRECTORY, log.config, T0, recovery_point=end_offset)
            assert (values(again), again.end_offset, again.lost_bytes) == (expected, end_offset, 0), number
            names = [entry.name for entry in left.entries(DIRECTORY)]
            assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_s10_a_quiet_topic_rolls_for_the_cleaner() -> None:
    """The active segment rolls by the smaller of segment.ms and max.compaction.lag.ms (KAFKA-20664)."""
    _, log = new_log(max_compaction_lag_ms=1_000, segment_ms=5_000)
    assert not must_roll(log, TimestampMs(T0 + DAY)), "an empty one has nothing to be compacted"
    put(log, {"k": "1"})
    put(log, {"k": "2"})
    assert not must_roll(log, TimestampMs(T0 + 1_000))
    assert must_roll(log, TimestampMs(T0 + 1_001))
    log.roll(T0)
    flush_now(log)
    assert cleanable(log, TimestampMs(T0 + 1_001), log.end_offset).is_overdue
    assert not cleanable(log, TimestampMs(T0 + 1_000), log.end_offset).is_overdue
    _, log = new_log(max_compaction_lag_ms=INT64_MAX, segment_ms=1)
    put(log, {"k": "1"})
    assert not must_roll(log, TimestampMs(T0 + DAY)), "nothing asks for it"


# Corner cases.


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("log_append_time", [False, True])
def test_retained_records_of_a_batch_are_unchanged(codec: Codec, log_append_time: bool) -> None:
    _, log = new_log(log_append_time=log_append_time)
    put(log, {"a": "1", "b": "1", "c": None, "d": "1"}, codec=codec)
    put(log, {"b": "2", "d": None}, codec=codec, now=T0 + 5)
    log.roll(T0)
    before = {one.offset: one for one in committed(log)}
    compact(log, T0)
    after = committed(log)
    assert [(one.offset, one.key) for one in after] == [(0, b"a"), (2, b"c"), (4, b"b"), (5, b"d")]
    assert all(one == before[one.offset] for one in after), "headers and times too"
    assert {batch.codec for batch in batches_of(log)} == {codec}
    assert {batch.is_log_append_time for batch in batches_of(log)} == {log_append_time}
    assert [batch.last_offset for batch in batches_of(log)] == [3, 5]


@pytest.mark.parametrize("time", [-1, 0, 1, INT64_MAX, INT64_MAX - DAY, 1 << 41])
def test_timestamps_of_all_sizes_are_kept(time: int) -> None:
    _, log = new_log()
    raw = encode_batch([(b"a", None, (), time), (b"b", b"value", (), 5), (b"a2", None, (), time), (b"b", b"", (), 7)])
    log.append(Batch.checked(memoryview(raw)), EPOCH, T0)
    log.roll(T0)
    compact(log, T0)
    assert [(one.offset, one.timestamp) for one in committed(log)] == [(0, time), (2, time), (3, 7)]
    (batch,) = batches_of(log)
    assert (batch.delete_horizon, batch.max_timestamp) == (T0 + DAY, max(time, 7))


@pytest.mark.slow
def test_batch_of_a_hundred_thousand_records_is_compacted() -> None:
    _, log = new_log(max_message_bytes=1 << 24)
    put(log, {f"k{number}": "x" for number in range(100_000)})
    put(log, {f"k{number}": "y" for number in range(0, 100_000, 2)})
    log.roll(T0)
    compact(log, T0, memory_bytes=8 << 20, io_bytes=1 << 16)
    seen = committed(log)
    assert len(seen) == 100_000
    assert {one.value for one in seen if int((one.key or b"")[1:]) % 2 == 0} == {b"y"}


def test_records_without_a_key_are_removed_by_compaction() -> None:
    _, log = new_log()
    raw = encode_batch([(None, b"nothing", (), T0), (b"k", b"value", (), T0), (None, b"nothing", (), T0)])
    log.append(Batch.checked(memoryview(raw)), EPOCH, T0)
    log.roll(T0)
    compact(log, T0)
    assert [one.offset for one in committed(log)] == [1]


def test_lower_segment_bytes_split_no_group_that_is_smaller() -> None:
    _, log = new_log()
    for number in range(50):
        put(log, {f"k{number}": "x" * 50})
        if number % 5 == 4:
            log.roll(T0)
    log.config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=1_500)
    compact(log, T0)
    assert len(log.segments) == 6
    assert all(segment.size <= 1_500 for segment in log.segments)
    assert len(committed(log)) == 50


def test_lookups_by_time_are_right_after_compaction() -> None:
    disk, log = new_log(index_interval_bytes=100, segment_bytes=3_000)
    for number in range(100):
        put(log, {f"k{number % 30}": str(number)}, now=T0 + number * 10)
    log.roll(T0)
    compact(log, T0)
    seen = committed(log)
    for one in (log, reopen(disk, log), without_indexes(disk, log)):
        for timestamp in range(T0 - 5, T0 + 1_000, 7):
            expected = next(((kept.timestamp, kept.offset) for kept in seen if kept.timestamp >= timestamp), None)
            found = lookup_timestamp(one, TimestampMs(timestamp))
            assert (found and (found.timestamp, found.offset)) == expected
        greatest = lookup_timestamp(one, None)
        assert greatest is not None
        assert greatest.offset == 99


@pytest.mark.parametrize("seed", range(40))
def test_log_with_a_flipped_bit_is_not_changed(seed: int) -> None:
    """At any place under a checksum: the pass ends, and the log loses nothing by it."""
    random = Random(seed)
    disk, log = new_log()
    for number in range(30):
        put(log, {f"k{number % 5}": str(number)})
    log.roll(T0)
    node = disk.folders[DIRECTORY].live["00000000000000000000.log"]
    assert node is not None
    place = [batch.size for batch in batches_of(log)]
    position = sum(place[: random.randrange(30)]) + random.randrange(21, 90)
    node.live[position] ^= 1 << random.randrange(8)
    before = bytes(node.live)
    with pytest.raises(Uncleanable):
        compact(log, T0)
    assert bytes(node.live) == before
    assert [segment.base_offset for segment in log.segments] == [0, 30]
    assert not [name for name in disk.folders[DIRECTORY].live if name.endswith((".cleaned", ".swap", ".deleted"))]
