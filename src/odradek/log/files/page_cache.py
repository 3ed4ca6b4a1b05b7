"""What the page cache has of a file, so that nobody waits for a disk who has others to serve.

A read that may not wait gets its bytes from the page cache or NotCached; a thread then loads what was missing, and the
read is tried again.

RWF_NOWAIT alone does not do: where the cache has nothing, Linux begins to read before it says so, and whoever asked
waits until the disk's queue takes that.  So cachestat, where there is one (Linux 6.5), is asked first.
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
LOADED_BYTES_MIN = 1024 * 1024  # A fetch takes as much of a partition, unless it says otherwise: one wait is for all.
AHEAD_BYTES = 4 * 1024 * 1024  # What a disk needs to be at work all the time.
AHEAD_PIECE_BYTES = 256 * 1024  # Takes 50 us.
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_CACHESTAT = 451  # On every processor that Linux runs on, but Alpha.
_OVERLAY = 0x794C7630  # Of <linux/magic.h>.
_FILE_SYSTEM_BYTES = 256  # More than a struct statfs has anywhere.


class ReadableFile(Protocol):
    """What of a file its readers use."""

    @property
    def path(self) -> str: ...

    def pread(self, position: int, size: int) -> bytes: ...

    def size(self) -> int: ...

    def fileno(self) -> int: ...


class NotCached(Exception):
    """Raised where the disk would have to be waited for.  The file stays open for whoever loads the bytes."""

    def __init__(self, file: ReadableFile, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} of {file.path} are not in the page cache")
        self.path = file.path
        self.position = position
        self._file = file
        self._size = size

    def load(self) -> None:
        """Waits for the bytes and some more, while the disk goes on with what follows.  Raises DiskFailed."""
        size = max(self._size, LOADED_BYTES_MIN)
        begin_to_read(self._file.fileno(), self.position, size)
        self._file.pread(self.position, size)


class CachedFile:
    """A file of which only what the page cache has is read; pread raises NotCached for the rest.

    With `whole` all of a file is loaded that lacks anything: a search in an index goes to and fro.
    """

    def __init__(self, file: ReadableFile, *, whole: bool = False) -> None:
        self._file = file
        self._is_whole = whole
        self.path = file.path

    def pread(self, position: int, size: int) -> bytes:
        descriptor = self._file.fileno()
        if descriptor < 0:  # No plain file: there is nothing to wait for.
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
    """Has the disk begin with this part of a file, and with what follows if it was read on up to here.

    In pieces, as the movers do: Linux's own reading ahead takes as much at once as the disk's read_ahead_kb says.  That
    is left to it, and twice as much, where it does not say what the page cache has.
    """
    if descriptor < 0:
        return
    if cached_pages(descriptor, position, 1) is None or _is_in_overlay(descriptor):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return
    end = position + size
    _ask_for(descriptor, position, end)
    if position and is_absent(descriptor, position - 1, 1):
        return
    start = ahead = min(end + AHEAD_BYTES, os.fstat(descriptor).st_size)
    while start > end and is_absent(descriptor, start - 1, 1):  # It was asked for in order.
        start = max(start - AHEAD_PIECE_BYTES, end)
    _ask_for(descriptor, start, ahead)


def _ask_for(descriptor: int, start: int, end: int) -> None:
    for at in range(start, end, AHEAD_PIECE_BYTES):
        os.posix_fadvise(descriptor, at, min(AHEAD_PIECE_BYTES, end - at), os.POSIX_FADV_WILLNEED)


class _Stretch(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "written", "evicted", "lately_evicted"))


# These take a microsecond, and keep the interpreter: to get that back may take longer than to be told.
_system_call: Any = ctypes.PyDLL(None).syscall
_fstatfs: Any = ctypes.PyDLL(None).fstatfs


def cached_pages(descriptor: int, position: int, size: int) -> int | None:
    """Returns how many pages of this part of a file are there or being read; None where the system can't say."""
    pages = _CacheStat()
    if _system_call(_CACHESTAT, descriptor, ctypes.byref(_Stretch(position, size)), ctypes.byref(pages), 0):
        return None
    return int(pages.cached)


def is_absent(descriptor: int, position: int, size: int) -> bool:
    """True if a page of this part of a file is not even being read; False also where the system can't say."""
    cached = cached_pages(descriptor, position, size)
    if cached is None or cached >= _pages(position, position + size):
        return False
    if cached >= _pages(position, min(position + size, os.fstat(descriptor).st_size)):
        return False
    return not _is_in_overlay(descriptor)


def _is_in_overlay(descriptor: int) -> bool:
    """True in a container's own file system, which has no pages: they are those of the one below."""
    found = ctypes.create_string_buffer(_FILE_SYSTEM_BYTES)
    return not _fstatfs(descriptor, found) and ctypes.c_long.from_buffer(found).value == _OVERLAY


def _pages(start: int, end: int) -> int:
    return (end - 1) // PAGE_BYTES - start // PAGE_BYTES + 1 if end > start else 0


def read_cached(descriptor: int, space: memoryview, position: int) -> int:
    """Reads from the page cache only.  Raises BlockingIOError if the disk would have to be waited for."""
    try:
        return os.preadv(descriptor, [space], position, READ_NOWAIT)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NOWAIT_UNSUPPORTED:  # Then there is nothing to wait for, or no way to know.
            raise
        return os.preadv(descriptor, [space], position)


def is_cached(descriptor: int, position: int, size: int) -> bool:
    """True if this part of a file seems to be in the page cache: one byte of each stretch is asked for.

    Pages are read ahead and dropped in stretches, so that what this misses is a short wait and rare.
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
        # A file system that cannot say: then there is nothing to wait for, or no way to know.
        return error.errno in _NOWAIT_UNSUPPORTED
    return True
