"""Checkpoints, partition.metadata, meta.properties and file names: Kafka's formats, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import from_text
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import RealDisk
from odradek.log.files.meta_properties import WrongDirectory, claim, identity, parse, render
from odradek.log.segment.checkpoints import (
    BadCheckpoint,
    read_epochs,
    read_offsets,
    read_topic_id,
    write_epochs,
    write_offsets,
    write_topic_id,
)

DISK = RealDisk()
NOW = TimestampMs(1_795_251_355_000)


def partition(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def test_offset_checkpoint_has_kafkas_format(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {partition("b", 10): Offset(7), partition("b", 2): Offset(1 << 40), partition("a-b", 0): Offset(0)}
    write_offsets(DISK, str(path), offsets)
    assert path.read_text() == "0\n3\na-b 0 0\nb 2 1099511627776\nb 10 7\n"
    assert read_offsets(DISK, str(path)) == offsets
    assert not (tmp_path / (path.name + ".tmp")).exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1\n0\n", "starts with '1 0'"),
        ("0\n", "starts with"),
        ("0\nx\n", "starts with"),
        ("0\n2\na 0 1\n", "1 entries, expected 2"),
        ("0\n1\na 0\n", "line 3"),
        ("0\n1\na 0 -1\n", "line 3"),
        ("0\n1\na 0 99999999999999999999\n", "line 3"),
        ("0\n1\na 0 \xc2\xb2\n", "line 3"),  # A digit that is not a number.
        ("0\n1\na 0 12", "starts with"),  # Truncated: the offset may have had more digits.
        ("0\n1\na\xff 0 1\n", r"c: byte 5 is not valid UTF-8"),
    ],
)
def test_bad_offset_checkpoint_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "c").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadCheckpoint, match=why):
        read_offsets(DISK, f"{tmp_path}/c")


def test_missing_or_empty_checkpoint_has_no_offsets(tmp_path: Path) -> None:
    assert read_offsets(DISK, f"{tmp_path}/c") == {}
    (tmp_path / "c").touch()
    assert read_offsets(DISK, f"{tmp_path}/c") == {}


def test_leader_epochs_have_kafkas_format(tmp_path: Path) -> None:
    epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(5), Offset(1200))]
    write_epochs(DISK, str(tmp_path), epochs, durable=True)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 1200\n"
    assert read_epochs(DISK, str(tmp_path)) == epochs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n2\n5 0\n5 1\n",
        "0\n2\n5 8\n6 7\n",
        "0\n1\n-1 0\n",
        "0\n1\n1 2 3\n",
        "0\n1\n4294967296 0\n",  # No message has room for it.
        "0\n1\n1 9223372036854775808\n",
    ],
)
def test_bad_leader_epochs_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    with pytest.raises(BadCheckpoint):
        read_epochs(DISK, str(tmp_path))


def test_partition_metadata_has_kafkas_format(tmp_path: Path) -> None:
    topic_id = from_text("a67ft7QwQvaXgreHgpGCEA")
    assert read_topic_id(DISK, str(tmp_path)) is None
    write_topic_id(DISK, str(tmp_path), topic_id)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: a67ft7QwQvaXgreHgpGCEA"
    assert read_topic_id(DISK, str(tmp_path)) == topic_id
    (tmp_path / "partition.metadata").write_text("")
    assert read_topic_id(DISK, str(tmp_path)) is None


@pytest.mark.parametrize(
    "text", ["version: 1\ntopic_id: a67ft7QwQvaXgreHgpGCEA", "version: 0", "version: 0\ntopic_id: x"]
)
def test_bad_partition_metadata_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(BadCheckpoint, match=r"partition\.metadata"):
        read_topic_id(DISK, str(tmp_path))


def test_a_new_directory_is_claimed(tmp_path: Path) -> None:
    assert identity(DISK, str(tmp_path)) == (None, None)
    assert claim(DISK, str(tmp_path), NOW, BrokerId(3), "abc") == "abc"
    assert (tmp_path / "meta.properties").read_text() == (
        "#\n#Sat Nov 21 08:55:55 UTC 2026\ncluster.id=abc\nversion=0\nbroker.id=3\n"
    )
    assert identity(DISK, str(tmp_path)) == (3, "abc")
    assert claim(DISK, str(tmp_path), NOW, BrokerId(3), None) == "abc"


def test_kraft_directory_keeps_its_format(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    text = "#\n#Sat Nov 21 08:55:55 UTC 2026\nnode.id=1\ndirectory.id=iYgAtLg\nversion=1\ncluster.id=abc\n"
    path.write_text(text)
    assert claim(DISK, str(tmp_path), NOW, BrokerId(1), "abc") == "abc"
    assert path.read_text() == text


def test_old_directory_gets_the_cluster_id(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\nkept=x\n")
    assert claim(DISK, str(tmp_path), NOW, BrokerId(1), "abc") == "abc"
    properties = parse((tmp_path / "meta.properties").read_bytes())
    assert properties == {"version": "0", "broker.id": "1", "kept": "x", "cluster.id": "abc"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version=0\nbroker.id=2\n", "broker.id=2, but this broker has broker.id=1"),
        ("version=1\nnode.id=2\ncluster.id=abc\n", "node.id=2"),
        ("version=0\nbroker.id=1\ncluster.id=other\n", "cluster.id=other"),
        ("version=7\n", "version 7"),
    ],
)
def test_directory_of_another_broker_is_refused_unchanged(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(WrongDirectory, match=why):
        claim(DISK, str(tmp_path), NOW, BrokerId(1), "abc")
    assert (tmp_path / "meta.properties").read_text() == text


def test_java_properties_are_parsed_and_rendered() -> None:
    text = "# c\n! c\n a = b \nk\\:1=v\\=\\u00e9\\t\nempty=\nspaced value\ncolon:x\n"
    expected = {"a": "b", "k:1": "v=é\t", "empty": "", "spaced": "value", "colon": "x"}
    assert parse(text.encode()) == expected
    assert parse(render({"k:1": "a=b c"}, NOW)) == {"k:1": "a=b c"}
    assert parse(b"one=\xff\x0b\r\ntwo=x\r") == {"one": "\xff", "two": "x"}


# Written by Kafka on Java 17 and older: 0.9 to 2.3; with ZooKeeper from 2.4 on; KRaft, also with a directory id.
KAFKAS_FILES = [
    "broker.id=1001\nversion=0\n",
    "version=0\nbroker.id=1001\n",
    "broker.id=1001\nversion=0\ncluster.id=k1n2O3p4QRST5u6v7w8x9y\n",
    "cluster.id=k1n2O3p4QRST5u6v7w8x9y\nversion=0\nbroker.id=1001\n",
    "node.id=1001\nversion=1\ncluster.id=k1n2O3p4QRST5u6v7w8x9y\n",
    "node.id=1001\ndirectory.id=OjpBIc24U5uzYfTfWlwUHw\nversion=1\ncluster.id=k1n2O3p4QRST5u6v7w8x9y\n",
]
DATE = "#\n#Sat Nov 21 08:55:55 UTC 2026\n"
CLUSTER = "k1n2O3p4QRST5u6v7w8x9y"


@pytest.mark.parametrize("text", KAFKAS_FILES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_complete_meta_properties_are_used(tmp_path: Path, text: str, line_end: str) -> None:
    """A truncated file contributes nothing."""
    path = tmp_path / "meta.properties"
    if "cluster.id" in text:
        (tmp_path / "t-0").mkdir()
        (tmp_path / "t-0" / "partition.metadata").touch()
    data = (DATE + text).replace("\n", line_end).encode()
    for size in range(len(data) - len(line_end) + 1):
        path.write_bytes(data[:size])
        with pytest.raises(WrongDirectory, match=r"meta\.properties") as refused:
            claim(DISK, str(tmp_path), NOW, BrokerId(1001), CLUSTER)
        assert "codec" not in str(refused.value)
        assert {one.name for one in tmp_path.iterdir()} <= {path.name, "t-0"}, "nothing is touched"
        assert path.read_bytes() == data[:size]
    path.write_bytes(data)
    assert identity(DISK, str(tmp_path))[0] == 1001
    assert claim(DISK, str(tmp_path), NOW, BrokerId(1001), CLUSTER) == CLUSTER


@pytest.mark.parametrize("text", [None, *KAFKAS_FILES])
def test_damaged_meta_properties_never_change_the_broker_id(tmp_path: Path, text: str | None) -> None:
    """Truncated or with a flipped bit, they never name another broker than that of the directory."""
    path = tmp_path / "meta.properties"
    if text is not None:
        path.write_text(DATE + text)
    claim(DISK, str(tmp_path), NOW, BrokerId(1001), CLUSTER)
    whole = path.read_bytes()
    for number in range(len(whole) * 8):
        data = bytearray(whole)
        data[number // 8] ^= 1 << number % 8
        path.write_bytes(data)
        assert identity_or_none(tmp_path) in (None, (1001, CLUSTER)), bytes(data)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert identity_or_none(tmp_path) is None, whole[:size]


def identity_or_none(path: Path) -> tuple[BrokerId | None, str | None] | None:
    try:
        return identity(DISK, str(path))
    except WrongDirectory as wrong:
        assert "codec" not in str(wrong) and "\n" not in str(wrong)
        return None


def test_truncated_meta_properties_in_the_former_order_are_detected(tmp_path: Path) -> None:
    """After the broker's id they look like those of Kafka before 2.4; another file identifies the directory's owner."""
    (tmp_path / "meta.properties").write_text(DATE + "version=0\nbroker.id=1001\n")
    (tmp_path / "odradek-boot").touch()
    with pytest.raises(WrongDirectory, match=r"has no cluster\.id"):
        identity(DISK, str(tmp_path))
    (tmp_path / "odradek-boot").unlink()
    assert identity(DISK, str(tmp_path)) == (1001, None)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").touch()
    with pytest.raises(WrongDirectory, match=r"has no cluster\.id"):
        identity(DISK, str(tmp_path))


def test_identity_note_refuses_another_id(tmp_path: Path) -> None:
    """An incomplete note is ignored, and the next claim rewrites it."""
    claim(DISK, str(tmp_path), NOW, BrokerId(1001), "abc")
    note, path = tmp_path / "odradek-identity", tmp_path / "meta.properties"
    assert note.read_text() == "broker.id=1001\ncluster.id=abc\n"
    path.write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    with pytest.raises(
        WrongDirectory, match=r"broker\.id=1, but the directory was last used with broker\.id=1001.*delete odradek-id"
    ):
        claim(DISK, str(tmp_path), NOW, BrokerId(1), "abc")
    for data in (b"", b"broker.id=1001\n", b"broker.id=1001\ncluster.id=ab", b"\xff\n"):
        note.write_bytes(data)
        assert identity(DISK, str(tmp_path)) == (1, "abc")
    claim(DISK, str(tmp_path), NOW, BrokerId(1), "abc")
    assert note.read_text() == "broker.id=1\ncluster.id=abc\n"


def test_segment_names_are_parsed() -> None:
    assert names.segment_stem(Offset(42)) == "00000000000000000042"
    parsed = names.parse_segment_file
    assert parsed("00000000000000000042.log") == (42, ".log", "")
    assert parsed("00000000000000000042.timeindex.deleted") == (42, ".timeindex", ".deleted")
    assert parsed("00000000000000000042.snapshot") == (42, ".snapshot", "")
    for name in ("42.log", "00000000000000000042.txt", "99999999999999999999.log", "partition.metadata"):
        assert parsed(name) is None
    assert parsed("0000000000000000004\u0662.log") is None, "another name of the same segment"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("topic-0", ("topic", 0)),
        ("a-b.c_d-12", ("a-b.c_d", 12)),
        ("-0-1", ("-0", 1)),
        ("topic-01", None),
        ("topic", None),
        ("topic-", None),
        ("-1", None),
        ("topic-0.0123456789abcdef0123456789abcdef-delete", None),
        ("__cluster_metadata-0", None),
        ("topic-99999999999", None),
        ("topic-1\u0662", None),
        ("lost+found", None),
    ],
)
def test_partition_names_are_parsed(name: str, expected: tuple[str, int] | None) -> None:
    assert names.parse_partition(name) == expected


def test_names_of_deleted_partitions_fit_the_limit() -> None:
    name = names.marked_partition(partition("t" * 249, 12345), names.DELETE, "unique")
    assert len(name) == 255
    assert names.mark(name) == "delete"
    assert names.marked_partition(partition("a-b", 3), names.STRAY, "x").startswith("a-b-3.")
    first, second = (names.marked_partition(partition("t", 0), names.DELETE, unique) for unique in "xy")
    assert first != second
    assert names.mark("t-0.0123456789abcdef0123456789abcdef-future") == "future"
    assert names.mark("t-0") is None
