"""Flushes as values, truncation, retention, and delayed deletion."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from simdisk import SimDisk

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.files.disk import DiskFailed, RealDisk
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import begin_flush, close_log, end_flush, flush_now, needs_flush, synced_to
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.log.segment.index import OFFSET_ENTRY
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch
from support.logs import T0, batch, put, stored

DELAY = 60_000


def new_log(config: LogConfig | None = None, disk: SimDisk | None = None) -> Log:
    disk = disk or SimDisk()
    disk.make_directory("/d/t-0")
    return Log.open(disk, "/d/t-0", config or LogConfig(), T0)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def later(milliseconds: int) -> TimestampMs:
    return TimestampMs(T0 + milliseconds)


# ---------------------------------------------------------------- flush


def test_flush_covers_records_before_its_start() -> None:
    log = new_log()
    put(log, b"a")
    flush = begin_flush(log)
    put(log, b"b")
    flush.run()
    end_flush(log, flush, later(5))
    assert (log.recovery_point, log.end_offset, log.last_flush_ms) == (1, 2, T0 + 5)
    flush_now(log)
    assert log.recovery_point == 2
    assert begin_flush(log).is_empty


def test_rolled_segment_still_needs_a_flush() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a")
    early = begin_flush(log)
    put(log, b"b")
    log.roll(T0)
    assert needs_flush(log, T0)
    early.run()
    end_flush(log, early)
    assert log.recovery_point == 1
    assert needs_flush(log, T0), "the first segment has a batch that is not safe"
    flush_now(log)
    assert log.recovery_point == 2
    assert not needs_flush(log, T0)


def test_segment_rolled_after_a_sync_needs_a_flush_of_its_indexes() -> None:
    log = new_log()
    put(log, b"a")
    flush_now(log)
    assert synced_to(log) == 1 and not needs_flush(log, T0)
    log.roll(T0)
    assert synced_to(log) == 0 and needs_flush(log, T0)
    flush_now(log)
    assert synced_to(log) == 1 and not needs_flush(log, T0)


@pytest.mark.parametrize("seed", range(8))
def test_segment_sealed_during_a_flush_is_synced_by_the_next(seed: int) -> None:
    """The flush covers all its batches, but neither its indexes nor the snapshot at its end."""
    disk = SimDisk()
    log = new_log(LogConfig(index_interval_bytes=0), disk)
    producer, epoch = ProducerId(7), ProducerEpoch(0)
    records = [(None, b"aborted", (), T0)]
    raw = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), T0)
    log.append(end_marker_batch(EndMarker(False, 0), producer, epoch, T0), LeaderEpoch(0), T0)
    early = begin_flush(log)
    log.roll(T0)
    early.run()
    end_flush(log, early)
    assert log.recovery_point == 2
    put(log, b"committed")
    assert needs_flush(log, T0)
    flush_now(log)
    of_the_first = [name for name in disk.folders["/d/t-0"].live if name.startswith("0" * 20)]
    assert len(of_the_first) == 4, "records and three indexes"
    paths = [f"/d/t-0/{name}" for name in (*of_the_first, f"{2:020}.snapshot")]
    before = [disk.open(path).pread(0, 999) for path in paths]
    survivor = disk.crash(Random(seed))
    assert [survivor.open(path).pread(0, 999) for path in paths] == before
    again = Log.open(survivor, "/d/t-0", LogConfig(), T0, recovery_point=log.recovery_point)
    (aborted,) = again.aborted(Offset(0), again.read(Offset(0), 999, Offset(3)), Offset(3))
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (producer, 0, 1)


@pytest.mark.parametrize("seed", range(8))
def test_segment_truncated_and_sealed_during_a_flush_is_synced_next(seed: int) -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a")
    put(log, b"b")
    log.roll(T0)
    put(log, b"c")
    early = begin_flush(log)
    early.run()
    truncate_to(log, Offset(1), T0)
    put(log, b"other", epoch=1)
    log.roll(T0)
    end_flush(log, early)
    assert log.recovery_point == 1
    flush_now(log)
    assert log.recovery_point == 2
    again = Log.open(disk.crash(Random(seed)), "/d/t-0", LogConfig(), T0, recovery_point=log.recovery_point)
    assert stored(again) == [(0, 0), (1, 1)]


def test_flushes_may_end_in_any_order() -> None:
    log = new_log()
    put(log, b"a")
    first = begin_flush(log)
    put(log, b"b")
    second = begin_flush(log)
    second.run()
    end_flush(log, second)
    first.run()
    end_flush(log, first)
    assert log.recovery_point == 2


def test_needs_flush_by_messages_and_time() -> None:
    log = new_log(LogConfig(flush_messages=3, flush_ms=1000))
    assert not needs_flush(log, later(99_999))
    put(log, b"a", b"b")
    assert not needs_flush(log, later(999))
    assert needs_flush(log, later(1000))
    put(log, b"c")
    assert needs_flush(log, T0)


def test_truncation_lowers_the_result_of_a_running_flush() -> None:
    log = new_log()
    put(log, b"a")
    put(log, b"b")
    flush = begin_flush(log)
    truncate_to(log, Offset(1), T0)
    put(log, b"other", epoch=1)
    flush.run()
    end_flush(log, flush)
    assert (log.recovery_point, log.end_offset) == (1, 2)


def test_failed_sync_is_remembered() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a")
    flush = begin_flush(log)
    disk.fails_to_sync = True
    with pytest.raises(DiskFailed):
        flush.run()
    disk.fails_to_sync = False
    with pytest.raises(DiskFailed, match="an earlier flush failed"):
        close_log(log, T0)


def test_flush_of_a_deleted_segment_succeeds() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a")
    log.roll(T0)
    flush = begin_flush(log)
    advance_start(log, Offset(1))
    delete_old_segments(log, T0, Offset(1))
    log.reaper.reap(later(DELAY))
    flush.run()
    end_flush(log, flush)
    assert log.recovery_point == 1


# ---------------------------------------------------------------- truncation


def test_truncation_ends_at_a_batch_boundary() -> None:
    log = new_log()
    put(log, b"a")
    put(log, b"b", b"c", b"d")
    assert not truncate_to(log, Offset(4), T0)
    assert truncate_to(log, Offset(3), T0)
    assert (stored(log), log.end_offset) == ([(0, 0)], 1)
    put(log, b"e", epoch=1)
    assert stored(log) == [(0, 0), (1, 1)]
    assert log.epochs.entries == [(0, 0), (1, 1)]


def test_truncation_removes_whole_segments_and_index_entries() -> None:
    disk = SimDisk()
    log = new_log(LogConfig(segment_bytes=500, index_interval_bytes=0), disk)
    for number in range(20):
        put(log, b"x" * 20, at=T0 + number)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    truncate_to(log, Offset(8), T0)
    assert stored(log) == [(n, n) for n in range(8)]
    assert lookup_timestamp(log, None) == (T0 + 7, 7, 0)
    assert log.segments[-1].offsets.last() == (2, log.segments[-1].size // 3 * 2)
    snapshots = {int(entry.name[:20]) for entry in disk.entries("/d/t-0") if entry.name.endswith(".snapshot")}
    assert snapshots == {base for base in bases[1:] if base <= 8} != set(bases[1:])
    put(log, b"y", epoch=1)
    assert stored(log)[-1] == (8, 8)


def test_truncation_below_the_first_segment_resets_the_log() -> None:
    log = new_log()
    truncate_fully(log, Offset(100), T0)
    put(log, b"a", epoch=3)
    assert stored(log) == [(100, 100)]
    truncate_to(log, Offset(50), T0)
    assert (bases(log), log.start_offset, log.end_offset, log.epochs.entries) == ([50], 50, 50, [])
    put(log, b"b", epoch=4)
    assert stored(log) == [(50, 50)]


def test_truncation_at_a_damaged_offset_ends_within_the_segment() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a", b"b", b"c", b"d")
    log.roll(T0)
    put(log, b"e", b"f", b"g", b"h")
    disk.open(log.active.path).write(0, (2).to_bytes(8))  # No checksum covers the base offset; it was 4.
    log.active.release()
    assert truncate_to(log, Offset(5), T0)
    assert (bases(log), log.end_offset, log.active.size) == ([0, 4], 4, 0)
    put(log, b"i")
    assert stored(log) == [(0, 3), (4, 4)]


def test_truncation_behind_a_damaged_offset_ignores_its_timestamp() -> None:
    """The time index has no entry for an offset outside of its segment."""
    disk = SimDisk()
    log = new_log(disk=disk)
    for at in T0, later(9), later(5), T0:
        put(log, b"a", b"b", at=at)
    position = log.active.locate(Offset(2))
    assert position is not None
    disk.open(log.active.path).write(position, (1 << 40).to_bytes(8))
    log.active.release()
    with pytest.raises(LogDamaged):
        log.read(Offset(2), 100, log.end_offset)
    assert truncate_to(log, Offset(log.end_offset - 1), T0)
    put(log, b"c")
    log.roll(T0)
    assert log.segments[0].largest() == (later(6), 5)


def test_truncation_at_a_damaged_offset_keeps_the_batches_before_it() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a", b"b", b"c", b"d")
    log.roll(T0)
    put(log, b"e", b"f")
    position = log.active.size
    put(log, *[b"g"] * 6)
    disk.open(log.active.path).write(position, (2).to_bytes(8))  # It was 6, and the batch seems to end at 7.
    log.active.release()
    assert truncate_to(log, Offset(7), T0)
    assert (log.end_offset, log.active.size) == (6, position)
    put(log, b"h")
    assert stored(log) == [(0, 3), (4, 5), (6, 6)]


def test_truncation_in_a_gap_behind_a_cut_behind_a_damage() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"a")
    position = log.active.size
    put(log, b"b")
    put(log, b"c")
    assert log.note_damage(LogDamaged(log.active.path, position, "x"))
    log.active.release()
    assert truncate_to(log, Offset(2), T0)
    far = batch(b"d")
    far.stamp(Offset(1 << 33), LeaderEpoch(0))
    log.append_as_follower([far], T0)
    assert truncate_to(log, Offset(5), T0)
    assert (bases(log), log.end_offset) == ([0], 5)


def test_truncation_may_find_a_wrong_index() -> None:
    """The read of the producers rebuilds it, with other entries than before."""
    disk = SimDisk()
    log = new_log(LogConfig(index_interval_bytes=0), disk)
    for number in range(12):
        raw = encode_batch([(None, b"v", (), T0)], producer_id=1, producer_epoch=0, base_sequence=number)
        log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), T0)
        if number == 5:
            log.snapshots.write(log.end_offset, list(log.producers))
    log.active.seal()
    log.active.release()
    number = log.active.offsets.count_at_or_below(6, 0) - 1
    delta, position = log.active.offsets.entry(number)
    assert delta == 6
    disk.open(log.active.offsets.path).write(number * OFFSET_ENTRY.size, OFFSET_ENTRY.pack(delta, position + 1))
    log.active.release()
    assert truncate_to(log, Offset(11), T0)
    assert (log.end_offset, [one.last_sequence for one in log.producers]) == (11, [10])
    put(log, b"c")
    assert stored(log) == [(number, number) for number in range(12)]


def test_lowered_recovery_point_is_reported_before_the_truncation() -> None:
    log = new_log()
    for _ in range(3):
        put(log, b"a", b"b")
    flush_now(log)
    reported: list[tuple[int, int]] = []
    log.on_recovery_point_lowered = lambda offset: reported.append((offset, log.segments[-1].size))
    size = log.size
    truncate_to(log, Offset(3), T0)
    assert reported == [(2, size)]
    put(log, b"c", epoch=1)
    truncate_to(log, Offset(2), T0)
    assert reported == [(2, size)], "not below the recovery point"


# ---------------------------------------------------------------- retention


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    log = new_log(LogConfig(segment_bytes=200, retention_bytes=500, retention_ms=-1))
    for _ in range(8):
        put(log, b"x" * 50)
    size = log.size // 8
    assert delete_old_segments(log, T0, log.end_offset) > 0
    assert 500 <= log.size < 500 + 2 * size
    assert log.start_offset == bases(log)[0] > 0


def test_retention_by_age_deletes_even_the_active_segment() -> None:
    log = new_log(LogConfig(retention_ms=1000))
    put(log, b"a", at=T0)
    log.roll(T0)
    put(log, b"b", at=T0 + 500)
    assert delete_old_segments(log, later(1000), Offset(2)) == 0
    assert delete_old_segments(log, later(1001), Offset(2)) == 1
    assert bases(log) == [1]
    assert delete_old_segments(log, later(1501), Offset(2)) == 1
    assert (bases(log), log.start_offset, log.end_offset, log.size) == ([2], 2, 2, 0)
    assert delete_old_segments(log, later(99_999_999), Offset(2)) == 0
    put(log, b"c")
    assert stored(log) == [(2, 2)]


def test_age_without_timestamps_is_that_of_the_file() -> None:
    disk = SimDisk()
    disk.now_ms = T0
    log = new_log(LogConfig(retention_ms=1000), disk)
    put(log, b"a", at=-1)
    assert delete_old_segments(log, later(1000), Offset(1)) == 0
    assert delete_old_segments(log, later(1001), Offset(1)) == 1


def test_retention_keeps_uncommitted_segments() -> None:
    log = new_log(LogConfig(retention_ms=0))
    for _ in range(3):
        put(log, b"a")
        log.roll(T0)
    assert delete_old_segments(log, later(10), Offset(1)) == 1
    assert log.start_offset == 1


def test_compacted_log_is_trimmed_only_below_its_start() -> None:
    log = new_log(LogConfig(retention_ms=0, retention_bytes=0, cleanup_delete=False, cleanup_compact=True))
    for _ in range(3):
        put(log, b"a")
        log.roll(T0)
    assert delete_old_segments(log, later(10), Offset(3)) == 0
    assert advance_start(log, Offset(2))
    assert delete_old_segments(log, later(10), Offset(3)) == 2
    assert bases(log) == [2, 3]


def test_delete_records_moves_the_start() -> None:
    log = new_log()
    put(log, b"a", b"b", b"c")
    put(log, b"d", epoch=2)
    assert advance_start(log, Offset(2))
    assert not advance_start(log, Offset(1))
    assert log.epochs.entries == [(0, 2), (2, 3)]
    with pytest.raises(Refused):
        log.read(Offset(1), 100, Offset(4))
    assert stored(log) == [(0, 2), (3, 3)], "the batch that has the start comes whole"
    with pytest.raises(Refused) as refused:
        advance_start(log, Offset(5))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_files_wait_and_readers_finish(tmp_path: Path) -> None:
    log = Log.open(RealDisk(), str(tmp_path), LogConfig(file_delete_delay_ms=DELAY), T0)
    put(log, b"kept by its reader")
    piece = log.read(Offset(0), 1000, Offset(1))
    log.roll(T0)
    advance_start(log, Offset(1))
    assert delete_old_segments(log, T0, Offset(1)) == 1
    assert log.reaper.reap(T0) == 0
    assert (tmp_path / "00000000000000000000.log.deleted").exists()
    assert log.reaper.reap(later(DELAY - 1)) == 0
    assert log.reaper.reap(later(DELAY)) == 3
    assert {path.suffix for path in tmp_path.glob("0*")} == {".log", ".index", ".timeindex", ".snapshot"}
    assert b"kept by its reader" in piece.read()
    assert log.reaper.reap(later(DELAY * 2)) == 0


def test_log_size_is_that_of_all_batches() -> None:
    log = new_log()
    expected = 0
    for number in range(4):
        expected += batch(b"x" * number).size
        put(log, b"x" * number)
        log.roll(T0)
    assert log.size == expected


@pytest.mark.parametrize(("cut", "expected"), [("start", [0, 1, 2]), ("end", [4, 3, 2])])
def test_segments_are_deleted_from_the_outside_in(
    cut: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop midway leaves no hole."""
    disk = SimDisk()
    log = new_log(LogConfig(retention_ms=-1), disk)
    for _ in range(5):
        put(log, b"a")
        log.roll(T0)
    renamed: list[str] = []
    rename = disk.rename

    def watched(old: str, new: str) -> None:
        renamed.append(old)
        rename(old, new)

    monkeypatch.setattr(disk, "rename", watched)
    if cut == "start":
        advance_start(log, Offset(3))
        delete_old_segments(log, T0, Offset(5))
        log.reaper.reap(T0)
    else:
        truncate_to(log, Offset(1), T0)
    logs = [int(path[-24:-4]) for path in renamed if path.endswith(".log")]
    assert logs == expected if cut == "start" else logs == [5, *expected]
