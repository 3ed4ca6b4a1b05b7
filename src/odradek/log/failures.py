"""How a file operation ends that does not end well.  Neither is a peer's fault; neither becomes a Refused by itself."""

from __future__ import annotations

import errno


class DiskFailed(OSError):
    """A file operation failed.  It takes its log offline; errno and filename are set, and its text names both."""

    @classmethod
    def of(cls, error: OSError, path: str) -> DiskFailed:
        return cls(error.errno or errno.EIO, error.strerror or str(error), path)

    @property
    def is_full(self) -> bool:
        """No room, on the disk or among the open files: the log is whole and works again once there is some.

        Any other failure is the end of it.
        """
        return self.errno in (errno.ENOSPC, errno.EDQUOT) or self.is_out_of_files

    @property
    def is_out_of_files(self) -> bool:
        """Too many are open already: the disk was not even asked, and may be later."""
        return is_out_of_files(self)


def is_out_of_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


class SegmentMissing(Exception):
    """A segment amid a log is not there: what is left is not served as if it were all.  Its text is a sentence."""


class DirectoryInUse(OSError):
    """Another process, or another part of this one, holds the lock of a data directory."""
