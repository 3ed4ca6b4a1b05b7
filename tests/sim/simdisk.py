"""A disk in memory that loses unsynced writes, and tears some of them.

It promises no more than POSIX does: a file's bytes are safe after its sync, a name (created, renamed, removed) after
the sync of its directory, in no particular order. `crash()` returns a possible state after a power failure:

- of each file's unsynced writes and truncations, in order, each is applied or lost, or (a write) applied in part, by
  sectors; a hole reads as zeros; now and then one bit of the unsynced data is wrong;
- of each directory's unsynced changes a prefix is applied, as with a journal; with `reorders`, any of them are, as long
  as the changes of each name are in order.

`kill()` returns the state after only the process died: all writes are present.

With `drops_unsynced`, a failed sync drops the data that it was to make safe, as on Linux: the process still sees it, no
later sync makes it safe, and the next process, which rereads the file, does not see it. With `caches_dropped`, the next
process sees it, too.

`fail_call(n)` lets the n-th call from then on fail once, without effect; `calls` counts them. If `reads_fail` is False,
the first call from the n-th on that changes the disk fails. `stop_at(n)` ends the process there: that call, which has
no effect, and all later ones raise Stopped.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

from odradek.log.files.disk import DirectoryInUse, DiskFailed, Entry, File, Lock
from sim.simfile import Node, SimFile


class SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        if path in held:
            raise DirectoryInUse(path)
        self._held, self._path = held, path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)


class Stopped(BaseException):
    """Raised where the process ends; it is never caught."""


Names = dict[str, "Node | None"]  # The names of one directory; None for a subdirectory.
Change = dict[str, "tuple[Node | None] | None"]  # New contents of names; None for removed ones.


@dataclass
class Folder:
    live: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        apply(self.live, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.live)
        self.pending.clear()

    def survived(self, random: Random, *, reorders: bool) -> Names:
        names = dict(self.durable)
        kept = random.randrange(len(self.pending) + 1)
        missed: set[str] = set()
        for number, change in enumerate(self.pending):
            if missed.isdisjoint(change) and (random.random() < 0.5 if reorders else number < kept):
                apply(names, change)
            else:
                missed |= change.keys()
        return names


def apply(names: Names, change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node[0]


class SimDisk:
    """A simulated disk that implements log.disk.Disk."""

    has_syncs = True

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {"": Folder()}
        self.room: int | None = None  # Bytes that can still be written; None for no limit.
        self.fails_to_sync = False
        self.drops_unsynced = False
        self.caches_dropped = False
        self.reorders = False
        self.reads_fail = True
        self.failures = 0  # Of all kinds, so far.
        self.now_ms = 0
        self.calls = 0
        self._fails_at = -1
        self._fails_on = False
        self._fails_with = errno.EIO
        self._stops_at: int | None = None
        self._locks: set[str] = set()

    def fail_call(self, number: int, error: int = errno.EIO) -> None:
        """Make one of the next calls fail: 0 is the next call, -1 none."""
        self._fails_at, self._fails_with = -1 if number < 0 else self.calls + number, error
        self._fails_on = False

    def fail_from(self, number: int, error: int = errno.EIO) -> None:
        """Make a call fail, as fail_call does, and all calls after it."""
        self.fail_call(number, error)
        self._fails_on = True

    def stop_at(self, number: int | None) -> None:
        """End the process at one of the next calls: 0 is the next call, None none."""
        self._stops_at = None if number is None else self.calls + number

    def count(self, path: str, *, is_read: bool = False) -> None:
        number, self.calls = self.calls, self.calls + 1
        if self._stops_at is not None and number >= self._stops_at:
            raise Stopped(path)
        if not 0 <= self._fails_at <= number or (is_read and not self.reads_fail):
            return
        if not self._fails_on:
            self._fails_at = -1
        self.failures += 1
        raise DiskFailed(self._fails_with, "injected", path)

    def fail_as(self, other: SimDisk) -> None:
        """Copy the faults of the other disk, which was the same device before."""
        self.room, self.reads_fail, self.fails_to_sync = other.room, other.reads_fail, other.fails_to_sync
        self.calls = other.calls
        self._fails_at, self._fails_on, self._fails_with = other._fails_at, other._fails_on, other._fails_with

    @property
    def is_failing(self) -> bool:
        """Return True if a later call will fail."""
        return self.fails_to_sync or self._fails_at >= 0 or self.room is not None

    def suspend(self) -> dict[str, object]:
        """Let all calls succeed, without counting them, until `resume`."""
        names = ("calls", "room", "fails_to_sync", "_fails_at", "_stops_at")
        trouble = {name: getattr(self, name) for name in names}
        self.room, self.fails_to_sync, self._fails_at, self._stops_at = None, False, -1, None
        return trouble

    def resume(self, trouble: dict[str, object]) -> None:
        vars(self).update(trouble)

    def mend(self) -> None:
        """Let all later calls succeed."""
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

    # Calls of the log.

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
            node = Node()
            folder.change({name: (node,)})
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
        node = folder.live[old_name]
        folder.change({old_name: None, new_name: (node,)})
        if node is None:
            self._move_folders(old, new)

    def _move_folders(self, old: str, new: str) -> None:
        """Move the contents with their directory; after a crash they are found under the surviving name."""
        self.folders[new] = self.folders.pop(old)
        self.folders[old] = self.folders[new]

    def unlink(self, path: str) -> None:
        self.count(path)
        folder, name = self._split(path)
        if folder.live.get(name) is not None:
            folder.change({name: None})

    def make_directory(self, path: str) -> list[str]:
        self.count(path)
        parent, _, name = path.rpartition("/")
        changed = [] if parent in self.folders else self.make_directory(parent)
        if name not in self.folders[parent].live:
            self.folders[parent].change({name: (None,)})
            self.folders[path] = Folder()
            changed.append(parent)
        return changed

    def remove_directory(self, path: str) -> None:
        self.count(path)
        parent, _, name = path.rpartition("/")
        folder = self.folders[parent]
        if name in folder.live:
            assert not self.folders[path].live, "a directory must be empty to be removed"
            folder.change({name: None})

    def lose_directory(self, path: str) -> None:
        """Remove a directory permanently with its contents, like an administrator while no process runs."""
        folder, name = self._split(path)
        folder.sync()
        del folder.live[name], folder.durable[name], self.folders[path]

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

    # Calls of the test.

    def pending_names(self, directory: str) -> list[Change]:
        """Return the unsynced changes of names in a directory."""
        return list(self.folders[directory].pending) if directory in self.folders else []

    def kill(self) -> SimDisk:
        """Return the disk after only the process died, with its locks released."""
        survivor = SimDisk()
        survivor.folders = self.folders
        survivor.now_ms = self.now_ms
        survivor.drops_unsynced, survivor.reorders = self.drops_unsynced, self.reorders
        survivor.caches_dropped = self.caches_dropped
        for folder in self.folders.values():
            for node in folder.live.values():
                if node is not None and not self.caches_dropped:
                    node.reread()
        return survivor

    @property
    def has_dropped(self) -> bool:
        """Return True if a failed sync has dropped data of a file."""
        nodes = (node for folder in self.folders.values() for node in folder.live.values())
        return any(node is not None and node.has_dropped for node in nodes)

    def crash(self, random: Random) -> SimDisk:
        survivor = SimDisk()
        survivor.now_ms = self.now_ms
        survivor.drops_unsynced, survivor.reorders = self.drops_unsynced, self.reorders
        survivor.caches_dropped = self.caches_dropped
        nodes: dict[int, Node] = {}
        for path, folder in self.folders.items():
            names: Names = {}
            for name, node in folder.survived(random, reorders=self.reorders).items():
                if node is not None and id(node) not in nodes:
                    nodes[id(node)] = node.crashed(random, may_flip=".log" in name or "index" in name)
                names[name] = None if node is None else nodes[id(node)]
            survivor.folders[path] = Folder(names, dict(names))
        return survivor
