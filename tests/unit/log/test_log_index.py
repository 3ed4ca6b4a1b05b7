"""Index files, compared with a plain list."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from odradek.base.units import INT32_MAX, Offset, TimestampMs
from odradek.log.files.disk import DiskFailed, File, RealDisk, RealFile
from odradek.log.segment.index import BLOCK_ENTRIES, PENDING_ENTRIES_MAX, OffsetIndex, TimeIndex

BASE = Offset(1_000)


def offset_index(disk: SimDisk, entries: list[tuple[int, int]], *, written: int = 0) -> OffsetIndex:
    index = OffsetIndex(disk, "/i", BASE, 0)
    index.clear()
    for number, (offset, position) in enumerate(entries):
        index.add(Offset(offset), position)
        if number + 1 == written:
            index.write()
    return index


# Enough for several blocks of the file, and a rest in memory.
SIZES = st.one_of(st.integers(0, 10), st.integers(100, 140), st.integers(500, 900))
GAPS = st.integers(1, 5)


@settings(deadline=None, max_examples=60)
@given(st.data(), SIZES)
def test_index_agrees_with_scan(data: st.DataObject, size: int) -> None:
    step, stride = data.draw(GAPS), data.draw(GAPS)
    entries = [(BASE + 3 + number * step, 100 + number * stride * 10) for number in range(size)]
    index = offset_index(SimDisk(), entries, written=data.draw(st.integers(0, size)))
    for _ in range(8):
        offset = data.draw(st.integers(BASE, BASE + size * step + 10))
        assert index.at_or_before(Offset(offset))[1] == max((p for o, p in entries if o <= offset), default=0)
        position = data.draw(st.integers(0, 200 + size * stride * 10))
        assert index.border_at_or_below(position) == max((p for _, p in entries if p <= position), default=0)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 10**9), unique=True, max_size=400).map(sorted), st.integers(0, 10**9))
def test_time_index_agrees_with_scan(timestamps: list[int], target: int) -> None:
    disk = SimDisk()
    index = TimeIndex(disk, "/t", BASE, 0)
    index.clear()
    for number, timestamp in enumerate(timestamps):
        index.maybe_add(TimestampMs(timestamp), Offset(BASE + number * 2))
    before = bisect_right(timestamps, target - 1)
    assert index.entry_before(TimestampMs(target))[1] == (BASE + (before - 1) * 2 if before else BASE)
    if timestamps:
        assert index.last_entry() == (timestamps[-1], BASE + (len(timestamps) - 1) * 2)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 600), st.integers(0, 600), st.integers(0, 600))
def test_truncation_keeps_earlier_entries(size: int, written: int, cut: int) -> None:
    entries = [(BASE + number, number * 10) for number in range(1, size + 1)]
    index = offset_index(SimDisk(), entries, written=min(written, size))
    index.at_or_before(Offset(BASE + cut))  # A block is cached, and must not outlive the truncation.
    index.keep(index.count_before(cut * 10))
    index.cut()
    assert [index.entry(number) for number in range(len(index))] == [(o - BASE, p) for o, p in entries if p < cut * 10]
    index.add(Offset(BASE + 10_000), 99_999)
    assert index.at_or_before(Offset(BASE + 20_000))[1] == 99_999


class CountedDisk(RealDisk):
    """A disk that counts its reads."""

    reads = 0

    def open(self, path: str) -> File:
        return CountedFile(os.open(path, os.O_RDWR), path, self)


class CountedFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, descriptor: int, path: str, disk: CountedDisk) -> None:
        super().__init__(descriptor, path)
        self._disk = disk

    def pread(self, position: int, size: int) -> bytes:
        self._disk.reads += 1
        return super().pread(position, size)


def test_sequential_lookups_do_not_search_again(tmp_path: Path) -> None:
    disk, blocks = CountedDisk(), 40
    index = OffsetIndex(disk, f"{tmp_path}/i", BASE, 0)
    index.clear()
    for number in range(1, blocks * BLOCK_ENTRIES + 1):
        index.add(Offset(BASE + number), number * 100)
    readers = [0, 11, 23]
    for turn in range(16 * BLOCK_ENTRIES):
        for reader in readers:
            number = reader * BLOCK_ENTRIES + turn + 1
            assert index.border_at_or_below(number * 100 + 7) == number * 100
    assert disk.reads < 3 * (2 * 16 + 10), "again at its border, and some to find the first"


def test_grown_block_is_read_again(tmp_path: Path) -> None:
    index = OffsetIndex(RealDisk(), f"{tmp_path}/i", BASE, 0)
    index.clear()
    for number in range(1, 2 * BLOCK_ENTRIES + 1):
        index.add(Offset(BASE + number), number * 100)
        if number == 10:
            index.write()
            assert index.border_at_or_below(550) == 500
    index.write()
    for number in range(1, 2 * BLOCK_ENTRIES + 1):
        assert index.border_at_or_below(number * 100 + 7) == number * 100


def test_file_format_is_kafkas(tmp_path: Path) -> None:
    index = OffsetIndex(RealDisk(), f"{tmp_path}/i", BASE, 0)
    index.clear()
    index.add(Offset(BASE + 7), 4096)
    index.add(Offset(BASE + INT32_MAX), INT32_MAX)
    index.write()
    assert (tmp_path / "i").read_bytes().hex() == "00000007000010007fffffff7fffffff"
    times = TimeIndex(RealDisk(), f"{tmp_path}/t", BASE, 0)
    times.clear()
    times.maybe_add(TimestampMs(1_700_000_000_000), Offset(BASE + 7))
    times.write()
    assert (tmp_path / "t").read_bytes().hex() == "0000018bcfe5680000000007"


def test_reopened_index_is_the_same() -> None:
    disk = SimDisk()
    index = offset_index(disk, [(BASE + 1, 50), (BASE + 9, 70)])
    index.write()
    again = OffsetIndex(disk, "/i", BASE, disk.size("/i"))
    assert again.last() == (9, 70)
    assert again.at_or_before(Offset(BASE + 8))[1] == 50


def test_only_greater_timestamps_add_entries() -> None:
    index = TimeIndex(SimDisk(), "/t", BASE, 0)
    index.clear()
    for timestamp in (-1, 5, 5, 3, 6):
        index.maybe_add(TimestampMs(timestamp), Offset(BASE + timestamp))
    assert [index.entry(number)[0] for number in range(len(index))] == [5, 6]
    index.keep(index.count_below(Offset(BASE + 6)))
    index.maybe_add(TimestampMs(6), Offset(BASE + 6))
    assert index.last_entry() == (6, BASE + 6)


def test_fullness_counts_whole_entries_and_keeps_a_slot_for_the_last_timestamp() -> None:
    disk = SimDisk()
    index = offset_index(disk, [(BASE + 1, 1), (BASE + 2, 2)])
    assert index.is_full(23)
    assert not index.is_full(24)
    times = TimeIndex(disk, "/t", BASE, 0)
    times.clear()
    assert not times.is_full(24)
    times.maybe_add(TimestampMs(1), BASE)
    assert times.is_full(24)


def test_entries_stay_in_memory_on_a_full_disk() -> None:
    disk = SimDisk()
    index = offset_index(disk, [])
    disk.room = 3
    for number in range(PENDING_ENTRIES_MAX + 5):
        index.add(Offset(BASE + number + 1), number)
    with pytest.raises(DiskFailed):
        index.write()
    disk.room = None
    index.write()
    assert len(index) == PENDING_ENTRIES_MAX + 5
    assert index.at_or_before(Offset(BASE + 100))[1] == 99
