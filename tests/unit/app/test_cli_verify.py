"""odradek log verify, on logs that were written by a broker and then damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.app.main import main
from odradek.base.units import BrokerId, Offset, TopicName, TopicPartition
from odradek.log.directory.damage_register import MISSING
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import DAMAGES, LOG, SEGMENT_SUFFIXES
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.segment.checkpoints import write_damages
from odradek.log.segment.damage import KnownDamage
from support.logs import T0, put, stored

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
GOOD, BAD = (TopicPartition(TopicName(name), 0) for name in ("good", "people"))


def open_directory(data: Path) -> LogDirectory:
    return open_log_directory(
        RealDisk(), str(data), T0, broker_id=BrokerId(1), cluster_id="cluster", config_of=lambda topic: CONFIG
    )


def create_logs(data: Path) -> tuple[LogDirectory, Log]:
    """Create two logs of five segments each, and return the second."""
    directory = open_directory(data)
    for name in (GOOD, BAD):
        log = directory.create(name, None, CONFIG, T0)
        for number in range(18):
            put(log, *[b"value %d" % number] * (1 + number % 2), at=T0 + number)
    return directory, log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def log(data: Path) -> Log:
    """Return a log as left by a clean stop."""
    directory, log = create_logs(data)
    assert directory.close(T0) == []
    return log


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    capsys.readouterr()
    status = main(["log", "verify", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


def write(path: str | Path, position: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(position)
        file.write(data)


def contents(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_intact_logs_have_no_faults(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(data)
    assert run(capsys, data) == (0, ["2 logs, 10 segments, 36 batches, 2.9 KiB: no faults"], "")
    assert run(capsys, data / "people-0")[1] == ["1 log, 5 segments, 18 batches, 1.5 KiB: no faults"]
    assert contents(data) == before


@pytest.mark.parametrize("file", ["-1.log", "unknown"])
def test_stored_damage_of_a_file_that_is_no_segment_is_ignored(
    data: Path, log: Log, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint of damages has no checksum."""
    write_damages(RealDisk(), f"{data}/{DAMAGES}", [KnownDamage(BAD, file, 0, Offset(1), T0, MISSING)])
    for suffix in SEGMENT_SUFFIXES:
        Path(f"{log.directory}/{log.segments[0].name.removesuffix(LOG)}{suffix}").unlink(missing_ok=True)
    status, lines, error = run(capsys, data)
    assert (status, error) == (1, "")
    assert f"{log.segments[0].name} is missing" in lines[0]


@pytest.mark.parametrize("what", ["its log", "all of it"])
def test_repair_of_a_log_without_its_first_segment(
    data: Path, log: Log, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker does not open it; the repaired log starts later, and loses nothing else."""
    first, second = log.segments[:2]
    Path(first.path).unlink()
    if what == "all of it":
        Path(first.offsets.path).unlink()
        Path(first.times.path).unlink()
    start = second.base_offset
    refused = open_directory(data)
    assert f"start the log at offset {start} with `odradek log verify --repair`" in refused.offline[BAD]
    assert refused.close(T0)
    status, lines, _ = run(capsys, data)
    assert status == 1
    assert f"{first.path} is missing: the log has nothing from offset 0 to {start - 1}" in lines[0]
    assert run(capsys, data, "--repair")[0] == 0
    again = open_directory(data)
    assert (again.offline, again.logs[BAD].start_offset, again.logs[BAD].end_offset) == ({}, start, log.end_offset)
    assert again.close(T0) == []
    assert run(capsys, data)[0] == 0


def test_every_damage_is_reported_with_its_position(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = log.segments[1], log.segments[3]
    one, other = list(first.places(0))[1], next(iter(second.places(0)))
    write(first.path, one.position + 65, b"\xff")
    write(second.path, other.position + 10, b"\x7f")
    status, lines, _ = run(capsys, data)
    assert status == 1
    assert lines[0].startswith(f"people-0: byte {one.position} of {first.name}: checksum 0x")
    assert lines[1].startswith(f"people-0: byte 0 of {second.name}: the batch size ")
    assert lines[2:] == ["2 logs, 10 segments, 34 batches, 2.9 KiB: 2 faults"]


def test_verify_writes_json(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    write(log.segments[0].path, 65, b"\xff")
    status, (line,), _ = run(capsys, data, "--json")
    output = json.loads(line)
    assert (status, output["topic"], output["partition"], sorted(output)) == (
        1,
        "people",
        0,
        ["fault", "partition", "topic"],
    )


def test_decreasing_offsets_are_a_fault(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    (segment, place) = log.segments[2], list(log.segments[2].places(0))[1]
    write(segment.path, place.position, (place.base_offset - 2).to_bytes(8, "big"))
    status, lines, _ = run(capsys, data)
    assert status == 1
    text = f"byte {place.position} of {segment.name}: offset {place.base_offset - 2} instead of {place.base_offset}"
    assert lines[0] == f"people-0: {text}"


@pytest.mark.parametrize("index", [".index", ".timeindex"])
def test_wrong_index_is_a_fault(index: str, data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(log.segments[2].path).with_suffix(index)
    before = path.read_bytes()
    path.write_bytes(before[: len(before) - 2] + b"\x01\x01" if index == ".index" else before + before[:8] + bytes(4))
    if index == ".timeindex":
        path.write_bytes(before + (1).to_bytes(8, "big") + b"\0\0\0\1")
    status, lines, _ = run(capsys, data)
    assert status == 1
    assert lines[0].startswith(f"people-0: {path.name} ")
    assert run(capsys, data, "--repair")[0] == 0
    assert path.read_bytes() == before or run(capsys, data)[0] == 0


@pytest.mark.parametrize("what", ["its log", "all of it", "its bytes"])
def test_missing_segment_is_a_fault(what: str, data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    segment, following = log.segments[1], log.segments[2]
    path = Path(segment.path)
    if what == "its bytes":
        path.write_bytes(b"")
    for file in path.parent.glob(f"{path.stem}.*" if what == "all of it" else path.name if what == "its log" else "-"):
        file.unlink()
    status, lines, _ = run(capsys, data)
    assert status == 1
    gap = f"the log has nothing from offset {segment.base_offset} to {following.base_offset - 1}"
    assert lines[0] == f"people-0: {path} is missing: {gap}"
    before = stored_before(log, segment.base_offset)
    status, lines, _ = run(capsys, data, "--repair")
    assert status == 0
    assert lines[2].startswith(f"people-0: repaired, truncated to offset {segment.base_offset} (")
    directory = open_directory(data)
    assert (directory.offline, directory.problems) == ({}, [])
    assert stored(directory.logs[BAD]) == before


def stored_before(log: Log, offset: int) -> list[tuple[int, int]]:
    (first, *_) = log.segments
    return [(each.base_offset, each.last_offset) for each in first.places(0) if each.base_offset < offset]


def test_repair_truncates_and_quarantines(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    expected = stored(log)
    segment = log.segments[1]
    place = list(segment.places(0))[1]
    write(segment.path, place.position + 65, b"\xff")
    good = contents(data / "good-0")
    later = {one.base_offset: Path(one.path).read_bytes() for one in log.segments[2:]}
    status, lines, _ = run(capsys, data, "--repair")
    assert status == 0
    assert lines[2].startswith(
        f"people-0: repaired, truncated to offset {place.base_offset} (byte {place.position} of "
    )
    assert lines[3].startswith(f"people-0: recovery set aside the truncated data: {place.base_offset:020d}.log.aside, ")
    assert contents(data / "good-0") == good
    for base, whole in later.items():
        assert (data / "people-0" / f"{base:020d}.log.aside").read_bytes() == whole
    assert run(capsys, data)[0] == 0
    directory = open_directory(data)
    assert (directory.clean_shutdown, directory.offline, directory.problems) == (True, {}, [])
    assert stored(directory.logs[BAD]) == [each for each in expected if each[0] < place.base_offset]
    assert stored(directory.logs[GOOD]) == expected


def test_failed_repair_leaves_no_marker(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """The next start checks the log."""
    write(log.segments[1].path, 65, b"\xff")
    (data / "people-0" / "leader-epoch-checkpoint").unlink()
    (data / "people-0" / "leader-epoch-checkpoint.tmp").mkdir()
    status, _, error = run(capsys, data, "--repair")
    assert (status, "leader-epoch-checkpoint.tmp" in error) == (1, True)
    assert not (data / ".kafka_cleanshutdown").exists()


def test_repair_requires_a_stopped_broker(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, log = create_logs(data)
    flush_now(log)
    directory.checkpoints.write_now()
    write(log.segments[0].path, 65, b"\xff")
    before = contents(data)
    status, _, error = run(capsys, data, "--repair")
    assert status == 1
    assert (
        error
        == f"odradek: {data} is in use by another broker, which holds its .lock: stop it, or use another directory\n"
    )
    assert contents(data) == before
    directory.abandon()


def test_unsynced_data_of_a_running_broker_is_not_a_fault(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, log = create_logs(data)
    flush_now(log)
    directory.checkpoints.write_now()
    put(log, b"half of it")
    with Path(log.segments[-1].path).open("r+b") as file:
        file.truncate(log.segments[-1].size - 5)
    status, lines, _ = run(capsys, data)
    assert status == 0
    assert lines[0].startswith("people-0: byte ")
    assert lines[1].endswith(": no faults")
    directory.abandon()


def test_torn_synced_data_is_a_fault(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    with Path(log.segments[-1].path).open("r+b") as file:
        file.truncate(log.segments[-1].size - 5)
    assert run(capsys, data)[0] == 1


def test_log_that_ends_too_early_is_a_fault(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    last = Path(log.segments[-1].path)
    for path in last.parent.glob(f"{last.stem}.*"):
        path.unlink()
    status, lines, _ = run(capsys, data)
    end = log.segments[-1].base_offset
    assert status == 1
    assert lines[0] == f"people-0: the log ends at offset {end}, but was synced up to offset {log.end_offset}"


def test_missing_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = run(capsys, tmp_path / "nowhere")
    assert status == 1
    hint = "name a data directory, or a partition directory in it"
    assert error == f"odradek: {tmp_path / 'nowhere'} is not a directory: {hint}\n"


def test_damaged_checkpoint_is_a_fault(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "people-0" / "leader-epoch-checkpoint").write_text("0\n9\n")
    status, lines, _ = run(capsys, data)
    assert status == 1
    assert "leader-epoch-checkpoint" in lines[0]
    (data / "recovery-point-offset-checkpoint").write_text("junk")
    status, lines, error = run(capsys, data)
    assert (status, lines) == (1, [])
    assert "recovery-point-offset-checkpoint" in error


def test_dump_shows_quarantined_data(data: Path, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """The file starts with the damage, and continues after it."""
    place, following, *_ = log.segments[1].places(0)
    write(log.segments[1].path, place.position + 8, b"\x7f")
    run(capsys, data, "--repair")
    capsys.readouterr()
    name = f"{place.base_offset:020d}.log.aside"
    assert main(["log", "dump", str(data / "people-0" / name)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"  @0  TORN  {place.size} bytes without a valid batch: ")
    assert lines[2].startswith(f"  @{place.size}  {following.base_offset}..{following.last_offset}  ")
    assert main(["log", "dump", str(data / "people-0")]) == 0
    assert ".aside" not in capsys.readouterr().out
