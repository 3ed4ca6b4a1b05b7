"""A disk in memory that forgets what was not synced, and tears what it does not quite forget.

It promises no more than POSIX does: a file's bytes are safe after its sync, a name (created, renamed, removed) after
the sync of its directory, and nothing orders the two.  `crash()` gives the disk as it may be after a power failure:

- of each file's unsynced writes and truncations, in order, each is there, is lost, or (a write) is there in part, by
  sectors; a hole reads as zeros; now and then one bit of what was not synced is wrong;
- of each directory's unsynced changes a prefix is there.

`kill()` gives the disk after the process alone died: everything written is there.

`fail_call(n)` lets the n-th call from then on fail once, having done nothing; `calls` counts them.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from odradek.log.disk import Buffer, DirectoryInUse, DiskFailed, Entry, File, Lock

SECTOR_BYTES = 512
# Of a batch, base offset and leader epoch are under no checksum, in Kafka's format.  Its last bytes are.
FLIPPED_BYTES = 40


@dataclass
class Node:
    """One file's bytes: as the process sees them, as they were at the last sync, and what was done in between."""

    live: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(
        default_factory=list
    )  # (position, data), or (size, None): truncated.

    def write(self, position: int, data: bytes) -> None:
        apply(self.live, position, data)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        apply(self.live, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        self.synced = bytes(self.live)
        self.pending.clear()

    def crashed(self, random: Random, *, may_flip: bool) -> Node:
        content = bytearray(self.synced)
        for position, data in self.pending:
            fate = random.random()
            if fate < 0.6:
                apply(content, position, data)
                if may_flip and data and random.random() < 0.05:
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
    """Some sectors of one write; the file may have grown to its full size all the same."""
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
        self._disk.count(self.path)
        return bytes(self._node.live[position : position + size])

    def truncate(self, size: int) -> None:
        self._disk.count(self.path)
        self._node.truncate(size)

    def sync(self) -> None:
        self._disk.count(self.path)
        if self._disk.fails_to_sync:
            raise DiskFailed(errno.EIO, "sync failed", self.path)
        self._node.sync()

    def size(self) -> int:
        self._disk.count(self.path)
        return len(self._node.live)

    def fileno(self) -> int:
        return -1


class SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        if path in held:
            raise DirectoryInUse(path)
        self._held, self._path = held, path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)


Names = dict[str, "Node | None"]  # Of one directory; None is a directory itself.


@dataclass
class Folder:
    live: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    pending: list[Names] = field(default_factory=list)  # What it looked like after each unsynced change.

    def changed(self) -> None:
        self.pending.append(dict(self.live))

    def sync(self) -> None:
        self.durable = dict(self.live)
        self.pending.clear()


class SimDisk:
    """Satisfies log.disk.Disk."""

    has_syncs = True

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {"": Folder()}
        self.room: int | None = None  # Bytes that can still be written; None: any.
        self.fails_to_sync = False
        self.now_ms = 0
        self.calls = 0
        self._fails_at = -1
        self._fails_on = False
        self._fails_with = errno.EIO
        self._locks: set[str] = set()

    def fail_call(self, number: int, error: int = errno.EIO) -> None:
        """Of the calls to come, 0 is the next; -1: none fails any more."""
        self._fails_at, self._fails_with = self.calls + number, error
        self._fails_on = False

    def fail_from(self, number: int, error: int = errno.EIO) -> None:
        """As fail_call, and all calls after it as well."""
        self.fail_call(number, error)
        self._fails_on = True

    def count(self, path: str) -> None:
        number, self.calls = self.calls, self.calls + 1
        if number == self._fails_at or (self._fails_on and number > self._fails_at):
            raise DiskFailed(self._fails_with, "injected", path)

    def take_room(self, size: int) -> int:
        if self.room is None:
            return size
        allowed = min(size, self.room)
        self.room -= allowed
        return allowed

    # What the log asks of it.

    def open(self, path: str) -> File:
        self.count(path)
        folder, name = self._split(path)
        node = folder.live.get(name)
        if node is None:
            raise DiskFailed(errno.ENOENT, "no such file", path)
        return SimFile(self, path, node)

    def create(self, path: str) -> File:
        self.count(path)
        folder, name = self._split(path)
        node = folder.live.get(name)
        if node is None:
            node = folder.live[name] = Node()
            folder.changed()
        else:
            node.truncate(0)
        return SimFile(self, path, node)

    def entries(self, directory: str) -> list[Entry]:
        self.count(directory)
        live = self._folder(directory).live
        return [Entry(name, -1 if node is None else len(node.live)) for name, node in live.items()]

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        self.count(path)
        return self.now_ms

    def rename(self, old: str, new: str) -> None:
        self.count(old)
        folder, old_name = self._split(old)
        target, new_name = self._split(new)
        assert target is folder, "only within a directory"
        if old_name not in folder.live:
            raise DiskFailed(errno.ENOENT, "no such file", old)
        node = folder.live.pop(old_name)
        folder.live[new_name] = node
        folder.changed()
        if node is None:
            self._move_folders(old, new)

    def _move_folders(self, old: str, new: str) -> None:
        """Contents follow their directory; after a crash they are found under whichever name survived."""
        self.folders[new] = self.folders.pop(old)
        self.folders[old] = self.folders[new]

    def unlink(self, path: str) -> None:
        self.count(path)
        folder, name = self._split(path)
        if folder.live.pop(name, None) is not None:
            folder.changed()

    def make_directory(self, path: str) -> list[str]:
        self.count(path)
        parent, _, name = path.rpartition("/")
        changed = [] if parent in self.folders else self.make_directory(parent)
        if name not in self.folders[parent].live:
            self.folders[parent].live[name] = None
            self.folders[parent].changed()
            self.folders[path] = Folder()
            changed.append(parent)
        return changed

    def remove_directory(self, path: str) -> None:
        self.count(path)
        parent, _, name = path.rpartition("/")
        folder = self.folders[parent]
        if name in folder.live:
            assert not self.folders[path].live, "a directory must be empty to be removed"
            del folder.live[name]
            folder.changed()

    def sync_directory(self, path: str) -> None:
        self.count(path)
        self._folder(path).sync()

    def lock(self, path: str) -> Lock:
        if path.rpartition("/")[2] not in self._folder(path.rpartition("/")[0]).live:
            self.create(path)
        return SimLock(self._locks, path)

    def _folder(self, path: str) -> Folder:
        parent, _, name = path.rpartition("/")
        if path and (parent not in self.folders or name not in self.folders[parent].live):
            raise DiskFailed(errno.ENOENT, "no such directory", path)
        return self.folders[path]

    def _split(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    # What the test does to it.

    def kill(self) -> SimDisk:
        """The process is gone, with its locks; the kernel has everything."""
        survivor = SimDisk()
        survivor.folders = self.folders
        survivor.now_ms = self.now_ms
        return survivor

    def crash(self, random: Random) -> SimDisk:
        survivor = SimDisk()
        survivor.now_ms = self.now_ms
        nodes: dict[int, Node] = {}
        for path, folder in self.folders.items():
            states = [folder.durable, *folder.pending]
            found = states[random.randrange(len(states))]
            names: Names = {}
            for name, node in found.items():
                if node is not None and id(node) not in nodes:
                    nodes[id(node)] = node.crashed(random, may_flip=".log" in name or "index" in name)
                names[name] = None if node is None else nodes[id(node)]
            survivor.folders[path] = Folder(names, dict(names))
        return survivor
