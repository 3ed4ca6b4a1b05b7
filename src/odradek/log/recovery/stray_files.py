"""Cleanup of a partition's directory before its log is opened: deletes or completes interrupted work.

A rename is atomic, so the suffix shows the progress:
│ .deleted │ marked for deletion                                        │ deleted                             │
│ .cleaned │ compaction's output, not complete                          │ deleted                             │
│ .swap    │ compaction's output, complete; sources may be deleted      │ replaces the sources                │
│ .tmp     │ a new version of a checkpoint, not renamed yet             │ deleted                             │
│ .aside   │ data cut off a log, log/recovery/quarantine.py             │ kept                                │
An index without its log is deleted, too, after the check for a missing segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.base.units import INT64_MAX, Offset
from odradek.log.files.disk import Disk
from odradek.log.files.log_file_names import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    TEMPORARY,
    parse_segment_file,
    segment_stem,
)
from odradek.log.segment.scan import Damaged, walk

SegmentFiles = dict[str, int]  # Suffix to size.


class LogFiles(NamedTuple):
    """Files of every valid segment, in ascending order, and the offsets of the snapshots.

    `orphans` are indexes whose log does not exist and was not being deleted.
    """

    segments: dict[Offset, SegmentFiles]
    snapshots: list[Offset]
    orphans: dict[Offset, SegmentFiles]


def found_files(disk: Disk, directory: str) -> LogFiles:
    """Return the files of a partition's directory, after leftovers were deleted or renamed."""
    entries = disk.entries(directory)
    if any(entry.name.endswith((CLEANED, SWAP)) for entry in entries):
        _finish_compaction(disk, directory, [entry.name for entry in entries])
        entries = disk.entries(directory)
    found: dict[Offset, SegmentFiles] = {}
    snapshots: list[Offset] = []
    retired: set[Offset] = set()
    for name, size in entries:
        parsed = parse_segment_file(name)
        if name.endswith((DELETED, TEMPORARY)):
            disk.unlink(f"{directory}/{name}")
            if parsed:
                retired.add(parsed[0])
        elif parsed and not parsed[2] and size >= 0:
            if parsed[1] in SEGMENT_SUFFIXES:
                found.setdefault(parsed[0], {})[parsed[1]] = size
            else:
                snapshots.append(parsed[0])
    orphans = {offset: found.pop(offset) for offset in [offset for offset in found if LOG not in found[offset]]}
    for offset in retired & orphans.keys():
        unlink_all(disk, directory, {offset: orphans.pop(offset)})
    return LogFiles(dict(sorted(found.items())), snapshots, orphans)


def unlink_all(disk: Disk, directory: str, files: Mapping[Offset, SegmentFiles]) -> None:
    for offset, suffixes in files.items():
        for suffix in suffixes:
            disk.unlink(f"{directory}/{segment_stem(offset)}{suffix}")


def _finish_compaction(disk: Disk, directory: str, names: Iterable[str]) -> None:
    """Rename compaction's complete output, and delete its sources and incomplete output.

    A .swap at or beyond the first .cleaned belongs to the same pass (KAFKA-6264).  Neither is complete, and the
    sources still exist.
    """
    files = [(name, parsed) for name in names if (parsed := parse_segment_file(name))]
    first_cleaned = min((p[0] for _, p in files if p[2] == CLEANED), default=INT64_MAX)
    swaps = [(name, p) for name, p in files if p[2] == SWAP and p[0] < first_cleaned]
    incomplete = [(name, p) for name, p in files if p[2] == CLEANED or (p[2] == SWAP and p[0] >= first_cleaned)]
    for suffix in (SWAP, CLEANED):  # Without the .cleaned, a .swap would appear complete.
        for name, _ in [one for one in incomplete if one[1][2] == suffix]:
            disk.unlink(f"{directory}/{name}")
        disk.sync_directory(directory)
    # Process each separately: between two of them there may be segments that stay or were swapped already.
    ends = {
        parsed[0]: _end_of(disk, f"{directory}/{segment_stem(parsed[0])}{LOG}{SWAP}", parsed[0])
        for _, parsed in swaps
        if parsed[1] == LOG
    }
    if ends:
        for name, parsed in files:
            is_segment = not parsed[2] and parsed[1] in SEGMENT_SUFFIXES
            if is_segment and any(base <= parsed[0] < end for base, end in ends.items()):
                disk.unlink(f"{directory}/{name}")
        disk.sync_directory(directory)  # Otherwise a power failure may leave a source and its replacement.
    # An index .swap whose log has its final name belongs to that log, because logs are renamed first.
    for is_log in (True, False):
        for name, _ in [one for one in swaps if (one[1][1] == LOG) is is_log]:
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
        disk.sync_directory(directory)


def _end_of(disk: Disk, path: str, base_offset: Offset) -> Offset:
    file = disk.open(path)
    end = base_offset
    try:
        for place in walk(file, 0, file.size()):
            end = Offset(place.last_offset + 1)
    except Damaged:
        pass  # The readable part determines which sources it replaces; recovery checks the rest.
    return end
