"""Dump of a partition's files on disk, batch by batch, including damage.

It also works on files in use: a batch that a broker is just writing is shown as a torn end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from odradek.base.errors import Refused
from odradek.base.units import MIB
from odradek.log.files.disk import RealFile
from odradek.log.files.log_file_names import (
    ASIDE,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_partition,
    parse_segment_file,
)
from odradek.log.segment.damage import next_batch
from odradek.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.log.segment.scan import Damaged, FileBatch, walk
from odradek.record.record_batch import CHECKSUMMED_FROM, HEADER_BYTES, MAGIC, Batch
from odradek.record.records import Record, iter_records

CONTROL_TYPES = {0: "abort", 1: "commit"}
TRANSACTION_ENTRY = Struct(">hqqqq")  # Version, producer id, first, last and last stable offset.

_CONTROL = Struct(">hh")


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """Batch of a .log file; `batch` is None for formats before 2 and for a truncated batch."""

    place: FileBatch
    batch: Batch | None
    fault: str | None = None  # Problem of the batch, in a few words.


@dataclass(frozen=True, slots=True)
class Damage:
    """End of the walk over a .log file before the end of the file, with the number of bytes left."""

    position: int
    left: int
    why: str


def log_files(path: Path) -> list[Path]:
    """Return the files to dump: the path itself, or the files of a partition or a whole log directory."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if is_shown(file))
    if files:
        return files
    partitions = sorted((each for each in path.iterdir() if each.is_dir() and parse_partition(each.name)), key=by_name)
    return [file for partition in partitions for file in log_files(partition)]


def by_name(path: Path) -> tuple[str, int]:
    partition = parse_partition(path.name)
    return partition if partition is not None else (path.name, -1)


def is_shown(file: Path) -> bool:
    parsed = parse_segment_file(file.name)
    return file.is_file() and (parsed is not None and parsed[1] == LOG and not parsed[2].startswith(ASIDE))


def open_read_only(path: Path) -> RealFile:
    return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))


def batches(path: Path) -> Iterator[DumpedBatch | Damage]:
    """Yield every batch with its checksum verified, and a Damage if the rest is not a batch.

    Quarantined data usually begins with damage: there, the walk continues with the next whole batch.
    """
    file = open_read_only(path)
    size = file.size()
    parsed = parse_segment_file(path.name)
    position: int | None = 0
    while position is not None:
        try:
            for place in walk(file, position, size):
                yield dump_batch(file, place)
            return
        except Damaged as damage:
            position = None
            if parsed is not None and parsed[2].startswith(ASIDE):
                position = next_batch(file, damage.position + 1, size, (parsed[0], parsed[0]))
            end = size if position is None else position
            yield Damage(damage.position, end - damage.position, reason(file, damage, end))


def reason(file: RealFile, damage: Damaged, size: int) -> str:
    """Return the kind of damage: zeros may be preallocated, and a torn write differs from a broken disk."""
    rest = file.pread(damage.position, min(size - damage.position, MIB))
    return "zeros: preallocated or torn" if not any(rest) else damage.why


def dump_batch(file: RealFile, place: FileBatch) -> DumpedBatch:
    if place.magic != MAGIC:
        return DumpedBatch(place, None)
    data = file.pread(place.position, place.size)
    if len(data) < HEADER_BYTES:
        return DumpedBatch(place, None, "truncated")
    batch = Batch.trusted(data)
    if not batch.is_intact:
        return DumpedBatch(place, batch, f"invalid checksum of bytes {CHECKSUMMED_FROM} to {place.size}")
    return DumpedBatch(place, batch)


def records(batch: Batch) -> Iterator[Record | str]:
    """Yield the records of a batch, and finally a text if one of them is not a record."""
    try:
        yield from iter_records(batch)
    except Refused as refused:
        yield refused.detail or str(refused)


def control_text(record: Record) -> str:
    """Return the meaning of a control record: commit or abort of a transaction."""
    if record.key is None or len(record.key) < _CONTROL.size:
        return "control"
    _, kind = _CONTROL.unpack_from(record.key)
    return CONTROL_TYPES.get(kind, f"control {kind}")


@dataclass(frozen=True, slots=True)
class IndexRow:
    """Index entry with its fault, if any."""

    columns: tuple[int, ...]
    fault: str | None = None


def index_rows(path: Path) -> tuple[tuple[str, ...], list[IndexRow]]:
    """Return (column names, entries) of an .index, .timeindex or .txnindex file, with absolute offsets."""
    parsed = parse_segment_file(path.name)
    assert parsed is not None, "the caller checked the file name"
    base_offset, suffix, _ = parsed
    if suffix == OFFSET_INDEX:
        return ("offset", "position"), offset_rows(path, base_offset)
    if suffix == TIME_INDEX:
        return ("timestamp", "offset"), time_rows(path, base_offset)
    assert suffix == TRANSACTION_INDEX, suffix
    names = ("version", "producer", "first_offset", "last_offset", "last_stable_offset")
    return names, [IndexRow(entry) for entry in entries(path, TRANSACTION_ENTRY)]


def entries(path: Path, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Yield the entries without a torn last one and without preallocated zeros.

    Every reader of an index drops a torn last entry, too.
    """
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    whole = min(used + -used % layout.size, len(data) - len(data) % layout.size)
    return layout.iter_unpack(data[:whole])


def offset_rows(path: Path, base_offset: int) -> list[IndexRow]:
    """Return the entries of an offset index, each with its fault.

    Each entry must point to a batch that starts at or before its offset. Odradek's entries have the batch's last
    offset. Apache Kafka's have the first offset before 2.0. For data that Kafka appended in one piece, as a follower or
    the cleaner does, they have the last offset of the piece.
    """
    log = path.with_suffix(LOG)
    firsts = {place.position: place.base_offset for place in places(log)} if log.exists() else None
    rows: list[IndexRow] = []
    for delta, position in entries(path, OFFSET_ENTRY):
        offset = base_offset + delta
        fault = None
        if rows and offset <= rows[-1].columns[0]:
            fault = "is not ascending"
        elif firsts is not None and position not in firsts:
            fault = "does not point to a batch"
        elif firsts is not None and firsts[position] > offset:
            fault = f"the batch there starts at offset {firsts[position]}"
        rows.append(IndexRow((offset, position), fault))
    return rows


def time_rows(path: Path, base_offset: int) -> list[IndexRow]:
    rows: list[IndexRow] = []
    for timestamp, delta in entries(path, TIME_ENTRY):
        fault = "is not ascending" if rows and timestamp < rows[-1].columns[0] else None
        rows.append(IndexRow((timestamp, base_offset + delta), fault))
    return rows


def places(log: Path) -> list[FileBatch]:
    """Return the batches of a .log up to the first damage."""
    file = open_read_only(log)
    found: list[FileBatch] = []
    with suppress(Damaged):  # Reported when the .log itself is dumped.
        found.extend(walk(file, 0, file.size()))
    return found
