"""Compaction: each key keeps its last committed record, readers see the same data, and producers continue."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest
from simdisk import SimDisk

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.log.compaction.cleanable import cleanable
from odradek.log.compaction.cleaner import Cleaning
from odradek.log.compaction.replacement import drop_cleaned, swap_in
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log, flush_now
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from support.cleaning import Seen, Writer, batches_of, begin, committed, compact, latest, options, swap_all
from support.logs import T0

DIRECTORY = "/d/t-0"
DAY = 86_400_000


def new_log(config: LogConfig | None = None) -> tuple[SimDisk, Log]:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk, Log.open(disk, DIRECTORY, config or LogConfig(cleanup_compact=True, cleanup_delete=False), T0)


def producer_state(log: Log) -> dict[int, tuple[object, ...]]:
    """Return the producer state that a restart needs: epoch, last batch, open transaction."""
    return {one.id: (one.epoch, *[sent[:3] for sent in one.batches[-1:]], one.first_offset) for one in log.producers}


def check_same(before: list[Seen], after: list[Seen], cleaned_to: int) -> None:
    by_offset = {one.offset: one for one in before}
    assert [one.offset for one in after] == sorted({one.offset for one in after}), "offsets rise"
    assert all(by_offset[one.offset] == one for one in after), "what stays is what it was"
    beyond = [one for one in before if one.offset >= cleaned_to]
    assert [one for one in after if one.offset >= cleaned_to] == beyond, "what was not cleaned is all there"
    assert latest(after) == latest(before), "the last value of each key stays"


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(60))
def test_a_compacted_log_has_the_last_value_of_each_key(seed: int) -> None:
    random = Random(seed)
    disk, log = new_log(
        LogConfig(
            cleanup_compact=True,
            cleanup_delete=False,
            segment_bytes=random.choice([2_000, 20_000, 1 << 30]),
            index_interval_bytes=random.choice([0, 200, 4096]),
            delete_retention_ms=random.choice([0, 50, DAY]),
        )
    )
    writer = Writer(log, random)
    now = T0
    for _ in range(6):
        writer.write(40)
        log.roll(writer.now)
        before, end = committed(log), log.end_offset
        entries = producer_state(log)
        memory = random.choice([2_000, 1 << 20])
        cleaning = compact(log, TimestampMs(max(writer.now, now)), memory, random.choice([100, 4096, 1 << 20]))
        after = committed(log)
        check_same(before, after, cleaning.end)
        assert (log.end_offset, log.compaction.cleaned_to) == (end, cleaning.end)
        if random.random() < 0.5:
            close_log(log, writer.now)
        else:
            disk = disk.kill()
        log = Log.open(
            disk, DIRECTORY, log.config, writer.now, recovery_point=log.recovery_point, start_offset=log.start_offset
        )
        log.compaction.cleaned_to = cleaning.end
        writer.log = log
        assert log.end_offset == end
        assert producer_state(log) == entries
        assert committed(log) == after
        flush_now(log, writer.now)
        now = TimestampMs(now + random.choice([0, 100, 2 * DAY]))


def test_superseded_records_are_removed() -> None:
    _, log = new_log()
    writer = Writer(log, Random(1), keys=3, transactional=0)
    writer.write(200)
    log.roll(writer.now)
    size = log.size
    cleaning = compact(log, writer.now)
    assert len(committed(log)) <= 3
    assert log.size < size / 20
    assert cleaning.read_bytes == size
    assert cleaning.dropped_records > 100
    assert len(log.segments) == 2, "small segments become one"
    assert all(batch.base_offset >= 0 for batch in batches_of(log))
    assert log.compaction.cleaned_to == Offset(log.segments[-1].base_offset)


def test_offset_map_is_freed_on_the_cleaning_thread() -> None:
    """Freeing a large one takes milliseconds; the pass itself is dropped by the loop."""
    _, log = new_log()
    writer = Writer(log, Random(1), keys=3, transactional=0)
    writer.write(200)
    log.roll(writer.now)
    flush_now(log, writer.now)
    cleaning, _ = begin(log, writer.now)
    assert not cleaning.is_mapped
    cleaning.build_map(lambda _: None)
    while not cleaning.is_over:
        assert cleaning.is_mapped
        cleaning.clean(lambda _: None)
    assert not cleaning.is_mapped


def create_log(seed: int) -> tuple[SimDisk, Log, Writer]:
    """Return a synced log of several segments, some of it compacted before."""
    random = Random(seed)
    disk, log = new_log(
        LogConfig(
            cleanup_compact=True,
            cleanup_delete=False,
            segment_bytes=random.choice([600, 2_000, 1 << 30]),
            index_interval_bytes=200,
            delete_retention_ms=random.choice([0, DAY]),
        )
    )
    writer = Writer(log, random)
    writer.write(60)
    if random.random() < 0.5:
        compact(log, writer.now)
        writer.write(60)
    log.roll(writer.now)
    flush_now(log, writer.now)
    return disk, log, writer


def check_reopened(disk: SimDisk, log: Log, before: list[Seen], upto: int) -> Log:
    """Open the log from the remaining disk content: readers, producers and files must be right."""
    entries = producer_state(log)
    again = Log.open(disk, DIRECTORY, log.config, T0, recovery_point=log.recovery_point)
    check_same(before, committed(again), upto)
    assert again.end_offset == log.end_offset
    assert producer_state(again) == entries
    assert again.aside is None
    assert not again.lost_bytes
    left = {entry.name.rpartition(".")[2] for entry in disk.entries(DIRECTORY)}
    assert not left & {"cleaned", "swap", "deleted", "tmp"}
    return again


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(150))
def test_stop_at_any_call_leaves_the_log_unchanged_or_compacted(seed: int) -> None:
    """The process is killed, or the power fails, at the n-th disk call; the start repairs the log."""
    random = Random(seed)
    disk, log, writer = create_log(seed)
    before, upto = committed(log), log.segments[-1].base_offset
    calls = disk.calls
    compact(log, writer.now, io_bytes=random.choice([100, 4096]))
    last = disk.calls - calls
    disk, log, writer = create_log(seed)
    disk.fail_from(random.randrange(last))
    with suppress(DiskFailed):
        compact(log, writer.now, io_bytes=4096)
    disk.fail_call(-1)
    left = disk.kill() if random.random() < 0.3 else disk.crash(random)
    again = check_reopened(left, log, before, upto)
    flush_now(again, writer.now)
    cleaning = compact(again, writer.now)
    check_same(before, committed(again), cleaning.end)


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(150))
def test_failed_call_leaves_a_usable_log(seed: int) -> None:
    """The pass ends, nothing is lost, readers are not affected, and the next pass succeeds."""
    random = Random(seed)
    disk, log, writer = create_log(seed)
    before = committed(log)
    calls = disk.calls
    disk.fail_call(random.randrange(400), random.choice([errno.EIO, errno.ENOSPC, errno.EMFILE]))
    try:
        compact(log, writer.now)
    except DiskFailed:
        if log.compaction.cleaning is not None:
            drop_cleaned(log, log.compaction.cleaning)
            log.compaction.cleaning = None
    disk.fail_call(-1)
    assert disk.calls > calls
    now = TimestampMs(writer.now + 10 * DAY)
    log.reaper.reap(now)
    check_same(before, committed(log), log.segments[-1].base_offset)
    writer.log = log
    writer.write(20)
    log.roll(writer.now)
    before = committed(log)
    compact(log, now)
    log.reaper.reap(now)
    check_same(before, committed(log), log.compaction.cleaned_to)
    check_reopened(disk.kill(), log, before, log.compaction.cleaned_to)


def test_unchanged_segment_between_two_swapped_ones_is_kept() -> None:
    """It needed no change; a start that finishes the swaps of the others must not touch it."""
    config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=2_000, delete_retention_ms=DAY)
    disk, log = new_log(config)
    for keys in ([b"a", b"a"], [b"b", b"c"], [b"d", b"d"]):
        for key in keys:
            raw = encode_batch([(key, bytes(900), (), T0)])
            log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), T0)
        log.roll(T0)
    flush_now(log, T0)
    before = committed(log)
    cleaning, _ = begin(log, T0)
    cleaning.build_map(lambda _: None)
    changed = []
    while not cleaning.is_over:
        group = cleaning.clean(lambda _: None)
        changed.append(bool(group.segments))
        if group.segments:
            assert swap_in(log, [one.segment for one in group.sources], group.segments, T0)
            cleaning.swapped_in()
    assert changed == [True, False, True]
    check_reopened(disk.kill(), log, before, log.end_offset)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batch_with_the_high_watermark_inside_is_not_cleaned(codec: Codec) -> None:
    """A follower takes the high watermark from its leader, which may send any offset."""
    _, log = new_log()
    for _ in range(3):
        raw = encode_batch([(b"k%d" % number, b"v", (), T0) for number in range(4)], codec)
        log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), T0)
    log.roll(T0)
    flush_now(log, T0)
    before = committed(log)
    found = cleanable(log, T0, Offset(6))
    assert (found.first_dirty, found.first_uncleanable) == (0, 6)
    cleaning = Cleaning(log, found, options(log, T0))
    cleaning.build_map(lambda _: None)
    assert cleaning.end == 4
    swap_all(log, cleaning, T0)
    check_same(before, committed(log), 4)
