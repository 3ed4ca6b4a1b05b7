"""The whole batches of .log and .log.aside files, read beyond any damage."""

from __future__ import annotations

from odradek.base.units import Offset
from odradek.log.files.disk import Disk, File
from odradek.log.files.log_file_names import ASIDE, LOG
from odradek.log.segment.damage import next_batch
from odradek.log.segment.scan import Damaged, walk_checked


def whole_offsets(file: File) -> list[int]:
    """Return the offsets of all whole batches of a file, each with one record."""
    found: list[int] = []
    position, end = 0, file.size()
    while position < end:
        try:
            for place in walk_checked(file, position, end):
                position = place.end_position
                found.append(place.base_offset)
        except Damaged as damage:
            following = next_batch(file, damage.position + 1, end, (Offset(0), Offset(0)), end)
            if following is None:
                break
            position = following
    return found


def stored_offsets(disk: Disk, directory: str) -> tuple[list[int], list[int]]:
    """Return the offsets in a log's segments and in its quarantined files, each in ascending order."""
    found: dict[bool, list[int]] = {False: [], True: []}
    for entry in disk.entries(directory):
        is_aside = f"{LOG}{ASIDE}" in entry.name and not entry.name.endswith(".tmp")
        if is_aside or entry.name.endswith(LOG):
            found[is_aside] += whole_offsets(disk.open(f"{directory}/{entry.name}"))
    return sorted(found[False]), sorted(found[True])
