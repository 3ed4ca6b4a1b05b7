"""Reads: whole batches from any offset, within limits, from memory, index or a walk; and by timestamp."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest
from simdisk import SimDisk
from simfile import SimFile

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.log.files.disk import DiskFailed, File, RealDisk
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.log.truncation import truncate_to
from odradek.log.segment.index import OFFSET_ENTRY
from odradek.record.builder import RecordIn, encode_batch, seal_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES, Batch, iter_batches
from support.logs import T0, batch, put, stored

CONFIG = LogConfig(segment_bytes=60_000, index_interval_bytes=500)
STEM = "/d/t-0/00000000000000000000"


def new_log(config: LogConfig = CONFIG, disk: SimDisk | None = None) -> Log:
    disk = disk or SimDisk()
    disk.make_directory("/d/t-0")
    return Log.open(disk, "/d/t-0", config, T0)


def create_log(batches: int = 1500, disk: SimDisk | None = None) -> Log:
    """Return a log of several segments, the last with more batches than are cached; odd batches have two records."""
    log = new_log(disk=disk)
    for number in range(batches):
        put(log, *[b"%d" % number * (number % 7)] * (1 + number % 2), at=T0 + number * 10)
    return log


def reopen(log: Log, disk: SimDisk, *, config: LogConfig = CONFIG) -> Log:
    close_log(log, T0)
    return Log.open(disk, "/d/t-0", config, T0, recovery_point=log.end_offset, clean_shutdown=True)


def read(log: Log, offset: int, max_bytes: int, upto: int) -> list[tuple[int, int]]:
    data = log.read(Offset(offset), max_bytes, Offset(upto)).read()
    found = list(iter_batches(data))
    assert sum(each.size for each in found) == len(data), "whole batches"
    return [(each.base_offset, each.last_offset) for each in found]


def test_every_offset_is_read_in_every_state() -> None:
    disk = SimDisk()
    log = create_log(disk=disk)
    assert len(log.segments) > 2
    expected = stored(log)
    for state in (log, reopen(log, disk)):
        for number, (first, last) in enumerate(expected):
            for offset in {first, last}:
                assert read(state, offset, 1, state.end_offset) == [expected[number]]


def test_sequential_reads_see_everything_once() -> None:
    disk = SimDisk()
    log = create_log(disk=disk)
    for state in (log, reopen(log, disk)):
        assert stored(state) == stored(log)


@pytest.mark.parametrize("max_bytes", [0, 1, 99, 100, 1000, 5000, 30_000, 1 << 30])
def test_read_limits_are_kept(max_bytes: int) -> None:
    disk = SimDisk()
    log = create_log(700, disk)
    expected = stored(log)
    random = Random(max_bytes)
    for state in (log, reopen(log, disk)):
        for _ in range(60):
            offset = random.randrange(state.end_offset)
            upto = random.randint(offset, min(state.end_offset, offset + 60))
            piece = state.read(Offset(offset), max_bytes, Offset(upto))
            got = read(state, offset, max_bytes, upto)
            fitting = [each for each in expected if each[1] >= offset and each[1] < upto]
            assert got == fitting[: len(got)]
            assert bool(got) == bool(fitting)
            assert piece.size <= max_bytes or len(got) == 1


def test_read_returns_nearly_as_much_as_fits() -> None:
    log = create_log(700)
    for offset in range(0, 300, 7):
        piece = log.read(Offset(offset), 5000, log.end_offset)
        assert 5000 - CONFIG.index_interval_bytes - 200 < piece.size <= 5000


class RecordingDisk(SimDisk):
    """A disk that records the ends of reads of .log files."""

    def __init__(self) -> None:
        super().__init__()
        self.upto = list[int]()

    def open(self, path: str) -> File:
        return RecordingFile(self, path, cast(SimFile, super().open(path))._node)


class RecordingFile(SimFile):
    def pread(self, position: int, size: int) -> bytes:
        if self.path.endswith(".log"):
            cast(RecordingDisk, self._disk).upto.append(position + size)
        return super().pread(position, size)


@pytest.mark.parametrize("max_bytes", [2_000, 5_000, 30_000])
def test_sequential_reads_look_no_further_than_their_end(max_bytes: int) -> None:
    """In an old segment Linux would otherwise start read-ahead for a reader that needs only the end of a slice."""
    disk = RecordingDisk()
    log = reopen(create_log(disk=disk), disk)
    offset, slices = log.start_offset, 0
    while offset < log.end_offset:
        disk.upto = []
        found = log.read(offset, max_bytes, log.end_offset)
        assert max(disk.upto, default=0) <= found.position + HEADER_BYTES
        offset = Offset(list(iter_batches(found.read()))[-1].last_offset + 1)
        slices += 1
    assert slices > 2 * len(log.segments)


def test_read_at_the_end_is_empty_and_beyond_it_is_refused() -> None:
    log = new_log()
    assert log.read(Offset(0), 100, Offset(0)).size == 0
    put(log, b"a", b"b")
    assert log.read(Offset(2), 100, Offset(2)).size == 0
    assert log.read(Offset(1), 100, Offset(1)).size == 0
    assert log.read(Offset(0), 100, Offset(1)).size == 0, "the bound is inside the batch"
    for offset in (-1, 3):
        with pytest.raises(Refused) as refused:
            log.read(Offset(offset), 100, Offset(2))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_gap_between_segments_is_skipped() -> None:
    log = new_log()
    first, second = batch(b"a"), batch(b"b")
    second.stamp(Offset(50), LeaderEpoch(0))
    log.append_as_follower([first], T0)
    log.roll(T0)
    log.append_as_follower([second], T0)
    assert read(log, 1, 1000, 51) == read(log, 30, 1000, 51) == [(50, 50)]
    assert read(log, 1, 1000, 50) == []


def test_few_sealed_segments_stay_open() -> None:
    disk = SimDisk()
    log = reopen(create_log(1500, disk), disk, config=LogConfig(segment_bytes=2000))
    for _ in range(100):
        put(log, b"x" * 500)
    stored(log)
    assert sum(segment._file is not None for segment in log.segments) <= 6


# ---------------------------------------------------------------- damage


def test_damaged_index_is_rebuilt() -> None:
    disk = SimDisk()
    log = create_log(300, disk)
    expected = stored(log)
    for junk in (b"\xff" * 800, b"\0" * 800, bytes(range(200)) * 4, b""):
        log = reopen(log, disk)
        for segment in log.segments:
            segment.offsets.write()
        file = disk.open(STEM + ".index")
        file.truncate(0)
        file.write(0, junk)
        log = Log.open(disk, "/d/t-0", CONFIG, T0, recovery_point=log.end_offset, clean_shutdown=True)
        assert [read(log, first, 1, log.end_offset)[0] for first, _ in expected] == expected


def exchange_indexes(log: Log, disk: SimDisk, *suffixes: str) -> Log:
    """Return the reopened log with the indexes of its first two segments exchanged."""
    close_log(log, T0)
    first, second = (segment.path.removesuffix(".log") for segment in log.segments[:2])
    for suffix in suffixes:
        disk.rename(first + suffix, "/d/t-0/kept")
        disk.rename(second + suffix, first + suffix)
        disk.rename("/d/t-0/kept", second + suffix)
    return Log.open(disk, "/d/t-0", CONFIG, T0, recovery_point=log.end_offset, clean_shutdown=True)


@pytest.mark.slow
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_indexes_of_another_segment_are_rebuilt(suffixes: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    """Their entries ascend and point to batches, but to wrong ones: they are rebuilt, with a log line.

    Sizes and numbers of records, and thus positions, differ between segments.
    """
    disk = SimDisk()
    log = new_log(disk=disk)
    random = Random(5)
    for number in range(700):
        put(log, *[random.randbytes(random.randrange(90))] * random.randrange(1, 9), at=T0 + number * 10)
    assert len(log.segments) > 3
    expected = stored(log)
    by_time = {number: lookup_timestamp(log, TimestampMs(T0 + number * 10)) for number in range(700)}
    for number in random.sample(range(700), 40):
        log = exchange_indexes(log, disk, *suffixes)
        assert lookup_timestamp(log, TimestampMs(T0 + number * 10)) == by_time[number]
        log = exchange_indexes(log, disk, *suffixes)
    log = exchange_indexes(log, disk, *suffixes)
    assert [lookup_timestamp(log, TimestampMs(T0 + number * 10)) for number in by_time] == [*by_time.values()]
    assert "rebuilding the indexes of" in caplog.text and "0.log, which do not match the log" in caplog.text
    for start in random.sample(expected, 60):
        log = exchange_indexes(log, disk, *suffixes)
        assert read(log, start[0], random.choice([1, 500, 5_000]), log.end_offset)[0] == start
    log = exchange_indexes(log, disk, *suffixes)
    assert stored(log) == expected


def create_shifted_log(by: int, numbers: range = range(100)) -> Log:
    """Return a log of 20 single-record batches with one index entry each, some with positions wrong by `by` bytes."""
    disk = SimDisk()
    log = new_log(disk=disk)
    for _ in range(20):
        put(log, b"x" * 900)
    close_log(log, T0)
    file = disk.open(STEM + ".index")
    entries = list(OFFSET_ENTRY.iter_unpack(file.pread(0, file.size())))
    assert len(entries) > 15
    for number in set(numbers) & set(range(len(entries))):
        entries[number] = (entries[number][0], entries[number][1] + by)
    file.write(0, b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))
    return Log.open(disk, "/d/t-0", CONFIG, T0, recovery_point=log.end_offset, clean_shutdown=True)


def test_index_entry_amid_a_batch_does_not_stop_readers() -> None:
    """Otherwise a reader gets a part of the first batch repeatedly."""
    log = create_shifted_log(-100, range(15))
    assert read(log, 0, 900, log.end_offset) == [(0, 0)]
    assert read(log, 1, 900, log.end_offset) == [(1, 1)]


def test_truncation_ignores_wrong_index_entries() -> None:
    log = create_shifted_log(7, range(5, 6))
    truncate_to(log, Offset(7), T0)
    assert stored(log) == [(number, number) for number in range(7)]


def test_retention_ignores_timestamps_of_another_segment() -> None:
    disk = SimDisk()
    log = exchange_indexes(create_log(disk=disk), disk, ".timeindex")
    assert log.segments[0].largest()[0] < log.segments[1].largest()[0]


def test_damaged_log_is_reported_as_a_disk_failure() -> None:
    disk = SimDisk()
    log = reopen(create_log(300, disk), disk)
    disk.open(STEM + ".log").write(5000, b"\xee" * 5000)
    with pytest.raises(DiskFailed, match=r"damaged at byte 4\d\d\d|damaged at byte 5\d\d\d"):
        for first in range(0, 100):
            log.read(Offset(first), 1, log.end_offset)
    assert read(log, 0, 1, 10) == [(0, 0)], "what is whole is still served"


# ---------------------------------------------------------------- times


def test_lookup_finds_the_first_record_at_or_after_a_timestamp() -> None:
    disk = SimDisk()
    log = create_log(800, disk)
    for state in (log, reopen(log, disk)):
        for number in range(0, 800, 13):
            base = number + number // 2
            for timestamp in (T0 + number * 10, T0 + number * 10 - 8):
                found = lookup_timestamp(state, TimestampMs(timestamp))
                assert found is not None
                assert (found.timestamp, found.offset, found.leader_epoch) == (T0 + number * 10, base, 0)
        assert lookup_timestamp(state, TimestampMs(T0 + 8000)) is None


def test_timestamps_need_not_ascend() -> None:
    log = new_log()
    for at in (50, 10, 90, 20, 90):
        put(log, b"x", at=T0 + at)
    times = {0: 0, 10: 0, 50: 0, 51: 2, 90: 2}
    for timestamp, offset in times.items():
        found = lookup_timestamp(log, TimestampMs(T0 + timestamp))
        assert found is not None
        assert found.offset == offset
    newest = lookup_timestamp(log, None)
    assert newest is not None
    assert newest[:2] == (T0 + 90, 2)


def test_lookup_finds_records_inside_a_batch() -> None:
    log = new_log()
    put(log, b"a", b"b", b"c", at=T0)
    found = lookup_timestamp(log, TimestampMs(T0 + 1))
    assert found is not None
    assert found[:2] == (T0 + 1, 1)
    newest = lookup_timestamp(log, None)
    assert newest is not None
    assert newest[:2] == (T0 + 2, 2)
    advance_start(log, Offset(2))
    found = lookup_timestamp(log, TimestampMs(0))
    assert found is not None
    assert found.offset == 2


def test_lookup_without_timestamps_finds_nothing() -> None:
    log = new_log()
    assert lookup_timestamp(log, None) is None
    assert lookup_timestamp(log, TimestampMs(0)) is None
    put(log, b"a", at=-1)
    assert lookup_timestamp(log, None) is None


def test_undecodable_batch_is_refused() -> None:
    log = new_log()
    raw = encode_batch([(None, b"abc", (), T0)])
    raw[61] = 0x7F  # A wrong record length, under a correct checksum.
    broken = Batch.trusted(memoryview(raw))
    broken.stamp_log_append_time(T0)
    broken.stamp_create_time()
    log.append(Batch.trusted(broken.view), LeaderEpoch(0), T0)
    with pytest.raises(Refused) as refused:
        lookup_timestamp(log, TimestampMs(0))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", Codec)
def test_lookup_refuses_records_beyond_the_decompressed_limit(codec: Codec) -> None:
    """The max.decompressed.message.bytes at the start of the lookup applies; not to uncompressed batches (#23429)."""
    log = new_log()
    records: list[RecordIn] = [(None, bytes(size), (), TimestampMs(T0 + size)) for size in (10, 1_000)]
    log.append(Batch.checked(encode_batch(records, codec)), LeaderEpoch(0), T0)
    before = lookup_timestamp(log, TimestampMs(T0 + 5))
    assert before is not None
    log.config = replace(CONFIG, max_decompressed_message_bytes=500)
    if codec is Codec.NONE:
        assert lookup_timestamp(log, TimestampMs(T0 + 5)) == before
        return
    for timestamp in (TimestampMs(T0 + 5), None):
        with pytest.raises(Refused, match="a record decompresses to more than") as refused:
            lookup_timestamp(log, timestamp)
        assert refused.value.code is ErrorCode.INVALID_RECORD


def create_damaged_log(*, header: bool) -> tuple[SimDisk, Log, int]:
    """Return a log of one segment with one damaged batch, and its position."""
    log = new_log()
    positions = []
    for number in range(40):
        positions.append(log.size)
        put(log, b"%d" % number * 20, at=T0 + number)
    disk = log.disk
    assert isinstance(disk, SimDisk)
    file = disk.open(log.segments[0].path)
    at = positions[20] + (8 if header else 61)  # The length of the batch, or of its record.
    file.write(at, bytes([file.pread(at, 1)[0] ^ 0x7F]))
    log.segments[0].release()
    return disk, log, positions[20]


def read_from(log: Log, offset: int) -> list[int]:
    return [one.base_offset for one in iter_batches(log.read(Offset(offset), 1 << 20, log.end_offset).read())]


@pytest.mark.parametrize("header", [True, False])
def test_records_before_and_after_a_damage_are_served(header: bool) -> None:
    _, log, position = create_damaged_log(header=header)
    assert log.note_damage(LogDamaged(log.segments[0].path, position, "found"))
    assert not log.note_damage(LogDamaged(log.segments[0].path, position, "found again"))
    assert log.damaged_places == 1
    assert read_from(log, 0) == list(range(20))
    assert read_from(log, 13) == list(range(13, 20))
    for _ in range(2):
        with pytest.raises(LogDamaged):
            log.read(Offset(20), 1 << 20, log.end_offset)
    for offset in range(21, 40):
        assert read_from(log, offset) == list(range(offset, 40))
    put(log, b"goes on")
    log.segments[0].release()
    assert read_from(log, 39) == [39, 40]


def test_rebuilt_index_keeps_the_damage() -> None:
    disk, log, position = create_damaged_log(header=False)
    segment = log.segments[0]
    log.note_damage(LogDamaged(segment.path, position, "found"))
    segment.offsets.write()
    disk.open(segment.offsets.path).write(0, b"\0\0\0\1\x7f\xff\xff\xff" * len(segment.offsets))
    segment.release()
    assert read_from(log, 30) == list(range(30, 40)), "it is made again for that"
    with pytest.raises(LogDamaged):
        log.read(Offset(20), 1 << 20, log.end_offset)
    assert read_from(log, 0) == list(range(20))


def test_walk_into_a_damage_records_it() -> None:
    """The index is rebuilt once, and not for each reader."""
    disk, log, _ = create_damaged_log(header=True)
    assert read_from(log, 17) == [17, 18, 19] + [21] * 0 or log.damaged_places == 0
    for offset in (20, 20, 20):
        with pytest.raises(LogDamaged):
            log.read(Offset(offset), 1, log.end_offset)
    assert log.damaged_places == 1
    calls = disk.calls
    with pytest.raises(LogDamaged):
        log.read(Offset(20), 1, log.end_offset)
    assert disk.calls - calls < 5
    assert read_from(log, 21) == list(range(21, 40))


def test_a_search_finds_a_wrong_checksum() -> None:
    _, log, position = create_damaged_log(header=False)
    with pytest.raises(LogDamaged) as found:
        lookup_timestamp(log, TimestampMs(T0 + 20))
    assert found.value.position == position


def test_shortened_file_of_an_empty_batch_is_no_error_of_the_loop(tmp_path: Path) -> None:
    disk = RealDisk()
    log = Log.open(disk, str(tmp_path), LogConfig(segment_bytes=100), T0)
    empty = seal_batch(bytearray(HEADER_BYTES), count=1, base_timestamp=TimestampMs(T0), max_timestamp=TimestampMs(T0))
    empty[-4:] = bytes(4)  # As compaction leaves it: the record is gone, its offset stays.
    log.append(Batch.trusted(empty), LeaderEpoch(0), T0)
    put(log, b"x" * 20)
    assert len(log.segments) == 2
    assert [one.base_offset for one in iter_batches(log.read(Offset(0), 1000, log.end_offset).read())] == [1]
    os.truncate(log.segments[0].path, 30)
    assert log.read(Offset(0), 1000, log.end_offset).size == HEADER_BYTES
