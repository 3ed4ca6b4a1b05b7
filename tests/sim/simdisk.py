"""A disk in memory that forgets what was not synced, and tears what it does not quite forget.

It promises no more than POSIX does: a file's bytes are safe after its sync, a name (created, renamed, removed) after
the sync of its directory, and nothing orders the two.  `crash()` gives the disk as it may be after a power failure:

- of each file's unsynced writes and truncations, in order, each is there, is lost, or (a write) is there in part, by
  sectors; a hole reads as zeros; now and then one bit of what was not synced is wrong;
- of each directory's unsynced changes a prefix is there.

`kill()` gives the disk after the process alone died: everything written is there.

Where `drops_unsynced` is set, a sync that fails takes what it was to make safe with it, as on Linux: the process still
sees it, no later sync makes it safe, and the next process, for which the file is read anew, does not see it.

`fail_call(n)` lets the n-th call from then on fail once, having done nothing; `calls` counts them.  Where
`reads_fail` is False it is the first call from the n-th on that changes something.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

from odradek.log.disk import DirectoryInUse, DiskFailed, Entry, File, Lock
from sim.simfile import Node, SimFile


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
        self.drops_unsynced = False
        self.reads_fail = True
        self.failures = 0  # Of all kinds, so far.
        self.now_ms = 0
        self.calls = 0
        self._fails_at = -1
        self._fails_on = False
        self._fails_with = errno.EIO
        self._locks: set[str] = set()

    def fail_call(self, number: int, error: int = errno.EIO) -> None:
        """Of the calls to come, 0 is the next; -1: none fails any more."""
        self._fails_at, self._fails_with = -1 if number < 0 else self.calls + number, error
        self._fails_on = False

    def fail_from(self, number: int, error: int = errno.EIO) -> None:
        """As fail_call, and all calls after it as well."""
        self.fail_call(number, error)
        self._fails_on = True

    def count(self, path: str, *, is_read: bool = False) -> None:
        number, self.calls = self.calls, self.calls + 1
        if not 0 <= self._fails_at <= number or (is_read and not self.reads_fail):
            return
        if not self._fails_on:
            self._fails_at = -1
        self.failures += 1
        raise DiskFailed(self._fails_with, "injected", path)

    def fail_as(self, other: SimDisk) -> None:
        """Takes over what is wrong with the other disk: it was the same device before."""
        self.room, self.reads_fail, self.fails_to_sync = other.room, other.reads_fail, other.fails_to_sync
        self.calls = other.calls
        self._fails_at, self._fails_on, self._fails_with = other._fails_at, other._fails_on, other._fails_with

    def mend(self) -> None:
        """No call fails any more."""
        self.fail_call(-1)
        self.room = None
        self.fails_to_sync = False

    def take_room(self, size: int) -> int:
        if self.room is None:
            return size
        allowed = min(size, self.room)
        self.room -= allowed
        self.failures += allowed < size
        return allowed

    # What the log asks of it.

    def open(self, path: str) -> File:
        self.count(path, is_read=True)
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
        self.count(directory, is_read=True)
        live = self._folder(directory).live
        return [Entry(name, -1 if node is None else len(node.live)) for name, node in live.items()]

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        self.count(path, is_read=True)
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
        """Returns the disk after the process alone has died, with its locks."""
        survivor = SimDisk()
        survivor.folders = self.folders
        survivor.now_ms = self.now_ms
        survivor.drops_unsynced = self.drops_unsynced
        for folder in self.folders.values():
            for node in folder.live.values():
                if node is not None:
                    node.reread()
        return survivor

    @property
    def has_dropped(self) -> bool:
        """True if a failed sync has taken something from a file."""
        nodes = (node for folder in self.folders.values() for node in folder.live.values())
        return any(node is not None and node.has_dropped for node in nodes)

    def crash(self, random: Random) -> SimDisk:
        survivor = SimDisk()
        survivor.now_ms = self.now_ms
        survivor.drops_unsynced = self.drops_unsynced
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
