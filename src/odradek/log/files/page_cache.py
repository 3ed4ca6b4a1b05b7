"""Page cache lookups, so that a thread that serves many clients never waits for a disk.

A non-blocking read gets its bytes from the page cache or raises NotCached.  A thread then loads the missing bytes, and
the read is tried again.

RWF_NOWAIT alone is not sufficient: if pages are missing, Linux begins to read before it returns an error, and the
caller waits until the disk's queue accepts the read.  So cachestat, if available (Linux 6.5), is called first.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, Protocol

from odradek.log.files.disk_failures import DiskFailed

READ_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_NOWAIT_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
READ_AHEAD_BYTES = 128 * 1024  # Linux's default.
LOADED_BYTES_MIN = 1024 * 1024  # A default fetch reads this much of a partition: one wait loads all of it.
AHEAD_BYTES = 4 * 1024 * 1024  # Enough to keep a disk busy.
AHEAD_PIECE_BYTES = 256 * 1024  # Takes 50 us.
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_CACHESTAT = 451  # On all of Linux's processors except Alpha.
_OVERLAY = 0x794C7630  # From <linux/magic.h>.
_FILE_SYSTEM_BYTES = 256  # More than the size of a struct statfs on any platform.


class ReadableFile(Protocol):
    """Part of a file's interface that readers use."""

    @property
    def path(self) -> str: ...

    def pread(self, position: int, size: int) -> bytes: ...

    def size(self) -> int: ...

    def fileno(self) -> int: ...


class NotCached(Exception):
    """Raised if a read would wait for the disk; the file stays open for the thread that loads the bytes."""

    def __init__(self, file: ReadableFile, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} of {file.path} are not in the page cache")
        self.path = file.path
        self.position = position
        self._file = file
        self._size = size

    def load(self) -> None:
        """Wait for the bytes and some more, while the disk reads ahead.  Raise DiskFailed if the read fails."""
        size = max(self._size, LOADED_BYTES_MIN)
        begin_to_read(self._file.fileno(), self.position, size)
        self._file.pread(self.position, size)


class CachedFile:
    """File limited to its bytes in the page cache; pread raises NotCached for other bytes.

    With `whole`, a missing byte loads the whole file, because a search in an index reads it at many places.
    """

    def __init__(self, file: ReadableFile, *, whole: bool = False) -> None:
        self._file = file
        self._is_whole = whole
        self.path = file.path

    def pread(self, position: int, size: int) -> bytes:
        descriptor = self._file.fileno()
        if descriptor < 0:  # Not a plain file, so there is no disk to wait for.
            return self._file.pread(position, size)
        if is_absent(descriptor, position, size):
            raise self._missing(position, size)
        space = bytearray(size)
        try:
            read = read_cached(descriptor, memoryview(space), position)
        except BlockingIOError:
            raise self._missing(position, size) from None
        except OSError as error:
            raise DiskFailed.of(error, self.path) from error
        if read < size and position + read < self._file.size():
            raise self._missing(position, size)
        del space[read:]
        return bytes(space)

    def size(self) -> int:
        return self._file.size()

    def fileno(self) -> int:
        return self._file.fileno()

    def _missing(self, position: int, size: int) -> NotCached:
        if self._is_whole:
            return NotCached(self._file, 0, self._file.size())
        return NotCached(self._file, position, size)


def begin_to_read(descriptor: int, position: int, size: int) -> None:
    """Start reading this part of a file from the disk, and read ahead if access is sequential.

    Read ahead in pieces, as the movers do: Linux's own read-ahead takes as much at once as the disk's read_ahead_kb
    permits.  Use Linux's read-ahead, at double size, if the state of the page cache is unknown.
    """
    if descriptor < 0:
        return
    if cached_pages(descriptor, position, 1) is None or _is_in_overlay(descriptor):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return
    end = position + size
    _prefetch(descriptor, position, end)
    if position and is_absent(descriptor, position - 1, 1):
        return
    start = ahead = min(end + AHEAD_BYTES, os.fstat(descriptor).st_size)
    while start > end and is_absent(descriptor, start - 1, 1):  # The pieces were requested in order.
        start = max(start - AHEAD_PIECE_BYTES, end)
    _prefetch(descriptor, start, ahead)


def _prefetch(descriptor: int, start: int, end: int) -> None:
    for at in range(start, end, AHEAD_PIECE_BYTES):
        os.posix_fadvise(descriptor, at, min(AHEAD_PIECE_BYTES, end - at), os.POSIX_FADV_WILLNEED)


class _Stretch(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "written", "evicted", "lately_evicted"))


# These calls take a microsecond and keep the GIL: to reacquire it could take longer than the call.
_system_call: Any = ctypes.PyDLL(None).syscall
_fstatfs: Any = ctypes.PyDLL(None).fstatfs


def cached_pages(descriptor: int, position: int, size: int) -> int | None:
    """Return the number of pages of this part in the page cache or being read; None if it is unknown."""
    pages = _CacheStat()
    if _system_call(_CACHESTAT, descriptor, ctypes.byref(_Stretch(position, size)), ctypes.byref(pages), 0):
        return None
    return int(pages.cached)


def is_absent(descriptor: int, position: int, size: int) -> bool:
    """Return whether a page of this part is neither cached nor being read; False if it is unknown."""
    cached = cached_pages(descriptor, position, size)
    if cached is None or cached >= _pages(position, position + size):
        return False
    if cached >= _pages(position, min(position + size, os.fstat(descriptor).st_size)):
        return False
    return not _is_in_overlay(descriptor)


def _is_in_overlay(descriptor: int) -> bool:
    """Return whether the file is in an overlay file system, whose pages belong to the one below."""
    found = ctypes.create_string_buffer(_FILE_SYSTEM_BYTES)
    return not _fstatfs(descriptor, found) and ctypes.c_long.from_buffer(found).value == _OVERLAY


def _pages(start: int, end: int) -> int:
    return (end - 1) // PAGE_BYTES - start // PAGE_BYTES + 1 if end > start else 0


def read_cached(descriptor: int, space: memoryview, position: int) -> int:
    """Read only from the page cache.  Raise BlockingIOError if the read would wait for the disk."""
    try:
        return os.preadv(descriptor, [space], position, READ_NOWAIT)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NOWAIT_UNSUPPORTED:  # There is no disk to wait for, or no way to know.
            raise
        return os.preadv(descriptor, [space], position)


def is_cached(descriptor: int, position: int, size: int) -> bool:
    """Return whether this part of a file seems to be in the page cache, by one byte of each stretch.

    Linux reads ahead and drops pages in stretches, so a miss of this check is rare and causes only a short wait.
    """
    if is_absent(descriptor, position, size):
        return False
    last = position + size - 1
    try:
        for at in (*range(position, last, READ_AHEAD_BYTES), last):
            os.preadv(descriptor, [bytearray(1)], at, READ_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        # The file system does not support the flag: there is no disk to wait for, or no way to know.
        return error.errno in _NOWAIT_UNSUPPORTED
    return True
