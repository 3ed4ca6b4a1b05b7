"""Reads the files of a partition as they lie on disk and says what is in them, batch by batch, damage included.

Works on files in use: what a broker is just writing shows as a torn end, which is what it is at that moment.
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
    """One batch of a .log file; `batch` is None for formats before 2 and for a batch that is cut short."""

    place: FileBatch
    batch: Batch | None
    fault: str | None = None  # What is wrong with it, in a few words.


@dataclass(frozen=True, slots=True)
class Damage:
    """Where the walk over a .log file ended before the file did, and how many bytes are left."""

    position: int
    left: int
    why: str


def log_files(path: Path) -> list[Path]:
    """Returns the files to show for a path: itself, a partition's, or those of every partition of a data directory."""
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
    """Yields every batch with its checksum looked at; a Damage last, if what follows is no batch.

    What recovery set aside usually begins with a damage: there the walk goes on with the next whole batch.
    """
    file = open_read_only(path)
    size = file.size()
    parsed = parse_segment_file(path.name)
    position: int | None = 0
    while position is not None:
        try:
            for place in walk(file, position, size):
                yield dumped(file, place)
            return
        except Damaged as damage:
            position = None
            if parsed is not None and parsed[2].startswith(ASIDE):
                position = next_batch(file, damage.position + 1, size, (parsed[0], parsed[0]))
            end = size if position is None else position
            yield Damage(damage.position, end - damage.position, reason(file, damage, end))


def reason(file: RealFile, damage: Damaged, size: int) -> str:
    """Says what the damage is: preallocated zeros are none, and a torn write looks unlike a broken disk."""
    rest = file.pread(damage.position, min(size - damage.position, MIB))
    return "zeros: preallocated, or torn" if not any(rest) else damage.why


def dumped(file: RealFile, place: FileBatch) -> DumpedBatch:
    if place.magic != MAGIC:
        return DumpedBatch(place, None)
    data = file.pread(place.position, place.size)
    if len(data) < HEADER_BYTES:
        return DumpedBatch(place, None, "cut short")
    batch = Batch.trusted(data)
    if not batch.is_intact:
        return DumpedBatch(place, batch, f"checksum of bytes {CHECKSUMMED_FROM} to {place.size} is wrong")
    return DumpedBatch(place, batch)


def records(batch: Batch) -> Iterator[Record | str]:
    """Yields the records of a batch; a text last, if one of them is no record."""
    try:
        yield from iter_records(batch)
    except Refused as refused:
        yield refused.detail or str(refused)


def control_text(record: Record) -> str:
    """Says what a control record means: commit or abort of a transaction."""
    if record.key is None or len(record.key) < _CONTROL.size:
        return "control"
    _, kind = _CONTROL.unpack_from(record.key)
    return CONTROL_TYPES.get(kind, f"control {kind}")


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One entry, with what is wrong with it."""

    columns: tuple[int, ...]
    fault: str | None = None


def index_rows(path: Path) -> tuple[tuple[str, ...], list[IndexRow]]:
    """Returns (column names, entries) of an .index, .timeindex or .txnindex file, offsets absolute."""
    parsed = parse_segment_file(path.name)
    assert parsed is not None, "the caller looked at its name"
    base_offset, suffix, _ = parsed
    if suffix == OFFSET_INDEX:
        return ("offset", "position"), offset_rows(path, base_offset)
    if suffix == TIME_INDEX:
        return ("timestamp", "offset"), time_rows(path, base_offset)
    assert suffix == TRANSACTION_INDEX, suffix
    names = ("version", "producer", "first_offset", "last_offset", "last_stable_offset")
    return names, [IndexRow(entry) for entry in entries(path, TRANSACTION_ENTRY)]


def entries(path: Path, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Yields entries without a torn last one, as every reader of an index does, and without preallocated zeros."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    whole = min(used + -used % layout.size, len(data) - len(data) % layout.size)
    return layout.iter_unpack(data[:whole])


def offset_rows(path: Path, base_offset: int) -> list[IndexRow]:
    """Returns the entries of an offset index; each must lead to a batch that does not begin behind its offset.

    Ours name the batch's last offset.  Those of Apache Kafka name the first one before 2.0, and what it appended as one
    piece, as a follower or the cleaner does, by the last offset of the piece.
    """
    log = path.with_suffix(LOG)
    firsts = {place.position: place.base_offset for place in places(log)} if log.exists() else None
    rows: list[IndexRow] = []
    for delta, position in entries(path, OFFSET_ENTRY):
        offset = base_offset + delta
        fault = None
        if rows and offset <= rows[-1].columns[0]:
            fault = "does not ascend"
        elif firsts is not None and position not in firsts:
            fault = "leads to no batch"
        elif firsts is not None and firsts[position] > offset:
            fault = f"the batch there begins with offset {firsts[position]}"
        rows.append(IndexRow((offset, position), fault))
    return rows


def time_rows(path: Path, base_offset: int) -> list[IndexRow]:
    rows: list[IndexRow] = []
    for timestamp, delta in entries(path, TIME_ENTRY):
        fault = "does not ascend" if rows and timestamp < rows[-1].columns[0] else None
        rows.append(IndexRow((timestamp, base_offset + delta), fault))
    return rows


def places(log: Path) -> list[FileBatch]:
    """Returns the batches of a .log up to the first damage."""
    file = open_read_only(log)
    found: list[FileBatch] = []
    with suppress(Damaged):  # Shown when the .log itself is dumped.
        found.extend(walk(file, 0, file.size()))
    return found
