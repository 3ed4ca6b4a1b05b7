"""Data that recovery truncates and quarantines, and logs with a missing segment."""

from __future__ import annotations

from pathlib import Path

import pytest
from simdisk import SimDisk

from odradek.base.units import BrokerId, Offset, TopicName, TopicPartition
from odradek.base.uuids import from_text
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import Disk, RealDisk
from odradek.log.files.disk_failures import SegmentMissing
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import parse_segment_file
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start
from odradek.log.segment.checkpoints import read_damages
from odradek.log.segment.scan import walk
from support.logs import T0, put, stored

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_compact=True)
TOPIC_ID = from_text("a67ft7QwQvaXgreHgpGCEA")
T = TopicPartition(TopicName("t"), 0)


@pytest.fixture(params=["simulated", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path / "data")
    return SimDisk(), "/data"


def open_directory(disk: Disk, path: str, config: LogConfig = CONFIG) -> LogDirectory:
    return open_log_directory(
        disk, path, T0, broker_id=BrokerId(1), cluster_id="cluster", config_of=lambda topic: config
    )


def create_log(disk: Disk, path: str, batches: int = 18) -> tuple[LogDirectory, Log]:
    """Return a log of at least three segments, whose batches have one and two records in turn."""
    directory = open_directory(disk, path)
    log = directory.create(T, TOPIC_ID, CONFIG, T0)
    for number in range(batches):
        put(log, *[b"value %d" % number] * (1 + number % 2), at=T0 + number)
    assert len(log.segments) >= 4
    return directory, log


def asides(disk: Disk, path: str) -> list[str]:
    return sorted(entry.name for entry in disk.entries(f"{path}/t-0") if ".aside" in entry.name)


def content(disk: Disk, path: str) -> bytes:
    return disk.open(path).pread(0, 10_000)


def flip(disk: Disk, path: str, position: int) -> None:
    file = disk.open(path)
    file.write(position, bytes([file.pread(position, 1)[0] ^ 1]))


def rename(disk: Disk, path: str, offset: int, suffix: str = ".log") -> None:
    disk.rename(f"{path}/t-0/{offset:020d}{suffix}", f"{path}/t-0/away-{offset}{suffix}")


def remove(disk: Disk, path: str, offset: int) -> None:
    """Delete all files of one segment."""
    for entry in disk.entries(f"{path}/t-0"):
        if (parsed := parse_segment_file(entry.name)) and parsed[0] == offset:
            disk.unlink(f"{path}/t-0/{entry.name}")


# ---------------------------------------------------------------- set aside


def test_data_after_a_damage_is_quarantined_and_counted(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    _, second, *later = log.segments
    places = list(second.places(0))
    damaged = places[1]
    tail = content(disk, second.path)[damaged.position :]
    wholes = {segment.base_offset: content(disk, segment.path) for segment in later}
    records = log.end_offset - places[2].base_offset
    size = sum(map(len, wholes.values())) + len(tail)
    kept = [each for each in stored(log) if each[0] < damaged.base_offset]
    directory.abandon()
    flip(disk, second.path, damaged.position + 65)
    again = open_directory(disk, path)
    tail_name = f"{damaged.base_offset:020d}.log.aside"
    assert [text.partition(": checksum")[0] for text in again.problems] == [
        f"t-0: truncated to offset {damaged.base_offset} (byte {damaged.position} of {second.name}"
    ]
    (problem,) = again.problems
    where = f"{path}/t-0/{tail_name} and {len(later)} more files"
    assert problem.endswith(f"; at least {records} records in {size} bytes were moved to {where}")
    assert stored(again.logs[T]) == kept
    assert asides(disk, path) == sorted([tail_name, *(f"{base:020d}.log.aside" for base in wholes)])
    assert content(disk, f"{path}/t-0/{tail_name}")[66:] == flipped(tail)[66:]
    for base, whole in wholes.items():
        if base != damaged.base_offset:
            assert content(disk, f"{path}/t-0/{base:020d}.log.aside") == whole
    before = [content(disk, f"{path}/t-0/{name}") for name in asides(disk, path)]
    put(again.logs[T], b"goes on")
    assert again.close(T0) == []
    third = open_directory(disk, path)
    assert (third.problems, third.logs[T].end_offset) == ([], damaged.base_offset + 1)
    assert [content(disk, f"{path}/t-0/{name}") for name in asides(disk, path)] == before


def flipped(tail: bytes) -> bytes:
    return tail[:65] + bytes([tail[65] ^ 1]) + tail[66:]


def test_batch_with_a_lost_length_hides_no_later_batches(place: tuple[Disk, str]) -> None:
    """The start of the following data is searched and found."""
    disk, path = place
    directory, log = create_log(disk, path)
    damaged = list(log.segments[0].places(0))[1]
    directory.abandon()
    disk.open(log.segments[0].path).write(damaged.position + 8, b"\x7f")
    (problem,) = open_directory(disk, path).problems
    assert f"; at least {log.end_offset - damaged.last_offset - 1} records in " in problem


def test_torn_tail_is_truncated_with_a_short_log_line(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    directory.abandon()
    disk.open(log.segments[-1].path).truncate(log.segments[-1].size - 10)
    again = open_directory(disk, path)
    (problem,) = again.problems
    assert problem.endswith("bytes of an incomplete batch at the log end")
    assert asides(disk, path) == []


def test_preallocated_space_is_not_quarantined(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    flush_now(log)
    directory.checkpoints.write_now()
    directory.abandon()
    disk.open(log.segments[-1].path).truncate(log.segments[-1].size + 3_000)
    again = open_directory(disk, path)
    assert again.problems == ["t-0: truncated 3000 bytes of an incomplete batch at the log end"]
    assert asides(disk, path) == []


def test_a_synced_batch_is_never_a_torn_write(place: tuple[Disk, str]) -> None:
    """For the last batch of a log: nothing can be read after it, but it was durable."""
    disk, path = place
    directory, log = create_log(disk, path)
    flush_now(log)
    directory.checkpoints.write_now()
    (*_, last) = log.segments[-1].places(0)
    directory.abandon()
    flip(disk, log.segments[-1].path, last.end_position - 1)
    (problem,) = open_directory(disk, path).problems
    assert f"; at least 0 records in {last.size} bytes were moved to " in problem
    assert asides(disk, path) == [f"{last.base_offset:020d}.log.aside"]


def test_log_that_ends_before_its_synced_end_is_reported(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    remove(disk, path, log.segments[-1].base_offset)
    end = log.segments[-1].base_offset
    assert open_directory(disk, path).problems == [
        f"t-0: the log end offset {end} is below the recovery point {log.end_offset}"
    ]


def test_repeated_quarantine_loses_nothing(place: tuple[Disk, str]) -> None:
    """Two damages at one offset, one after the other, give two files."""
    disk, path = place
    directory, log = create_log(disk, path)
    damaged = list(log.segments[0].places(0))[1]
    for _ in range(2):
        directory.abandon()
        flip(disk, log.segments[0].path, damaged.position + 65)
        directory = open_directory(disk, path)
        log = directory.logs[T]
        assert log.end_offset == damaged.base_offset
        for number in range(3):
            put(log, b"again %d" % number)
    tails = [name for name in asides(disk, path) if name.startswith(f"{damaged.base_offset:020d}")]
    assert tails == [f"{damaged.base_offset:020d}.log.aside", f"{damaged.base_offset:020d}.log.aside.2"]


def test_stop_amid_the_quarantine_loses_nothing() -> None:
    """Every call of the recovery fails permanently in turn; after a power failure the next start finds all data."""
    disk = SimDisk()
    _, log = create_log(disk, "/data")
    flush_now(log)
    damaged = list(log.segments[1].places(0))[1]
    flip(disk, log.segments[1].path, damaged.position + 65)
    expected = readable(disk)
    assert len(expected) == 18
    number = 0
    while True:
        again = disk.kill()
        again.fail_from(number)
        try:
            Log.open(again, "/data/t-0", CONFIG, T0)
            break
        except OSError:
            survivor = again.kill()
        Log.open(survivor, "/data/t-0", CONFIG, T0)
        assert readable(survivor) == expected, number
        number += 1
    assert number > 20


def test_quarantine_on_a_full_disk_loses_nothing() -> None:
    disk = SimDisk()
    directory, log = create_log(disk, "/data")
    expected = readable(disk)
    damaged = list(log.segments[0].places(0))[1]
    flip(disk, log.segments[0].path, damaged.position + 65)
    directory.abandon()
    before = {entry.name for entry in disk.entries("/data/t-0") if ".log" in entry.name}
    disk.room = 30
    full = open_directory(disk, "/data")
    assert "no room" in full.offline[T]
    assert {entry.name for entry in disk.entries("/data/t-0") if ".log" in entry.name} >= before
    full.abandon()
    disk.room = None
    again = open_directory(disk, "/data")
    assert again.logs[T].end_offset == damaged.base_offset
    assert readable(disk) == expected


def readable(disk: SimDisk) -> set[int]:
    """Return the base offsets of all batches in any .log or .log.aside; those in two files are counted once."""
    found = set()
    for entry in disk.entries("/data/t-0"):
        parsed = parse_segment_file(entry.name)
        if parsed and parsed[1] == ".log":
            file = disk.open(f"/data/t-0/{entry.name}")
            found |= {place.base_offset for place in walk(file, 0, file.size())}
    return found


# ---------------------------------------------------------------- a segment is missing


@pytest.mark.parametrize("what", ["its log", "all of it", "its bytes"])
def test_a_segment_missing_amid_a_log_takes_the_partition_offline(place: tuple[Disk, str], what: str) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    _, second, third, *_ = log.segments
    assert directory.close(T0) == []
    name = f"{path}/t-0/{second.base_offset:020d}.log"
    before = content(disk, name)
    if what == "its log":
        rename(disk, path, second.base_offset)
    elif what == "its bytes":
        disk.open(name).truncate(0)
    else:
        remove(disk, path, second.base_offset)
    sentence = (
        f"{name} is missing: the log has nothing from offset {second.base_offset} to {third.base_offset - 1}; "
        "restore the file, or truncate the log there with `odradek log verify --repair`"
    )
    for _ in range(3):  # However often it is started and stopped.
        again = open_directory(disk, path)
        assert again.offline == {T: sentence}
        assert again.logs == {}
        assert again.close(T0) == [f"t-0: {sentence}"]
    disk.create(name).write(0, before)
    healed = open_directory(disk, path)
    assert healed.offline == {}
    assert stored(healed.logs[T]) == stored(log)


def test_missing_segment_is_detected_after_a_kill(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    flush_now(log)
    directory.checkpoints.write_now()
    directory.abandon()
    rename(disk, path, log.segments[1].base_offset)
    assert set(open_directory(disk, path).offline) == {T}


def test_missing_unsynced_segment_does_not_take_the_log_offline(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    directory.abandon()
    rename(disk, path, log.segments[1].base_offset)
    again = open_directory(disk, path)
    assert again.logs[T].end_offset == log.segments[1].base_offset
    (problem,) = again.problems
    records = log.end_offset - log.segments[2].base_offset
    assert f"are missing); {records} records in " in problem


def test_requested_repair_truncates_at_the_missing_segment(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    rename(disk, path, log.segments[1].base_offset)
    again = Log.open(disk, f"{path}/t-0", CONFIG, T0, repairs=True)
    assert again.end_offset == log.segments[1].base_offset
    assert len(asides(disk, path)) == len(log.segments) - 2


@pytest.mark.parametrize("what", ["its log", "its bytes"])
def test_log_without_its_first_segment_is_offline(place: tuple[Disk, str], what: str) -> None:
    """Its index refers to the segment."""
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    name = f"{path}/t-0/{0:020d}.log"
    before = content(disk, name)
    if what == "its log":
        disk.unlink(name)
    else:
        disk.open(name).truncate(0)
    check_missing_until_restored(disk, path, log, before)


def test_possibly_missing_first_segment_is_reported_after_a_kill(
    place: tuple[Disk, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A power failure may have restored the index of a deleted log."""
    disk, path = place
    directory, log = create_log(disk, path)
    flush_now(log)
    directory.checkpoints.write_now()
    directory.abandon()
    disk.unlink(f"{path}/t-0/{0:020d}.log")
    again = open_directory(disk, path)
    assert (again.offline, again.logs[T].start_offset) == ({}, log.segments[1].base_offset)
    assert f"{path}/t-0/{0:020d}.log is missing" in caplog.text


@pytest.mark.parametrize("count", [1, 2])
def test_missing_first_segments_are_detected_without_a_trace(place: tuple[Disk, str], count: int) -> None:
    """Segments noted at our own clean stop exist at the next start, as nobody used the directory in between."""
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    missing = log.segments[:count]
    before = content(disk, missing[0].path)
    for segment in missing:
        remove(disk, path, segment.base_offset)
    sentence = missing_message(path, log, count)
    for clean in (True, False, True):  # However it is started and stopped.
        again = open_directory(disk, path)
        assert again.offline == {T: sentence}
        (damage,) = read_damages(disk, f"{path}/odradek-damage-checkpoint")
        assert (damage.file, damage.following, damage.why) == (
            f"{0:020d}.log", log.segments[count].base_offset, "the file is missing"
        )  # fmt: skip
        if clean:
            assert again.close(T0) == [f"t-0: {sentence}"]
        else:
            again.abandon()
    if count == 1:
        disk.create(missing[0].path).write(0, before)
        healed = open_directory(disk, path)
        assert (healed.offline, stored(healed.logs[T])) == ({}, stored(log))
        assert healed.close(T0) == []
        assert read_damages(disk, f"{path}/odradek-damage-checkpoint") == []


def missing_message(path: str, log: Log, count: int = 1) -> str:
    start = log.segments[count].base_offset
    return (
        f"{path}/t-0/{0:020d}.log is missing: the log has nothing from offset 0 to {start - 1}; restore the file, or "
        f"start the log at offset {start} with `odradek log verify --repair`"
    )


def check_missing_until_restored(disk: Disk, path: str, log: Log, before: bytes) -> None:
    for _ in range(3):
        again = open_directory(disk, path)
        assert again.offline == {T: missing_message(path, log)}
        assert again.close(T0) == [f"t-0: {missing_message(path, log)}"]
    disk.create(f"{path}/t-0/{0:020d}.log").write(0, before)
    healed = open_directory(disk, path)
    assert (healed.offline, stored(healed.logs[T])) == ({}, stored(log))


def test_requested_repair_starts_after_the_missing_first_segment(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    disk.unlink(f"{path}/t-0/{0:020d}.log")
    again = Log.open(disk, f"{path}/t-0", CONFIG, T0, repairs=True)
    assert (again.start_offset, again.end_offset) == (log.segments[1].base_offset, log.end_offset)
    assert asides(disk, path) == []


def test_first_segments_may_be_deleted_by_a_later_kafka_broker(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    remove(disk, path, 0)
    disk.create(f"{path}/.kafka_cleanshutdown").write(0, b'{"version":0,"brokerEpoch":-1}')  # As written by Kafka.
    again = open_directory(disk, path)
    assert again.logs[T].start_offset == log.segments[1].base_offset


def test_segments_below_the_log_start_may_be_missing(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    advance_start(log, Offset(log.segments[2].base_offset + 1))
    assert directory.close(T0) == []
    remove(disk, path, log.segments[1].base_offset)
    again = open_directory(disk, path)
    assert again.offline == {}
    assert again.logs[T].start_offset == log.start_offset


@pytest.mark.parametrize("by", ["its policy", "Kafka's checkpoint"])
def test_compacted_log_may_lack_segments(place: tuple[Disk, str], by: str) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    remove(disk, path, log.segments[1].base_offset)
    if by != "its policy":
        disk.create(f"{path}/cleaner-offset-checkpoint").write(0, b"0\n1\nt 0 9\n")
    again = open_directory(disk, path, COMPACTED if by == "its policy" else CONFIG)
    assert again.offline == {}
    assert again.logs[T].end_offset == log.end_offset


def test_stray_index_is_removed_if_no_offset_is_missing(place: tuple[Disk, str]) -> None:
    """A snapshot or index amid a segment, or a note of truncated data: the offsets show that the log is complete."""
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    stray = f"{path}/t-0/{log.segments[1].base_offset + 1:020d}.index"
    disk.create(stray).write(0, bytes(8))
    text = content(disk, f"{path}/odradek-segments-checkpoint")
    disk.create(f"{path}/odradek-segments-checkpoint").write(0, text.replace(b"t 0 0 ", b"t 0 0 1 2 "))
    again = open_directory(disk, path)
    assert again.offline == {}
    assert stored(again.logs[T]) == stored(log)
    assert stray.rpartition("/")[2] not in {entry.name for entry in disk.entries(f"{path}/t-0")}


def test_damaged_segment_note_is_ignored(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    disk.create(f"{path}/odradek-segments-checkpoint").write(0, b"0\n1\nt 0 x\n")
    again = open_directory(disk, path)
    assert len(again.problems) == 1
    assert stored(again.logs[T]) == stored(log)


def test_interrupted_segment_deletion_is_not_a_loss(place: tuple[Disk, str]) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    assert directory.close(T0) == []
    name = f"{path}/t-0/{log.segments[1].base_offset:020d}.log"
    disk.unlink(f"{path}/odradek-segments-checkpoint")
    disk.rename(name, name + ".deleted")
    assert open_directory(disk, path).offline == {}


# ---------------------------------------------------------------- half a roll


@pytest.mark.parametrize("clean", [True, False])
def test_empty_segment_amid_a_log_is_removed(place: tuple[Disk, str], clean: bool) -> None:
    """It would hide records above its base offset in the segment before."""
    disk, path = place
    directory, log = create_log(disk, path)
    expected = stored(log)
    if clean:
        assert directory.close(T0) == []
    else:
        directory.abandon()
    (_, second, *_) = log.segments
    half = f"{path}/t-0/{second.base_offset + 1:020d}.log"
    disk.create(half)
    again = open_directory(disk, path)
    assert (again.offline, stored(again.logs[T])) == ({}, expected)
    assert [put_first(again.logs[T], offset) for offset, _ in expected] == [offset for offset, _ in expected]
    assert half.rpartition("/")[2] not in {entry.name for entry in disk.entries(f"{path}/t-0")}


def put_first(log: Log, offset: int) -> int:
    """Return the position where a read of `offset` starts."""
    data = log.read(Offset(offset), 1, log.end_offset).read()
    return int.from_bytes(data[:8], "big")


@pytest.mark.parametrize("clean", [True, False])
def test_empty_last_segment_is_the_active_one(place: tuple[Disk, str], clean: bool) -> None:
    disk, path = place
    directory, log = create_log(disk, path)
    expected, end = stored(log), log.end_offset
    if clean:
        assert directory.close(T0) == []
    else:
        directory.abandon()
    disk.create(f"{path}/t-0/{end:020d}.log")
    again = open_directory(disk, path)
    assert (again.offline, stored(again.logs[T]), again.problems) == ({}, expected, [])
    assert again.logs[T].segments[-1].base_offset == end
    put(again.logs[T], b"goes on")
    assert again.logs[T].end_offset == end + 1


def test_missing_segment_has_its_own_exception() -> None:
    disk = SimDisk()
    directory, log = create_log(disk, "/data")
    assert directory.close(T0) == []
    disk.unlink(log.segments[1].path)
    with pytest.raises(SegmentMissing, match="is missing: the log has nothing from offset"):
        Log.open(disk, "/data/t-0", CONFIG, T0, clean_shutdown=True)
