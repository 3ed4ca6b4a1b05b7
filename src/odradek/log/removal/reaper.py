"""Delayed deletion of files after their log has dropped them, so that readers can finish.

    retire    a log no longer has these segments, or the log was deleted: its files or its directory are renamed, and
              unlinked when they are due
    add_*     a file or a directory that was renamed already is unlinked when it is due

Memory changes first.  If the disk refuses a work item, a later round repeats it; only its first failure is raised.
begin() returns the work that is due as a value for a thread, because syncing a directory and unlinking a gigabyte take
tens of milliseconds.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush
from itertools import count

from odradek.base.units import SECOND_MS, Offset, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, Entry
from odradek.log.files.log_file_names import DELETED, SEGMENT_SUFFIXES, SNAPSHOT, segment_stem
from odradek.log.producers.snapshots import make_safe

RETRY_MS = 5 * SECOND_MS  # After a failure; doubled after each further one.
RETRY_MS_MAX = 300 * SECOND_MS
WORKS_PER_ROUND_MAX = 256
NO_LOCK: AbstractContextManager[object] = nullcontext()


class RemovalWork:
    """One piece of work on files.

    run() may be called in any thread, and again after it raised DiskFailed.
    """

    __slots__ = ("due_ms", "failures")

    def __init__(self, due_ms: TimestampMs) -> None:
        self.due_ms = due_ms
        self.failures = 0

    @property
    def count(self) -> int:
        """Return the number of files and directories that the work deletes."""
        return 0

    def run(self, disk: Disk, turns: AbstractContextManager[object]) -> None:
        raise NotImplementedError

    def follow_ups(self) -> Sequence[RemovalWork]:
        """Return the later work that this item requires once it is done."""
        return ()


class FileRemoval(RemovalWork):
    """Unlinking of files that belong together."""

    __slots__ = ("paths",)

    def __init__(self, paths: Sequence[str], due_ms: TimestampMs) -> None:
        super().__init__(due_ms)
        self.paths = paths

    @property
    def count(self) -> int:
        return len(self.paths)

    def run(self, disk: Disk, turns: AbstractContextManager[object]) -> None:
        for path in self.paths:
            disk.unlink(path)


class DirectoryRemoval(RemovalWork):
    """Unlinking of a directory's files, then of the directory."""

    __slots__ = ("path",)

    def __init__(self, path: str, due_ms: TimestampMs) -> None:
        super().__init__(due_ms)
        self.path = path

    @property
    def count(self) -> int:
        return 1

    def run(self, disk: Disk, turns: AbstractContextManager[object]) -> None:
        for entry in _entries(disk, self.path):
            disk.unlink(f"{self.path}/{entry.name}")
        disk.remove_directory(self.path)


class Retirement(RemovalWork):
    """Renaming of a log's directory or files in it, whose names may be needed again."""

    __slots__ = ("directory", "is_withdrawn")

    def __init__(self, directory: str) -> None:
        super().__init__(TimestampMs(0))
        self.directory = directory
        self.is_withdrawn = False  # If True, other files may have its names by now.

    def restarted(self) -> Retirement:
        """Return the same work, not started."""
        raise NotImplementedError


class SegmentRetirement(Retirement):
    """Renaming to .deleted of segments that a log no longer has, in the given order.

    The caller chooses the order so that an interruption leaves no gap: forwards from the log's start, backwards
    from its end.  The named snapshot must be durable before the first segment is renamed.  With `syncs_each` the
    order also survives a power failure.  A gap below the log start offset is harmless; within a log it could not be
    distinguished from compaction.
    """

    __slots__ = ("_base_offsets", "_renamed", "_snapshot", "_syncs_each", "_unlink_ms")

    def __init__(
        self,
        directory: str,
        base_offsets: Iterable[Offset],
        unlink_ms: TimestampMs,
        snapshot: str | None = None,
        *,
        syncs_each: bool = False,
    ) -> None:
        super().__init__(directory)
        self._snapshot = snapshot
        self._syncs_each = syncs_each
        self._base_offsets = offsets = tuple(base_offsets)
        assert list(offsets) in (sorted(offsets), sorted(offsets, reverse=True)), "any other order can leave a gap"
        self._unlink_ms = unlink_ms
        self._renamed: list[str] = []

    def restarted(self) -> Retirement:
        return SegmentRetirement(
            self.directory, self._base_offsets, self._unlink_ms, self._snapshot, syncs_each=self._syncs_each
        )

    def run(self, disk: Disk, turns: AbstractContextManager[object]) -> None:
        snapshot = self._snapshot
        if snapshot is not None:
            _if_exists(lambda: make_safe(disk, snapshot))
        with turns:
            if self.is_withdrawn:
                return
            for base_offset in self._base_offsets:
                for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
                    self._rename(disk, f"{self.directory}/{segment_stem(base_offset)}{suffix}")
                if self._syncs_each:
                    disk.sync_directory(self.directory)
        _if_exists(lambda: disk.sync_directory(self.directory))

    def _rename(self, disk: Disk, path: str) -> None:
        if rename_if_exists(disk, path, path + DELETED):
            self._renamed.append(path + DELETED)

    def follow_ups(self) -> Sequence[RemovalWork]:
        return [FileRemoval(tuple(self._renamed), self._unlink_ms)] if self._renamed else ()


class DirectoryRetirement(Retirement):
    """Renaming of a log's directory, which is then deleted at a given time, or kept for good without one."""

    __slots__ = ("_is_renamed", "_name", "_unlink_ms")

    def __init__(self, directory: str, name: str, unlink_ms: TimestampMs | None) -> None:
        assert name != directory, "a retired log gives its name up"
        super().__init__(directory)
        self._name = name
        self._unlink_ms = unlink_ms
        self._is_renamed = False

    def restarted(self) -> Retirement:
        return DirectoryRetirement(self.directory, self._name, self._unlink_ms)

    def run(self, disk: Disk, turns: AbstractContextManager[object]) -> None:
        with turns:
            if not self.is_withdrawn and not self._is_renamed:
                self._is_renamed = rename_if_exists(disk, self.directory, self._name)

    def follow_ups(self) -> Sequence[RemovalWork]:
        if self._unlink_ms is None or not self._is_renamed:
            return ()
        return [DirectoryRemoval(self._name, self._unlink_ms)]


class DueRemovals:
    """Work items that are due.

    run() may be called in any thread; failed items return to the reaper.
    """

    def __init__(self, disk: Disk, turns: AbstractContextManager[object], works: Sequence[RemovalWork]) -> None:
        self._disk = disk
        self._turns = turns
        self.works = works
        self._to_do = list(works)
        self.done: list[RemovalWork] = []
        self.failed: list[RemovalWork] = []
        self.is_ended = False

    def run(self) -> None:
        """Run all items.  Raise the first DiskFailed of an item that had not failed before."""
        to_do, self._to_do = self._to_do, []
        first_failure: DiskFailed | None = None
        try:
            for work in to_do:
                try:
                    work.run(self._disk, self._turns)
                    self.done.append(work)
                except DiskFailed as failure:
                    self.failed.append(work)
                    work.failures += 1
                    if work.failures == 1 and first_failure is None:
                        first_failure = failure
        finally:
            self.is_ended = True
        assert len(self.done) + len(self.failed) == len(self.works), "each work item of a round is done or has failed"
        if first_failure is not None:
            raise first_failure


class Reaper:
    """Queue of file work that waits for its due time, or for a disk that works again.

    The next start finds the leftovers of a crash by their suffixes.
    """

    def __init__(self, disk: Disk, turns: AbstractContextManager[object] = NO_LOCK) -> None:
        self._disk = disk
        self.turns = turns  # Held around renames of names that a log may need again.
        self._waiting: list[tuple[TimestampMs, int, RemovalWork]] = []
        self._numbers = count()
        self._latest_ms = TimestampMs(0)
        self._reap: DueRemovals | None = None
        self._retiring: dict[str, list[Retirement]] = {}  # By directory: not known to be done.

    def __len__(self) -> int:
        return len(self._waiting)

    def add_file(self, path: str, due_ms: TimestampMs) -> None:
        self._add(FileRemoval((path,), due_ms))

    def add_directory(self, path: str, due_ms: TimestampMs) -> None:
        self._add(DirectoryRemoval(path, due_ms))

    def _add(self, work: RemovalWork) -> None:
        heappush(self._waiting, (work.due_ms, next(self._numbers), work))

    # ------------------------------------------------------------------ retirements

    def retire(self, retirement: Retirement) -> None:
        """Rename the files of `retirement` in the next round."""
        assert not retirement.is_withdrawn, "the names of withdrawn work may belong to other files"
        self._retiring.setdefault(retirement.directory, []).append(retirement)
        self._add(retirement)

    def is_retiring(self, directory: str) -> bool:
        """Return whether retired files of the directory, or the directory, may still have their names."""
        return directory in self._retiring

    def retire_now(self, retirement: Retirement) -> None:
        """Rename before any other change in the directory.  Raise DiskFailed; the call may then be repeated."""
        retirement.run(self._disk, self.turns)
        for work in retirement.follow_ups():
            self._add(work)

    def retire_soon(self, retirement: Retirement) -> None:
        """Rename now if the disk permits, else in a later round."""
        try:
            self.retire_now(retirement)
        except DiskFailed:
            self.retire(retirement)

    def finish(self, directory: str) -> None:
        """Complete all renames in the directory now, because names are needed again.  Raise DiskFailed."""
        for found in list(self._retiring.get(directory, ())):
            retirement = found
            if self._reap is not None and not self._reap.is_ended and found in self._reap.works:
                self._withdraw(found)  # Its progress in another thread is unknown.
                retirement = found.restarted()
                self.retire(retirement)
            self.retire_now(retirement)
            self._withdraw(retirement)
        assert not self.is_retiring(directory), "all names in the directory are free"

    def withdraw(self, directory: str) -> None:
        """Drop all renames in a directory that is about to be renamed itself."""
        for retirement in list(self._retiring.get(directory, ())):
            self._withdraw(retirement)
        assert not self.is_retiring(directory), "nothing is renamed in the directory any more"

    def _withdraw(self, retirement: Retirement) -> None:
        with self.turns:
            retirement.is_withdrawn = True
        self._retired(retirement)

    def _retired(self, retirement: Retirement) -> None:
        of_directory = self._retiring.get(retirement.directory, [])
        if retirement in of_directory:
            of_directory.remove(retirement)
            assert retirement not in of_directory, "a retirement is queued once"
            if not of_directory:
                del self._retiring[retirement.directory]

    def finish_all(self) -> None:
        """Complete all renames in all directories, as far as the disk permits."""
        for directory in list(self._retiring):
            try:
                self.finish(directory)
            except DiskFailed:
                continue  # The log's start is in the checkpoint.

    # ------------------------------------------------------------------ rounds

    def begin_reap(self, now_ms: TimestampMs) -> DueRemovals | None:
        """Return the work that is due; None if there is none, or if the last round still runs."""
        if self._reap is not None and not self._reap.is_ended:
            return None
        self._requeue(now_ms)
        if now_ms < self._latest_ms:
            # The clock was set back, which would delay waiting work by the difference.  An equal shift keeps the heap.
            back = self._latest_ms - now_ms
            self._waiting = [(TimestampMs(due - back), number, work) for due, number, work in self._waiting]
        self._latest_ms = now_ms
        works: list[RemovalWork] = []
        while self._waiting and self._waiting[0][0] <= now_ms and len(works) < WORKS_PER_ROUND_MAX:
            works.append(heappop(self._waiting)[2])
        self._reap = DueRemovals(self._disk, self.turns, works) if works else None
        return self._reap

    def _requeue(self, now_ms: TimestampMs) -> None:
        """Queue the failed items of the last round again, and the follow-ups of completed ones."""
        reap, self._reap = self._reap, None
        if reap is None:
            return
        for work in reap.done:
            for following in work.follow_ups():
                self._add(following)
            if isinstance(work, Retirement):
                self._retired(work)
        for work in reap.failed:
            assert work.failures, "only failed work is repeated"
            pause = min(RETRY_MS << min(work.failures - 1, 10), RETRY_MS_MAX)
            work.due_ms = TimestampMs(now_ms + pause)
            self._add(work)

    def reap(self, now_ms: TimestampMs) -> int:
        """Run all work that is due; return the number of deleted files and directories."""
        deleted = 0
        while (work := self.begin_reap(now_ms)) is not None:
            work.run()
            deleted += sum(done.count for done in work.done)
        return deleted


def _entries(disk: Disk, directory: str) -> list[Entry]:
    """Return a directory's entries; [] if an earlier run has already removed the directory."""
    try:
        return disk.entries(directory)
    except DiskFailed as failure:
        if failure.errno == errno.ENOENT:
            return []
        raise


def rename_if_exists(disk: Disk, old: str, new: str) -> bool:
    """Rename a file or directory; return False if it does not exist."""
    return _if_exists(lambda: disk.rename(old, new))


def _if_exists(act: Callable[[], None]) -> bool:
    """Call `act`; return False if the file does not exist."""
    try:
        act()
    except DiskFailed as failure:
        if failure.errno != errno.ENOENT:
            raise
        return False
    return True
