"""Opening a log after any kind of stop: truncation, rebuilt files and cleanup."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from struct import pack

import pytest
from simdisk import SimDisk

from odradek.base.units import Offset, TimestampMs
from odradek.base.uuids import from_text
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log, flush_now
from odradek.log.log.log import Log
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.segment.checkpoints import BadCheckpoint, read_epochs, write_topic_id
from support.logs import T0, put, stored

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
DIRECTORY = "/d/t-0"


def stem(offset: int) -> str:
    return f"{DIRECTORY}/{offset:020d}"


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk


def create_log(disk: SimDisk, batches: int = 9, config: LogConfig = CONFIG) -> Log:
    """Return a log with a new epoch every third batch; batches have one and two records in turn."""
    log = Log.open(disk, DIRECTORY, config, T0)
    for number in range(batches):
        put(log, *[b"value %d" % number] * (1 + number % 2), at=T0 + number * 10, epoch=number // 3)
    return log


def reopen(
    disk: SimDisk,
    recovery_point: int = 0,
    *,
    clean: bool = False,
    start: int = 0,
    config: LogConfig = CONFIG,
    was_compacted: bool = False,
) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        config,
        T0,
        recovery_point=Offset(recovery_point),
        clean_shutdown=clean,
        start_offset=Offset(start),
        was_compacted=was_compacted,
    )


def files(disk: SimDisk) -> dict[str, int]:
    return {entry.name: entry.size for entry in disk.entries(DIRECTORY)}


def test_log_killed_at_any_byte_recovers_whole_batches() -> None:
    """A log of three segments, truncated at every byte in turn."""
    disk = new_disk()
    log = create_log(disk)
    expected = stored(log)
    ends = {segment.base_offset: segment.size for segment in log.segments}
    assert len(ends) == 3
    borders = [(segment, place.end_position) for segment in log.segments for place in segment.places(0)]
    for base, size in ends.items():
        for cut in range(size):
            survivor = new_disk()
            for other in (b for b in ends if b <= base):
                data = disk.open(stem(other) + ".log").pread(0, 10_000)
                survivor.create(stem(other) + ".log").write(0, data[:cut] if other == base else data)
            again = reopen(survivor)
            whole = sum(
                segment.base_offset < base or (segment.base_offset == base and end <= cut) for segment, end in borders
            )
            assert stored(again) == expected[:whole]
            assert again.end_offset == (expected[whole - 1][1] + 1 if whole else 0)


def test_log_killed_at_any_byte_recovers_on_real_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    log = Log.open(RealDisk(), str(source), LogConfig(index_interval_bytes=100), T0)
    for number in range(3):
        put(log, b"v" * number)
    size = log.size
    for cut in range(0, size + 1, 7):
        target = tmp_path / "target"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        with (target / "00000000000000000000.log").open("r+b") as file:
            file.truncate(cut)
        again = Log.open(RealDisk(), str(target), LogConfig(), T0)
        assert stored(again) == stored(log)[: len(stored(again))]
        put(again, b"after")
        assert stored(again)[-1][1] == again.end_offset - 1


APPEND_FOR_EVER = """
import sys
from odradek.base.units import LeaderEpoch
from odradek.log.files.log_config import LogConfig
from odradek.log.files.disk import RealDisk
from odradek.log.log.log import Log
from odradek.record.record_batch import Batch
from odradek.record.builder import encode_batch
log = Log.open(RealDisk(), sys.argv[1], LogConfig(segment_bytes=20_000, index_interval_bytes=300), 0)
raw = encode_batch([(None, b"v" * 50, (), 1)] * 3)
while True:
    log.append(Batch.trusted(memoryview(raw)), LeaderEpoch(0), 1)
    print(log.end_offset, flush=True)
"""


@pytest.mark.waits
def test_killed_process_loses_no_acknowledged_records(tmp_path: Path) -> None:
    command = [sys.executable, "-c", APPEND_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        acknowledged = [int(process.stdout.readline()) for _ in range(500)]
        process.kill()
        acknowledged += map(int, process.stdout.read().split())
    log = Log.open(RealDisk(), str(tmp_path), LogConfig(), T0)
    assert log.end_offset in (acknowledged[-1], acknowledged[-1] + 3)
    assert len(log.segments) > 4
    assert stored(log)[-1][1] == log.end_offset - 1


def test_any_flipped_byte_ends_the_log_there() -> None:
    disk = new_disk()
    log = create_log(disk, 4, LogConfig())
    expected = stored(log)
    places = list(log.segments[0].places(0))
    for place in places:
        # Base offset and leader epoch have no checksum, and the upper bytes of a size make it too large.
        for position in [8, 9, 16, *range(17, place.size)]:
            survivor = new_disk()
            data = bytearray(disk.open(stem(0) + ".log").pread(0, 10_000))
            data[place.position + position] ^= 0x10
            survivor.create(stem(0) + ".log").write(0, data)
            again = reopen(survivor)
            assert stored(again) == [each for each in expected if each[1] < place.base_offset]
            assert again.lost_bytes == log.size - place.position


def test_batch_that_ends_above_the_highest_offset_is_damaged() -> None:
    """No checksum covers the base offset."""
    disk = new_disk()
    log = create_log(disk, 2)
    end = stored(log)[0][1] + 1
    second = log.active.locate(Offset(end))
    assert second is not None
    for base in (1 << 63) - 1, (1 << 63) - 2:
        disk.open(log.active.path).write(second, base.to_bytes(8))
        again = reopen(disk)
        assert (again.end_offset, len(stored(again))) == (end, 1)
        put(again, b"second", b"third")


def test_damage_in_a_segment_of_the_highest_offsets_ends_the_log() -> None:
    """A name made up for a copied file may hold any offset."""
    disk = new_disk()
    base = (1 << 63) - 10
    disk.create(f"{stem(base)}.log").write(0, b"\xff" * 100)
    log = reopen(disk)
    assert (log.segments[0].base_offset, log.end_offset, log.size) == (base, base, 0)


def test_records_after_a_damage_are_truncated() -> None:
    disk = new_disk()
    log = create_log(disk)
    before = stored(log)
    second = log.segments[1]
    place = next(iter(second.places(0)))
    disk.open(second.path).write(place.end_position + 70, b"\xff")
    disk.create(f"{DIRECTORY}/{log.end_offset:020d}.snapshot")
    again = reopen(disk)
    assert stored(again) == [each for each in before if each[1] < place.last_offset + 1]
    assert again.end_offset == place.last_offset + 1
    names = files(disk)
    assert f"{log.segments[2].base_offset:020d}.log" not in names
    assert [name for name in names if name.endswith(".snapshot")] == [f"{second.base_offset:020d}.snapshot"]
    put(again, b"goes on", epoch=7)
    assert stored(again)[-1] == (again.end_offset - 1, again.end_offset - 1)


def test_lost_end_of_a_segment_is_a_hole_that_ends_the_log() -> None:
    disk = new_disk()
    log = create_log(disk)
    (*_, last) = log.segments[0].places(0)
    disk.open(log.segments[0].path).truncate(last.position)
    assert reopen(disk, log.segments[0].base_offset).end_offset == last.base_offset


@pytest.mark.parametrize("by", ["its policy", "what its broker noted"])
def test_holes_of_a_compacted_log_are_accepted(by: str) -> None:
    disk = new_disk()
    log = create_log(disk)
    before = stored(log)
    (*_, last) = log.segments[0].places(0)
    disk.open(log.segments[0].path).truncate(last.position)
    config = LogConfig(segment_bytes=400, cleanup_compact=by == "its policy")
    again = reopen(disk, config=config, was_compacted=by != "its policy")
    assert again.end_offset == log.end_offset
    assert (last.base_offset, last.last_offset) not in stored(again)
    assert stored(again) == [each for each in before if each[0] != last.base_offset]


def test_only_unsynced_data_is_checked() -> None:
    disk = new_disk()
    log = create_log(disk)
    flush_now(log)
    disk.open(log.segments[0].path).write(70, b"\xff")
    assert reopen(disk, log.recovery_point).end_offset == log.end_offset
    assert reopen(disk, 0).end_offset == 0


def test_the_segment_sealed_after_the_last_flush_is_checked_too() -> None:
    disk = new_disk()
    log = create_log(disk, 3)
    flush_now(log)
    log.roll(T0)
    disk.open(stem(0) + ".index").truncate(0)
    again = reopen(disk, log.end_offset)
    assert len(again.segments[0].offsets) == 1, "made again"


# ---------------------------------------------------------------- indexes


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "odd size", "junk"])
def test_indexes_are_rebuilt(clean: bool, damage: str) -> None:
    disk = new_disk()
    log = create_log(disk, 20)
    close_log(log, T0)
    before = {name: disk.open(f"{DIRECTORY}/{name}").pread(0, 9999) for name in files(disk) if "index" in name}
    for name in before:
        if damage == "missing":
            disk.unlink(f"{DIRECTORY}/{name}")
        else:
            file = disk.create(f"{DIRECTORY}/{name}")
            file.write(0, b"\xff" * (5 if damage == "odd size" else 24))
    again = reopen(disk, log.end_offset if clean else 0, clean=clean)
    assert stored(again) == stored(log)
    if damage != "junk" or not clean:
        close_log(again, T0)
        assert {name: disk.open(f"{DIRECTORY}/{name}").pread(0, 9999) for name in before} == before


def test_contradicted_clean_shutdown_marker_is_ignored() -> None:
    disk = new_disk()
    log = create_log(disk)
    before = stored(log)
    close_log(log, T0)
    disk.open(log.segments[-1].path).truncate(log.segments[-1].size - 3)
    again = reopen(disk, log.end_offset, clean=True)
    assert stored(again) == before[:-1]
    assert again.recovery_point == again.end_offset


def test_zeros_in_a_time_index_are_not_times() -> None:
    disk = new_disk()
    log = create_log(disk)
    close_log(log, T0)
    name = log.segments[0].times.path
    disk.open(name).write(disk.size(name), bytes(12))
    again = reopen(disk, log.end_offset, clean=True)
    assert again.segments[0].largest() == log.segments[0].largest()


# ---------------------------------------------------------------- offsets, epochs, ids


def test_start_offset_comes_from_the_checkpoint() -> None:
    disk = new_disk()
    log = create_log(disk)
    close_log(log, T0)
    again = reopen(disk, log.end_offset, clean=True, start=5)
    assert (again.start_offset, again.end_offset) == (5, log.end_offset)
    assert again.epochs.entries == [(1, 5), (2, 9)]


def test_log_that_ends_before_its_start_is_reset_to_the_start() -> None:
    disk = new_disk()
    create_log(disk)
    disk.open(stem(6) + ".log").truncate(100)
    again = reopen(disk, start=8)
    assert (again.start_offset, again.end_offset, again.recovery_point, again.size) == (8, 8, 8, 0)
    put(again, b"x")
    assert stored(again) == [(8, 8)]


def test_damage_below_the_start_loses_nothing() -> None:
    disk = new_disk()
    log = create_log(disk)
    disk.open(stem(0) + ".log").truncate(100)
    again = reopen(disk, start=8)
    assert (again.start_offset, again.end_offset, again.lost_bytes) == (8, log.end_offset, 0)
    assert stem(0).removeprefix(f"{DIRECTORY}/") + ".log" not in files(disk)


def test_epochs_are_restored_from_scanned_batches() -> None:
    disk = new_disk()
    log = create_log(disk)
    expected = log.epochs.entries
    for content in (b"", b"0\n9\nnonsense", b"0\n1\n0 0\n", b"0\n2\n0 0\n9 4\n", None):
        disk.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
        if content is not None:
            disk.create(f"{DIRECTORY}/leader-epoch-checkpoint").write(0, content)
        again = reopen(disk)
        assert again.epochs.entries == expected
        assert read_epochs(disk, DIRECTORY) == expected


def test_damaged_epoch_file_is_rebuilt_after_a_clean_stop() -> None:
    disk = new_disk()
    log = create_log(disk)
    close_log(log, T0)
    disk.create(f"{DIRECTORY}/leader-epoch-checkpoint").write(0, b"junk")
    assert reopen(disk, log.end_offset, clean=True).epochs.entries == log.epochs.entries


def test_the_topic_id_is_read() -> None:
    disk = new_disk()
    topic_id = from_text("a67ft7QwQvaXgreHgpGCEA")
    write_topic_id(disk, DIRECTORY, topic_id)
    assert create_log(disk).topic_id == topic_id
    disk.create(f"{DIRECTORY}/partition.metadata").write(0, b"version: 9\n")
    with pytest.raises(BadCheckpoint):
        reopen(disk)


# ---------------------------------------------------------------- leftovers


def copy(disk: SimDisk, old: str, new: str) -> None:
    disk.create(new).write(0, disk.open(old).pread(0, 10_000))


def test_deleted_cleaned_and_orphaned_files_are_removed() -> None:
    disk = new_disk()
    log = create_log(disk)
    close_log(log, T0)
    kept = set(files(disk))
    for name in (
        "00000000000000000077.log.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.index.cleaned",
        "00000000000000000077.index",
        "00000000000000000077.txnindex",
        "leader-epoch-checkpoint.tmp",
    ):
        disk.create(f"{DIRECTORY}/{name}").write(0, b"x" * 30)
    disk.create(f"{DIRECTORY}/{0:020d}.txnindex")
    again = reopen(disk, log.end_offset, clean=True)
    assert stored(again) == stored(log)
    assert f"{log.end_offset:020d}.snapshot" in kept
    assert set(files(disk)) - kept == {f"{0:020d}.txnindex"}


def test_a_complete_compaction_is_finished() -> None:
    """Two segments become one .swap; the stop happened after that rename, before or amid their deletion."""
    for sources_deleted in (0, 1):
        disk = new_disk()
        log = create_log(disk)
        before, end = stored(log), log.end_offset
        first, second, third = log.segments
        close_log(log, T0)
        merged = b"".join(disk.open(s.path).pread(0, 9999) for s in (first, second))
        disk.create(first.path + ".swap").write(0, merged)
        disk.create(first.offsets.path + ".swap")
        disk.create(first.times.path + ".swap")
        if sources_deleted:
            disk.rename(second.path, second.path + ".deleted")
        again = reopen(disk, end, clean=True)
        assert [segment.base_offset for segment in again.segments] == [first.base_offset, third.base_offset]
        assert stored(again) == before
        assert not any(name.endswith((".swap", ".deleted")) for name in files(disk))


def test_an_incomplete_compaction_is_undone() -> None:
    """A .cleaned file at or below a .swap: not every output was complete, so the sources are used."""
    disk = new_disk()
    log = create_log(disk)
    close_log(log, T0)
    second = log.segments[1]
    disk.create(second.path + ".swap").write(0, b"")
    disk.create(log.segments[0].path + ".cleaned").write(0, b"")
    again = reopen(disk, log.end_offset, clean=True)
    assert stored(again) == stored(log)
    assert not any(name.endswith((".swap", ".cleaned")) for name in files(disk))


def test_lone_index_swap_file_is_removed() -> None:
    disk = new_disk()
    log = create_log(disk)
    close_log(log, T0)
    disk.create(log.segments[0].offsets.path + ".swap").write(0, b"junkjunk")
    again = reopen(disk, log.end_offset, clean=True)
    assert stored(again) == stored(log)
    assert not any(name.endswith(".swap") for name in files(disk))


# ---------------------------------------------------------------- formats before 2


def old_message(offset: int, magic: int, value: bytes, timestamp: int) -> bytes:
    body = pack(">bb", magic, 0) + (pack(">q", timestamp) if magic else b"") + pack(">ii", -1, len(value)) + value
    message = pack(">I", zlib.crc32(body)) + body
    return pack(">qi", offset, len(message)) + message


@pytest.mark.parametrize("clean", [True, False])
def test_logs_of_old_brokers_open_and_accept_appends(clean: bool) -> None:
    disk = new_disk()
    old = [old_message(0, 0, b"a" * 40, 0), old_message(1, 1, b"b", T0), old_message(2, 1, b"", T0 + 5)]
    file = disk.create(stem(0) + ".log")
    file.write(0, b"".join(old))
    log = reopen(disk, 3 if clean else 0, clean=clean)
    assert (log.end_offset, log.epochs.entries, log.topic_id) == (3, [], None)
    assert log.read(Offset(1), 10_000, Offset(3)).read() == old[1] + old[2]
    assert log.read(Offset(2), 1, Offset(3)).read() == old[2]
    found = lookup_timestamp(log, TimestampMs(T0 + 1))
    assert found == (T0 + 5, 2, -1)
    put(log, b"new", at=T0 + 9, epoch=4)
    assert log.epochs.entries == [(4, 3)]
    assert log.read(Offset(3), 1000, Offset(4)).size > 61
    file.truncate(len(old[0]) + 30)
    assert reopen(disk).end_offset == 1
