"""Kafka's small text files: offset checkpoints, leader epochs, and a partition's topic id.

An offset checkpoint (in the data directory)   leader-epoch-checkpoint         partition.metadata
│ 0              version │                     │ 0       version │             │ version: 0       │
│ 2              entries │                     │ 1       entries │             │ topic_id: <22>   │
│ topic 0 42             │                     │ 5 1200          │
│ topic 1 7              │                     epoch, its first offset

Offset checkpoints hold recovery points, log start offsets or high watermarks.  Every write replaces the whole file, so
a damaged file was damaged by another program or the disk.  BadCheckpoint names file and line, and the caller decides
whether the file is dispensable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from odradek.base.units import INT32_MAX, INT64_MAX, MIB, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid, from_text, to_text
from odradek.log.files.disk import Disk, read_file, replace_file
from odradek.log.files.log_file_names import LEADER_EPOCHS, PARTITION_METADATA
from odradek.log.segment.damage import KnownDamage

CHECKPOINT_BYTES_MAX = 256 * MIB  # A million partitions with the longest names.
METADATA_BYTES_MAX = 4096
_VERSION = "0"


class BadCheckpoint(ValueError):
    """Raised for a checkpoint file with invalid content; the text names file and line."""


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Return the offset of each partition; {} for a missing file, or an empty one as Kafka leaves.

    Raise BadCheckpoint for invalid content.
    """
    offsets: dict[TopicPartition, Offset] = {}
    for number, line in _entries(path, read_file(disk, path, CHECKPOINT_BYTES_MAX) or None):
        match line.split(" "):
            case [topic, partition, offset] if (
                partition.isdecimal() and offset.isdecimal() and int(offset) <= INT64_MAX
            ):
                offsets[TopicPartition(TopicName(topic), int(partition))] = Offset(int(offset))
            case _:
                raise BadCheckpoint(f"{path} line {number}: {line!r} is not a topic, partition and offset")
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    assert min(offsets.values(), default=0) >= 0, "read_offsets accepts no negative offset"
    lines = (f"{partition.topic} {partition.partition} {offset}" for partition, offset in sorted(offsets.items()))
    replace_file(disk, path, _text(len(offsets), lines))


def read_segments(disk: Disk, path: str) -> dict[TopicPartition, str]:
    """Return the base offsets of each log's segments, separated by blanks.

    Return {} and raise errors as read_offsets does.
    """
    recorded_segments: dict[TopicPartition, str] = {}
    for number, line in _entries(path, read_file(disk, path, CHECKPOINT_BYTES_MAX) or None):
        topic, _, rest = line.partition(" ")
        partition, _, offsets = rest.partition(" ")
        if not partition.isdecimal() or not offsets.replace(" ", "0").isdecimal():
            raise BadCheckpoint(f"{path} line {number}: {line!r} is not a topic, partition and offsets")
        recorded_segments[TopicPartition(TopicName(topic), int(partition))] = offsets
    return recorded_segments


def write_segments(disk: Disk, path: str, recorded_segments: Mapping[TopicPartition, str]) -> None:
    lines = [
        f"{name.topic} {name.partition} {offsets}" for name, offsets in sorted(recorded_segments.items()) if offsets
    ]
    replace_file(disk, path, _text(len(lines), lines))


def read_uncleanable(disk: Disk, path: str) -> dict[TopicPartition, str]:
    """Return the reason for each log that can't be compacted; {} and errors as for read_offsets."""
    reasons: dict[TopicPartition, str] = {}
    for number, line in _entries(path, read_file(disk, path, CHECKPOINT_BYTES_MAX) or None):
        topic, _, rest = line.partition(" ")
        partition, _, reason = rest.partition(" ")
        if not partition.isdecimal() or not reason:
            raise BadCheckpoint(f"{path} line {number}: {line!r} is not a topic, partition and reason")
        reasons[TopicPartition(TopicName(topic), int(partition))] = reason
    return reasons


def write_uncleanable(disk: Disk, path: str, reasons: Mapping[TopicPartition, str]) -> None:
    lines = [f"{name.topic} {name.partition} {' '.join(reason.split())}" for name, reason in sorted(reasons.items())]
    replace_file(disk, path, _text(len(lines), lines), durable=False)


def read_damages(disk: Disk, path: str) -> list[KnownDamage]:
    """Return the known damages, [] for a missing file; errors as for read_offsets."""
    found = []
    for number, line in _entries(path, read_file(disk, path, CHECKPOINT_BYTES_MAX) or None):
        match line.split(" ", 6):
            case [topic, partition, file, position, following, since, why] if (
                partition.isdecimal() and position.isdecimal() and following.isdecimal() and since.isdecimal()
            ):
                name = TopicPartition(TopicName(topic), int(partition))
                known = KnownDamage(name, file, int(position), Offset(int(following)), TimestampMs(int(since)), why)
                found.append(known)
            case _:
                raise BadCheckpoint(f"{path} line {number}: {line!r} is not a topic, partition and damage")
    return found


def write_damages(disk: Disk, path: str, damages: Iterable[KnownDamage]) -> None:
    damages = list(damages)
    assert all(one.position >= 0 for one in damages), "read_damages accepts no negative position"
    lines = [
        f"{one.partition.topic} {one.partition.partition} {one.file} {one.position} {one.following} {one.since_ms} "
        + " ".join(one.why.split())
        for one in damages
    ]
    replace_file(disk, path, _text(len(lines), lines))


def read_epochs(disk: Disk, directory: str) -> list[tuple[LeaderEpoch, Offset]]:
    """Return (epoch, first offset) pairs, ascending in both; [] for a missing file.

    Raise BadCheckpoint for invalid content.
    """
    path = f"{directory}/{LEADER_EPOCHS}"
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    for number, line in _entries(path, read_file(disk, path, CHECKPOINT_BYTES_MAX)):
        match line.split(" "):
            case [epoch, start] if (
                epoch.isdecimal() and start.isdecimal() and int(epoch) <= INT32_MAX and int(start) <= INT64_MAX
            ):
                entry = (LeaderEpoch(int(epoch)), Offset(int(start)))
            case _:
                raise BadCheckpoint(f"{path} line {number}: {line!r} is not an epoch and an offset")
        if epochs and (entry[0] <= epochs[-1][0] or entry[1] < epochs[-1][1]):
            raise BadCheckpoint(f"{path} line {number}: {line!r} is not monotonic")
        epochs.append(entry)
    return epochs


def write_epochs(disk: Disk, directory: str, epochs: Iterable[tuple[LeaderEpoch, Offset]], *, durable: bool) -> None:
    entries = list(epochs)
    are_ascending = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries))
    assert are_ascending, "read_epochs accepts only ascending epochs and offsets"
    lines = [f"{epoch} {start}" for epoch, start in entries]
    replace_file(disk, f"{directory}/{LEADER_EPOCHS}", _text(len(lines), lines), durable=durable)


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """Return the topic id; None for a partition without one, as those of Kafka before 2.8.

    A power failure may leave a file that was just created empty; an empty file also means no id.  Raise
    BadCheckpoint for invalid content.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    data = read_file(disk, path, METADATA_BYTES_MAX)
    if not data:
        return None
    fields = dict(line.split(": ", 1) for line in _decoded(path, data).splitlines() if ": " in line)
    if fields.get("version") != _VERSION:
        raise BadCheckpoint(f"{path}: unsupported version {fields.get('version')}")
    try:
        return from_text(fields.get("topic_id", ""))
    except ValueError:
        raise BadCheckpoint(f"{path}: topic_id {fields.get('topic_id', '')!a} is not a valid topic id") from None


def write_topic_id(disk: Disk, directory: str, topic_id: Uuid, *, durable: bool = False) -> None:
    """Write partition.metadata; for a new log it need not be durable, as the log's first flush syncs it."""
    data = f"version: {_VERSION}\ntopic_id: {to_text(topic_id)}".encode()
    replace_file(disk, f"{directory}/{PARTITION_METADATA}", data, durable=durable)


def _text(count: int, lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, count, *lines)).encode()


def _decoded(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadCheckpoint(f"{path}: byte {error.start} is not valid UTF-8") from None


def _entries(path: str, data: bytes | None) -> Iterator[tuple[int, str]]:
    """Yield line number and line after the two header lines; check the count of entries."""
    if data is None:
        return
    lines = _decoded(path, data).splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].isdecimal() or not data.endswith(b"\n"):
        raise BadCheckpoint(f"{path}: starts with {' '.join(lines[:2])!r}, expected version {_VERSION} and a count")
    if int(lines[1]) != len(lines) - 2:
        raise BadCheckpoint(f"{path}: {len(lines) - 2} entries, expected {lines[1]}")
    yield from enumerate(lines[2:], 3)
