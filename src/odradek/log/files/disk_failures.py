"""Failures of file operations: never a peer's fault, and never converted to Refused here."""

from __future__ import annotations

import errno


class DiskFailed(OSError):
    """Failed file operation that takes its log offline; errno, filename and text describe it."""

    @classmethod
    def of(cls, error: OSError, path: str) -> DiskFailed:
        return cls(error.errno or errno.EIO, error.strerror or str(error), path)

    @property
    def is_full(self) -> bool:
        """Return whether there is no room, on the disk or for open files.

        The log works again once there is room.  After any other failure the log stays offline.
        """
        return self.errno in (errno.ENOSPC, errno.EDQUOT) or self.is_out_of_files

    @property
    def takes_offline(self) -> bool:
        """Return whether the state on the disk is unknown."""
        return not self.is_full

    @property
    def is_out_of_files(self) -> bool:
        """Return whether too many files are open; the disk was not accessed, so the operation may be retried."""
        return is_out_of_files(self)


class LogDamaged(DiskFailed):
    """Position in a .log file without a whole batch; the data before and after it stays readable."""

    takes_offline = False

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(errno.EIO, f"the log is damaged at byte {position}: {why}", path)
        self.path = path
        self.position = position
        self.why = why


class FileEnds(DiskFailed):
    """File that ends before data found in it: it was cut, by a follower's truncation or from outside."""


def is_out_of_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


class SegmentMissing(Exception):
    """Raised for a log with a missing segment, because the rest must not be served as if complete.

    `lost` is the file's name and the offset after the gap, if the beginning of the log is missing.
    """

    def __init__(self, text: str, lost: tuple[str, int] | None = None) -> None:
        super().__init__(text)
        self.lost = lost


class DirectoryInUse(OSError):
    """Another process, or another part of this one, holds the lock of a data directory."""
