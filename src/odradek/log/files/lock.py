"""The lock that keeps two brokers off one data directory, be they Odradek's or Apache Kafka's."""
# ruff: noqa: PTH116  # As in disk.py.

from __future__ import annotations

import errno
import fcntl
import os

from odradek.log.files.disk_failures import DirectoryInUse, DiskFailed


class RealLock:
    """A POSIX record lock on the whole of one file, the kind Java's FileChannel takes: it and we exclude each other.

    Such a lock is the process's, not the descriptor's: a second open of the file would not see it, and closing that one
    would drop it.  So what this process holds is kept by file identity too.
    """

    _held: set[tuple[int, int]] = set()  # noqa: RUF012  # One set for the process, on purpose.

    def __init__(self, path: str) -> None:
        try:
            self._identity = self._identify(path)
            if self._identity in self._held:
                raise BlockingIOError
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._identity = self._identify(path)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._fd)
                raise
        except (BlockingIOError, PermissionError) as error:
            if error.errno == errno.EACCES and not os.access(path, os.W_OK):
                raise DiskFailed.of(error, path) from None
            folder = path.rpartition("/")[0]
            text = f"{folder} is in use by another broker, which holds its .lock: stop it, or use another directory"
            raise DirectoryInUse(text) from None
        except OSError as error:
            raise DiskFailed.of(error, path) from None
        self._held.add(self._identity)

    @staticmethod
    def _identify(path: str) -> tuple[int, int]:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return (-1, -1)
        return (status.st_dev, status.st_ino)

    def release(self) -> None:
        """Harmless the second time: somebody else may hold the lock by then, and have the descriptor's number."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            self._held.discard(self._identity)
            os.close(descriptor)
