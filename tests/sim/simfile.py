"""The bytes of one simulated file: as the process sees them, as they are on disk, and the changes between the two."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from odradek.log.files.disk import Buffer, DiskFailed

if TYPE_CHECKING:
    from sim.simdisk import SimDisk

SECTOR_BYTES = 512
# In Kafka's batch format, the checksum covers the last bytes, but not base offset and leader epoch.
FLIPPED_BYTES = 40


@dataclass
class Node:
    """The bytes of one file: as the process sees them, as of the last sync, and the changes in between."""

    live: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(
        default_factory=list
    )  # (position, data), or (size, None): truncated.
    has_dropped: bool = False  # A sync failed, and dropped its data: no later sync makes it safe.

    def write(self, position: int, data: bytes) -> None:
        apply(self.live, position, data)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        apply(self.live, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        self.synced = self._on_disk() if self.has_dropped else bytes(self.live)
        self.pending.clear()

    def _on_disk(self) -> bytes:
        content = bytearray(self.synced)
        for position, data in self.pending:
            apply(content, position, data)
        return bytes(content)

    def drop(self) -> None:
        """Fail a sync as Linux does: unwritten data counts as written, but is lost."""
        self.has_dropped = self.has_dropped or bool(self.pending)
        self.pending.clear()

    def reread(self) -> None:
        """Reread the file from disk: dropped data is no longer visible."""
        if self.has_dropped:
            self.live[:] = self._on_disk()
            self.has_dropped = False

    def crashed(self, random: Random, *, may_flip: bool) -> Node:
        content = bytearray(self.synced)
        for position, data in self.pending:
            fate = random.random()
            if fate < 0.6:
                is_same = data is not None and content[position : position + len(data)] == data
                apply(content, position, data)
                if may_flip and data and not is_same and random.random() < 0.05:
                    end = position + len(data)
                    content[random.randrange(max(end - FLIPPED_BYTES, position), end)] ^= 1 << random.randrange(8)
            elif fate < 0.8 and data:
                tear(content, position, data, random)
        return Node(content, bytes(content))


def apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
    else:
        if len(content) < position:
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data


def tear(content: bytearray, position: int, data: bytes, random: Random) -> None:
    """Return some sectors of one write; the file may still have its full new size."""
    start = position
    while start < position + len(data):
        end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, position + len(data))
        if random.random() < 0.5:
            apply(content, start, data[start - position : end - position])
        start = end


class SimFile:
    def __init__(self, disk: SimDisk, path: str, node: Node) -> None:
        self._disk = disk
        self._node = node
        self.path = path

    def write(self, position: int, data: Buffer) -> None:
        self._disk.count(self.path)
        allowed = self._disk.take_room(len(data))
        self._node.write(position, bytes(data[:allowed]))
        if allowed < len(data):
            raise DiskFailed(errno.ENOSPC, "no room", self.path)

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.write(position, b"".join(buffers))

    def pread(self, position: int, size: int) -> bytes:
        self._disk.count(self.path, is_read=True)
        return bytes(self._node.live[position : position + size])

    def truncate(self, size: int) -> None:
        self._disk.count(self.path)
        self._node.truncate(size)

    def sync(self) -> None:
        try:
            self._disk.count(self.path)
            if self._disk.fails_to_sync:
                self._disk.failures += 1
                raise DiskFailed(errno.EIO, "sync failed", self.path)
        except DiskFailed as failure:
            if self._disk.drops_unsynced and not failure.is_out_of_files:  # No sync says that.
                self._node.drop()
            raise
        self._node.sync()

    def size(self) -> int:
        self._disk.count(self.path, is_read=True)
        return len(self._node.live)

    def fileno(self) -> int:
        return -1
