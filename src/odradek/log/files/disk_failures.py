"""How file operations fail: none of it is a peer's fault, and none becomes a Refused by itself."""

from __future__ import annotations

import errno


class DiskFailed(OSError):
    """A file operation failed.  It takes its log offline; errno and filename are set, and its text names both."""

    @classmethod
    def of(cls, error: OSError, path: str) -> DiskFailed:
        return cls(error.errno or errno.EIO, error.strerror or str(error), path)

    @property
    def is_full(self) -> bool:
        """True if there is no room, on the disk or among the open files: the log works again once there is some.

        After any other failure the log stays offline.
        """
        return self.errno in (errno.ENOSPC, errno.EDQUOT) or self.is_out_of_files

    @property
    def takes_offline(self) -> bool:
        """True if nobody knows any more what is on the disk."""
        return not self.is_full

    @property
    def is_out_of_files(self) -> bool:
        """True if too many files are open: the disk was not even asked, and the operation may be tried again."""
        return is_out_of_files(self)


class LogDamaged(DiskFailed):
    """A place in a .log file is no whole batch.  What is before and behind it can be read as ever."""

    takes_offline = False

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(errno.EIO, f"the log is damaged at byte {position}: {why}", path)
        self.path = path
        self.position = position
        self.why = why


class FileEnds(DiskFailed):
    """A file ends before what was found in it: it was cut since, as a follower's log may be, or by somebody else."""


def is_out_of_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


class SegmentMissing(Exception):
    """Raised for a log of which a segment is missing: the rest is not served as if it were all.

    `lost` is the file's name and the offset behind the gap, if the log lacks its beginning.
    """

    def __init__(self, text: str, lost: tuple[str, int] | None = None) -> None:
        super().__init__(text)
        self.lost = lost


class DirectoryInUse(OSError):
    """Another process, or another part of this one, holds the lock of a data directory."""
