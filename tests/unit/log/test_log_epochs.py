"""The leader-epoch cache, compared with KIP-101's rules."""

from __future__ import annotations

import pytest
from simdisk import SimDisk

from odradek.base.units import LeaderEpoch, Offset
from odradek.log.files.disk import DiskFailed
from odradek.log.producers.leader_epoch_cache import LeaderEpochFileCache
from odradek.log.segment.checkpoints import read_epochs

FILE = "/leader-epoch-checkpoint"


def epochs(*entries: tuple[int, int]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(SimDisk(), "", [])
    for epoch, start in entries:
        cache.assign(LeaderEpoch(epoch), Offset(start))
    return cache


def test_only_a_new_epoch_adds_an_entry() -> None:
    cache = epochs((0, 0), (0, 5), (2, 10), (-1, 20))
    assert cache.entries == [(0, 0), (2, 10)]
    assert (cache.earliest, cache.latest) == (0, 2)
    assert cache.changes == 2


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ((3, 20), [(1, 0), (2, 10), (3, 20)]),
        ((3, 10), [(1, 0), (3, 10)]),  # Epoch 2 has no records.
        ((3, 5), [(1, 0), (3, 5)]),
        ((3, 0), [(3, 0)]),
        ((1, 30), [(1, 30)]),  # Return to an old epoch: contradicting entries are removed.
        ((0, 30), [(0, 30)]),
    ],
)
def test_contradicting_epochs_are_removed(assigned: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    cache = epochs((1, 0), (2, 10))
    cache.assign(LeaderEpoch(assigned[0]), Offset(assigned[1]))
    assert cache.entries == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-2, (-2, 5)),
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 10)),
        (2, (1, 10)),
        (3, (3, 30)),
        (4, (3, 30)),
        (6, (6, 99)),
        (7, (-1, -1)),
    ],
)
def test_end_offset_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    cache = epochs((1, 5), (3, 10), (6, 30))
    assert cache.end_offset_for(LeaderEpoch(epoch), Offset(99)) == expected


def test_empty_cache_returns_undefined() -> None:
    for epoch in (-2, -1, 0):
        assert epochs().end_offset_for(LeaderEpoch(epoch), Offset(9)) == (-1, -1)
    assert epochs().earliest == epochs().latest == -1


@pytest.mark.parametrize(("offset", "epoch"), [(4, -1), (5, 1), (9, 1), (10, 3), (1000, 6)])
def test_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epochs((1, 5), (3, 10), (6, 30)).epoch_of(Offset(offset)) == epoch


def test_cache_is_truncated_at_both_ends() -> None:
    cache = epochs((1, 5), (3, 10), (6, 30))
    cache.truncate_from_end(Offset(30))
    assert cache.entries == [(1, 5), (3, 10)]
    assert cache.latest == 3
    cache.truncate_from_start(Offset(7))
    assert cache.entries == [(1, 7), (3, 10)]
    cache.truncate_from_start(Offset(12))
    assert cache.entries == [(3, 12)]
    cache.truncate_from_start(Offset(11))
    assert cache.entries == [(3, 12)]
    cache.clear()
    assert cache.entries == []


def test_the_file_follows_every_change() -> None:
    disk = SimDisk()
    cache = LeaderEpochFileCache(disk, "", [])
    cache.assign(LeaderEpoch(1), Offset(0))
    cache.assign(LeaderEpoch(2), Offset(7))
    assert read_epochs(disk, "") == cache.entries == [(1, 0), (2, 7)]
    cache.truncate_from_end(Offset(7))
    assert read_epochs(disk, "") == [(1, 0)]


def test_change_with_a_failed_write_is_undone() -> None:
    disk = SimDisk()
    cache = LeaderEpochFileCache(disk, "", [])
    cache.assign(LeaderEpoch(1), Offset(0))
    disk.room = 2
    with pytest.raises(DiskFailed):
        cache.assign(LeaderEpoch(2), Offset(7))
    assert read_epochs(disk, "") == cache.entries == [(1, 0)]
    assert cache.latest == 1
