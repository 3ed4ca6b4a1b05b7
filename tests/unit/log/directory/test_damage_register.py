"""The register of damage found in open logs: written, kept over a restart, and revised."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.damage_register import MISSING, DamageRegister
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed, RealDisk
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import DAMAGES
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start, delete_old_segments
from odradek.log.log.truncation import truncate_to
from odradek.log.segment.checkpoints import read_damages, write_damages
from odradek.log.segment.damage import KnownDamage
from odradek.record.record_batch import iter_batches
from support.logs import T0, put

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
T = TopicPartition(TopicName("t"), 0)
BATCHES, DAMAGED = 40, 5
LATER = TimestampMs(T0 + 1000)
BODY, LENGTH = 61, 8  # Damaged bytes of a batch: one breaks the checksum, one breaks a walk.


def open_directory(path: Path) -> LogDirectory:
    return open_log_directory(
        RealDisk(), str(path), T0, broker_id=BrokerId(1), cluster_id="c", config_of=lambda _: CONFIG
    )


def position_of(log: Log, offset: int) -> int:
    found = log.read(Offset(offset), 1, log.end_offset)
    assert log.segments[0].path == found.file.path
    return found.position


def flip(log: Log, position: int) -> None:
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x7F
    path.write_bytes(data)
    log.segments[0].release()


def create_damaged_log(path: Path, byte: int = BODY, at: int = T0) -> tuple[LogDirectory, int]:
    """Return a log of some segments, with one damaged batch in the first, and its position."""
    directory = open_directory(path)
    log = directory.create(T, None, CONFIG, T0)
    for number in range(BATCHES):
        put(log, b"%d" % number * 20, at=at)
    flush_now(log, T0)
    assert len(log.segments) > 2
    position = position_of(log, DAMAGED)
    flip(log, position + byte)
    return directory, position


def find(directory: LogDirectory, position: int) -> None:
    log = directory.logs[T]
    log.note_damage(LogDamaged(log.segments[0].path, position, "the  checksum\nis wrong"))


def run_housekeeping(directory: LogDirectory, now: TimestampMs = T0) -> bool:
    """Return whether something was written."""
    write = directory.begin_damages(now)
    if write is not None:
        assert directory.begin_damages(now) is None, "one write at a time"
        write.run()
    return write is not None


def known_damages(path: Path) -> list[KnownDamage]:
    return read_damages(RealDisk(), f"{path}/{DAMAGES}")


def served_offsets(log: Log, offsets: Iterable[int]) -> list[int]:
    found: list[int] = []
    for offset in offsets:
        try:
            records = log.read(Offset(offset), 1, log.end_offset)
        except LogDamaged:
            continue
        found += [one.base_offset for one in iter_batches(records.read())]
    return found


@pytest.fixture
def found(tmp_path: Path) -> tuple[LogDirectory, KnownDamage]:
    directory, position = create_damaged_log(tmp_path)
    find(directory, position)
    assert run_housekeeping(directory, LATER)
    expected = KnownDamage(T, f"{0:020d}.log", position, Offset(DAMAGED + 1), LATER, "the checksum is wrong")
    return directory, expected


def test_damage_is_written_once(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    directory, expected = found
    assert known_damages(tmp_path) == [expected]
    find(directory, expected.position)
    assert not run_housekeeping(directory, TimestampMs(LATER + 1))


def test_clean_stop_writes_the_last_damage(tmp_path: Path) -> None:
    directory, position = create_damaged_log(tmp_path)
    find(directory, position)
    assert directory.close(LATER) == []
    assert [one.since_ms for one in known_damages(tmp_path)] == [LATER]


@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_batch_is_not_served_after_a_restart(
    tmp_path: Path, found: tuple[LogDirectory, KnownDamage], is_clean: bool
) -> None:
    """The time of the first discovery is kept; only that batch is withheld."""
    directory, expected = found
    if is_clean:
        assert directory.close(T0) == []
    else:
        directory.checkpoints.write_now()
        directory.abandon()
    again = open_directory(tmp_path)
    assert served_offsets(again.logs[T], range(BATCHES)) == [one for one in range(BATCHES) if one != DAMAGED]
    assert not run_housekeeping(again)
    assert known_damages(tmp_path) == [expected]


def test_recovery_quarantines_the_damage(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    """If nothing shows that the log was synced."""
    directory, _ = found
    directory.abandon()
    again = open_directory(tmp_path)
    assert again.logs[T].end_offset == DAMAGED
    assert run_housekeeping(again)
    assert known_damages(tmp_path) == []


def test_retention_removes_the_damage(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    directory, _ = found
    log = directory.logs[T]
    advance_start(log, log.segments[1].base_offset)
    delete_below_start(log, T0)
    assert run_housekeeping(directory)
    assert known_damages(tmp_path) == []
    assert not run_housekeeping(directory)


def test_retention_by_time_passes_the_damage(tmp_path: Path) -> None:
    """No timestamp shows the age of the segment, and not all of it can be read."""
    directory, _ = create_damaged_log(tmp_path, LENGTH, at=-1)
    assert directory.close(T0) == []
    again = open_directory(tmp_path)
    log = again.logs[T]
    log.config = LogConfig(segment_bytes=1000, retention_ms=1)
    first = log.segments[0].base_offset
    assert delete_old_segments(log, TimestampMs(1 << 45), log.end_offset)
    assert log.segments[0].base_offset > first


def test_truncation_removes_the_damage(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    directory, _ = found
    truncate_to(directory.logs[T], Offset(DAMAGED - 1), T0)
    assert run_housekeeping(directory)
    assert known_damages(tmp_path) == []


def test_topic_deletion_removes_the_damage(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    directory, _ = found
    directory.delete(T, T0)
    assert run_housekeeping(directory)
    assert known_damages(tmp_path) == []


def test_restored_file_is_served(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    directory, expected = found
    flip(directory.logs[T], expected.position + BODY)
    assert directory.close(T0) == []
    again = open_directory(tmp_path)
    assert served_offsets(again.logs[T], range(BATCHES)) == list(range(BATCHES))
    assert run_housekeeping(again)
    assert known_damages(tmp_path) == []


@pytest.mark.parametrize("shift", [-1, 1, 7])
def test_position_without_a_batch_is_ignored(
    tmp_path: Path, found: tuple[LogDirectory, KnownDamage], shift: int
) -> None:
    directory, expected = found
    flip(directory.logs[T], expected.position + BODY)
    assert directory.close(T0) == []
    path = tmp_path / DAMAGES
    path.write_text(path.read_text().replace(f" {expected.position} ", f" {expected.position + shift} "))
    again = open_directory(tmp_path)
    assert served_offsets(again.logs[T], range(BATCHES)) == list(range(BATCHES))


def test_damage_found_by_a_read_that_stops_before_is_written(tmp_path: Path) -> None:
    directory, position = create_damaged_log(tmp_path, LENGTH)
    assert directory.close(T0) == []
    again = open_directory(tmp_path)
    log = again.logs[T]
    begin = position_of(log, DAMAGED - 1)
    records = log.read(Offset(DAMAGED - 1), position - begin + 50, log.end_offset)
    assert records.position + records.size == position
    assert run_housekeeping(again)
    assert [(one.position, one.following) for one in known_damages(tmp_path)] == [(position, DAMAGED + 1)]


def test_failed_write_of_the_register_is_repeated(tmp_path: Path) -> None:
    directory, position = create_damaged_log(tmp_path)
    find(directory, position)
    (tmp_path / DAMAGES).mkdir()
    write = directory.begin_damages(T0)
    assert write is not None
    with pytest.raises(DiskFailed):
        write.run()
    (tmp_path / DAMAGES).rmdir()
    assert run_housekeeping(directory)
    assert len(known_damages(tmp_path)) == 1


@pytest.mark.parametrize("text", ["0\n1\n", "0\n1\nt 0 f why\n", "0\n1\nt x f 1 2 3 why\n", "\xff"])
def test_bad_register_is_reported_and_rewritten(tmp_path: Path, text: str) -> None:
    directory, position = create_damaged_log(tmp_path)
    assert directory.close(T0) == []
    (tmp_path / DAMAGES).write_text(text, "latin-1")
    again = open_directory(tmp_path)
    (problem,) = again.problems
    assert DAMAGES in problem
    assert run_housekeeping(again)
    assert known_damages(tmp_path) == []
    find(again, position)
    assert run_housekeeping(again)
    assert len(known_damages(tmp_path)) == 1


def test_damage_of_an_unopenable_log_is_kept(tmp_path: Path, found: tuple[LogDirectory, KnownDamage]) -> None:
    directory, expected = found
    assert directory.close(T0) == []
    metadata = tmp_path / "t-0" / "partition.metadata"
    before = metadata.read_bytes() if metadata.exists() else None
    metadata.write_text("version: 7\n")
    again = open_directory(tmp_path)
    assert T in again.offline
    assert not run_housekeeping(again)
    again.abandon()
    metadata.unlink() if before is None else metadata.write_bytes(before)
    assert served_offsets(open_directory(tmp_path).logs[T], [DAMAGED]) == []
    assert known_damages(tmp_path) == [expected]


def test_damage_behind_a_cut_is_not_noted(tmp_path: Path) -> None:
    """A thread may have read there before the log was cut."""
    directory, _ = create_damaged_log(tmp_path)
    log = directory.logs[T]
    assert not log.note_damage(LogDamaged(log.active.path, log.active.size, "a walk has failed"))
    assert log.damaged_places == 0
    directory.abandon()


def test_stored_damage_of_a_file_that_is_no_segment_is_ignored(tmp_path: Path) -> None:
    write_damages(RealDisk(), f"{tmp_path}/{DAMAGES}", [KnownDamage(T, "-1.log", 0, Offset(1), T0, MISSING)])
    damages = DamageRegister(RealDisk(), str(tmp_path))
    assert damages.load() == []
    assert damages.missing(T) == []
