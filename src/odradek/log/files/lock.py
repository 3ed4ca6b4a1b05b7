"""Lock that excludes other brokers, Odradek's or Apache Kafka's, from a data directory."""
# ruff: noqa: PTH116  # As in disk.py.

from __future__ import annotations

import errno
import fcntl
import os

from odradek.log.files.disk_failures import DirectoryInUse, DiskFailed


class RealLock:
    """POSIX record lock on one whole file; it excludes Kafka, whose FileChannel uses the same kind.

    The process owns such a lock, not the descriptor.  A second open of the file in this process would not see the
    lock, and closing that descriptor would drop it.  So the process also records the identity of each file it has
    locked.
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
        """Release the lock; a second call does nothing.

        By then another broker may hold the lock, and another file may have the descriptor's number.
        """
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            self._held.discard(self._identity)
            os.close(descriptor)
