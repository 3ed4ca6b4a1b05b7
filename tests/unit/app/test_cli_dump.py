from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import binary, integers

from odradek.app.main import main
from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec

pytestmark = pytest.mark.slow

STEM = "00000000000000000005"
RECORDS: list[RecordIn] = [(b"k", b"v1", (("h", b"x"),), 1_000), (None, None, (), 2_000)]


def log_bytes() -> bytes:
    plain = encode_batch(RECORDS, base_offset=Offset(5), leader_epoch=LeaderEpoch(3))
    packed = encode_batch(RECORDS, Codec.ZSTD, base_offset=Offset(7), leader_epoch=LeaderEpoch(4))
    marker = encode_batch(
        [(struct.pack(">hh", 0, 1), b"", (), 3_000)],
        base_offset=Offset(9),
        leader_epoch=LeaderEpoch(4),
        producer_id=ProducerId(77),
        producer_epoch=ProducerEpoch(1),
        is_transactional=True,
        is_control=True,
    )
    return bytes(plain + packed + marker)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "flights-0"
    folder.mkdir(parents=True)
    (folder / f"{STEM}.log").write_bytes(log_bytes())
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    status = main(["log", "dump", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


def test_dump_shows_the_batches_of_a_partition(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = run(capsys, partition)
    assert status == 0
    assert lines[0].startswith(f"{partition / STEM}.log  ")
    assert lines[1].startswith("  @0  5..6  ")
    assert lines[1].endswith("2 records  epoch 3  none  1970-01-01T00:00:02.000Z")
    assert "7..8" in lines[2]
    assert "2 records  epoch 4  zstd" in lines[2]
    assert "producer 77 epoch 1 sequence -1  transactional  control" in lines[3]
    assert lines[4] == "  3 batches, 5 records"


@pytest.mark.parametrize("of", ["file", "partition", "data directory"])
def test_dump_accepts_a_file_a_partition_and_a_data_directory(
    of: str, partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = {"file": partition / f"{STEM}.log", "partition": partition, "data directory": partition.parent}[of]
    status, lines, _ = run(capsys, path)
    assert (status, len(lines)) == (0, 5)


def test_dump_shows_records(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(capsys, partition, "--records")
    assert "    5  1970-01-01T00:00:01.000Z  k: v1  h=x" in lines
    assert "    8  1970-01-01T00:00:02.000Z  null: null" in lines
    assert "    9  1970-01-01T00:00:03.000Z  commit" in lines


def test_dump_writes_json(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(capsys, partition, "--records", "--json")
    parsed = [json.loads(line) for line in lines]
    assert [each["offset"] for each in parsed if "offset" in each] == [5, 6, 7, 8, 9]
    assert [each["codec"] for each in parsed if "codec" in each] == ["none", "zstd", "none"]
    assert parsed[1] == {"offset": 5, "timestamp": 1000, "key": "k", "value": "v1", "headers": {"h": "x"}}
    assert parsed[-1]["control"] == "commit"


def test_dump_marks_damage_and_shows_the_rest(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(log_bytes())
    data[70] ^= 1
    (partition / f"{STEM}.log").write_bytes(data[:-1])
    status, lines, _ = run(capsys, partition, "--records")
    assert status == 1
    assert "CORRUPT: invalid checksum" in lines[1]
    assert "7..8" in lines[2]
    assert "TORN" in lines[-2]
    assert lines[-1] == "  2 batches, 4 records, 2 faults"


def test_preallocated_zeros_are_named(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / f"{STEM}.log").write_bytes(log_bytes() + bytes(1000))
    status, lines, _ = run(capsys, partition)
    assert status == 1
    assert "1,000 bytes without a valid batch: zeros: preallocated or torn" in lines[-2]


def test_formats_before_2_are_shown(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = struct.pack(">qiIbbq", 41, 22, 0, 1, 0, 5_000) + struct.pack(">ii", -1, -1)
    (partition / f"{STEM}.log").write_bytes(message)
    _, lines, _ = run(capsys, partition)
    assert lines[1] == "  @0  41..41  34 B  format 1  1970-01-01T00:00:05.000Z"


def test_control_characters_never_reach_the_terminal(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record: RecordIn = (b"\x1b[31m", b"\xff\x00" + bytes(100), (), 0)
    (partition / f"{STEM}.log").write_bytes(encode_batch([record], base_offset=Offset(5)))
    _, lines, _ = run(capsys, partition, "--records")
    assert "\\x1b[31m: 0xff" in lines[2]
    assert "(102 bytes)" in lines[2]


def test_long_text_is_cut_between_characters(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for before in range(4):
        text = "x" * before + "€" * 40
        (partition / f"{STEM}.log").write_bytes(encode_batch([(None, text.encode(), (), 0)], base_offset=Offset(5)))
        _, lines, _ = run(capsys, partition, "--records")
        assert lines[2].endswith(f"null: {text[: before + (60 - before) // 3]}...({len(text.encode())} bytes)")


def test_offset_index_is_compared_with_its_log(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = len(encode_batch(RECORDS))
    index = partition / f"{STEM}.index"
    index.write_bytes(struct.pack(">iiii", 3, second, 4, second + 1) + bytes(64))
    status, lines, _ = run(capsys, index)
    assert status == 1
    assert lines[1] == f"  offset 8  position {second}"
    assert lines[2] == f"  offset 9  position {second + 1}  CORRUPT: does not point to a batch"
    assert lines[3] == "  2 entries, 1 fault"
    index.write_bytes(struct.pack(">ii", 1, second))
    assert "CORRUPT: the batch there starts at offset 7" in run(capsys, index)[1][1]
    index.write_bytes(struct.pack(">ii", 2, second))  # With its first offset, as in Apache Kafka before 2.0.
    assert run(capsys, index)[0] == 0


def test_dump_shows_time_and_transaction_indexes(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = partition / f"{STEM}.timeindex"
    times.write_bytes(struct.pack(">qiqi", 2_000, 3, 1_000, 4) + b"torn")
    status, lines, _ = run(capsys, times)
    assert status == 1
    assert lines[1] == "  timestamp 1970-01-01T00:00:02.000Z  offset 8"
    assert lines[2].endswith("offset 9  CORRUPT: is not ascending")
    aborted = partition / f"{STEM}.txnindex"
    aborted.write_bytes(struct.pack(">hqqqq", 0, 77, 5, 8, 9))
    status, lines, _ = run(capsys, aborted, "--json")
    assert status == 0
    assert json.loads(lines[0])["producer"] == 77


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "contains no .log file"),
        ("nix", "does not exist"),
        ("server.properties", "name a 00000000000000000000.log"),
    ],
)
def test_invalid_paths_are_refused(name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.properties").write_text("x=y")
    status, _, errors = run(capsys, tmp_path / name)
    assert status == 1
    assert words in errors
    assert errors.count("\n") == 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=integers(0, 400), garbage=binary(min_size=1, max_size=80))
def test_log_with_any_content_is_dumped(
    at: int, garbage: bytes, partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any bytes anywhere give lines and an exit status, never an exception."""
    data = bytearray(log_bytes())
    data[at : at + len(garbage)] = garbage
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        (partition / f"{STEM}{suffix}").write_bytes(data)
        status, lines, errors = run(capsys, partition / f"{STEM}{suffix}", "--records")
        assert status in (0, 1)
        assert lines
        assert not errors
