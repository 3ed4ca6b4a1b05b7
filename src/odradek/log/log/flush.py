"""One flush of one log as a value: created on the loop, run in a thread, reported back to the log.

flush = begin_flush(log)       collects everything to sync so that all appended records are durable
flush.run()                    takes milliseconds; runs in any thread; after DiskFailed the log must go offline, since
                               the kernel has dropped the pages it could not write
flush.on_synced(errors)            replaces run if other code has synced its descriptors()
end_flush(log, flush)          advances the recovery point to flush.end_offset
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence

from odradek.base.units import Offset
from odradek.log.files.disk import Disk, DiskFailed, File
from odradek.log.segment.segment import Segment


class Flush:
    """Files to sync for one log, data before names: a name never becomes durable before its bytes.

    The flush does not sync the active segment's indexes, because recovery rebuilds the indexes of the segment that
    contains the recovery point.  A segment sealed during the flush is not covered: the flush may sync all of its
    batches, but not its indexes.  A truncation during the flush lowers `end_offset`, because later appends are not
    part of this flush.
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
        "was_postponed",
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
        self._paths = tuple(paths)  # Opened only for the sync; the files may be deleted by then.
        self._directories = tuple(directories)
        self.end_offset = end_offset
        self.sealed = frozenset(sealed)  # Covered with their indexes and the snapshots at their ends.
        self.changes = 0  # Changes of the log's directory that the flush covers; set by the log, as is epoch_changes.
        self.epoch_changes = 0
        self.has_failed = False  # If True, a later successful sync proves nothing: the kernel has dropped the pages.
        self.was_postponed = False  # No descriptor was available; another flush will follow.

    @property
    def count(self) -> int:
        """Return the number of files that this flush keeps open."""
        return len(self._files)

    @property
    def is_empty(self) -> bool:
        return not (self._files or self._paths or self._directories)

    @property
    def is_instant(self) -> bool:
        """Return whether `run` never waits for a disk."""
        return not self._disk.has_syncs

    def run(self) -> None:
        assert not self.has_failed, "a failed flush is not repeated"
        try:
            for file in self._files:
                file.sync()
            for path in self._paths:
                self._sync_existing(lambda path: self._disk.open(path).sync(), path)
            for directory in self._directories:
                self._sync_existing(self._disk.sync_directory, directory)
        except DiskFailed as failure:
            self.was_postponed = failure.is_out_of_files
            self.has_failed = not self.was_postponed
            raise

    def descriptors(self) -> list[int] | None:
        """Return descriptors whose fdatasync completes the whole flush; None if only `run` can do it.

        The descriptors stay open as long as this object exists.
        """
        if self._paths or self._directories or self.is_instant:
            return None
        found = [file.fileno() for file in self._files]
        return None if -1 in found else found

    def on_synced(self, errors: Sequence[int]) -> None:
        """Record the results of syncs run elsewhere: an errno, or 0, per descriptor.

        Raise DiskFailed for the first error.
        """
        assert not self.has_failed, "a failed flush is not repeated"
        assert not (self._paths or self._directories), "only `run` syncs new names"
        for file, error in zip(self._files, errors, strict=True):
            if error:
                self.has_failed = True
                raise DiskFailed(error, os.strerror(error), file.path)

    def _sync_existing(self, sync: Callable[[str], None], path: str) -> None:
        try:
            sync(path)
        except DiskFailed as failure:
            if failure.errno != errno.ENOENT:  # The file was deleted since, so no data can be lost.
                raise
