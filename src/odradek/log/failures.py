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
    def is_out_of_files(self) -> bool:
        """True if too many files are open: the disk was not even asked, and the operation may be tried again."""
        return is_out_of_files(self)


def is_out_of_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


class SegmentMissing(Exception):
    """Raised for a log amid which a segment is missing: the rest is not served as if it were all."""


class DirectoryInUse(OSError):
    """Another process, or another part of this one, holds the lock of a data directory."""
