"""One flush of one log as a value: taken where the log is used, run in a thread, reported back to the log.

flush = begin_flush(log)       what must be synced for everything appended so far to be safe
flush.run()                    milliseconds; in any thread; raises DiskFailed: the log must then go offline, since
                               the kernel has dropped the pages it could not write
flush.ended(errors)            instead of run, if somebody else has synced its descriptors()
end_flush(log, flush)          the recovery point moves to flush.end_offset
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence

from odradek.base.units import Offset
from odradek.log.files.disk import Disk, DiskFailed, File
from odradek.log.segment.segment import Segment


class Flush:
    """Data first, then what says where it is: a name is never durable before the bytes it names.

    The open segment's indexes are not synced: recovery rebuilds the indexes of the segment the recovery point is in.
    A segment that is sealed meanwhile is not covered, though all of its batches may be: its indexes are not.
    A truncation meanwhile lowers end_offset: what is appended after it was not part of this.
    """

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_paths",
        "changes",
        "end_offset",
        "epoch_changes",
        "has_failed",
        "sealed",
        "was_put_off",
    )

    def __init__(
        self,
        disk: Disk,
        end_offset: Offset,
        *,
        files: Iterable[File],
        paths: Iterable[str],
        directories: Iterable[str],
        sealed: Iterable[Segment] = (),
    ) -> None:
        self._disk = disk
        self._files = tuple(files)
        self._paths = tuple(paths)  # Opened for the sync only; they may be gone by then.
        self._directories = tuple(directories)
        self.end_offset = end_offset
        self.sealed = frozenset(sealed)  # The segments it covers with their indexes and the snapshot at their end.
        self.changes = 0  # How much of the log's directory and epochs it covers; for the log.
        self.epoch_changes = 0
        self.has_failed = False  # Then a later sync that succeeds says nothing: the kernel has dropped the pages.
        self.was_put_off = False  # There was no descriptor for it, and another one will be begun.

    @property
    def count(self) -> int:
        """How many files are kept open for this flush."""
        return len(self._files)

    @property
    def is_empty(self) -> bool:
        return not (self._files or self._paths or self._directories)

    @property
    def is_instant(self) -> bool:
        """True if `run` has no disk to wait for."""
        return not self._disk.has_syncs

    def run(self) -> None:
        assert not self.has_failed, "a sync after one that failed says nothing"
        try:
            for file in self._files:
                file.sync()
            for path in self._paths:
                self._if_there(lambda path: self._disk.open(path).sync(), path)
            for directory in self._directories:
                self._if_there(self._disk.sync_directory, directory)
        except DiskFailed as failure:
            self.was_put_off = failure.is_out_of_files
            self.has_failed = not self.was_put_off
            raise

    def descriptors(self) -> list[int] | None:
        """Returns the descriptors whose fdatasync is the whole flush; None if only `run` can do it.

        They stay open as long as this object is there.
        """
        if self._paths or self._directories or self.is_instant:
            return None
        found = [file.fileno() for file in self._files]
        return None if -1 in found else found

    def ended(self, errors: Sequence[int]) -> None:
        """Takes the result of syncs that somebody else did: an errno, or 0, for each descriptor.  Raises DiskFailed."""
        assert not self.has_failed, "a sync after one that failed says nothing"
        for file, error in zip(self._files, errors, strict=True):
            if error:
                self.has_failed = True
                raise DiskFailed(error, os.strerror(error), file.path)

    def _if_there(self, sync: Callable[[str], None], path: str) -> None:
        try:
            sync(path)
        except DiskFailed as failure:
            if failure.errno != errno.ENOENT:  # Deleted meanwhile: nothing left to keep.
                raise
