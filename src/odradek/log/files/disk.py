"""Interface to all files: Odradek opens, writes, syncs and renames files only through a Disk.

The broker runs on RealDisk.  Tests run the same log on a disk that tears writes and forgets unsynced data.  Paths are
plain strings: a path object costs more than its system call.

Writes have explicit positions (pwrite).  So a failed write leaves no file position behind, and cutting the file undoes
it.  A file closes with its last reference: a slice of a deleted segment stays readable while it is being sent.
"""
# ruff: noqa: PTH105, PTH106, PTH103, PTH108, PTH116

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from odradek.base.limits import SHORT_LIVED_FILES
from odradek.log.files.disk_failures import DirectoryInUse, DiskFailed, FileEnds, is_out_of_files
from odradek.log.files.lock import RealLock
from odradek.log.files.page_cache import begin_to_read, is_absent, is_cached, read_cached

__all__ = [
    "EMPTY_SLICE",
    "DirectoryInUse",
    "Disk",
    "DiskFailed",
    "Entry",
    "File",
    "FileSlice",
    "Lock",
    "RealDisk",
    "read_file",
    "replace_file",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

CHECKED_BYTES = 1024 * 1024  # Bytes of a slice to check in the page cache at once; it may drop them later.
UNCHECKED_BYTES = 16 * 1024  # Copying this little takes no longer than checking.
FILE_MODE, FOLDER_MODE = 0o640, 0o750  # Other users must not read records; a stricter umask is respected.
BUFFERS_PER_WRITE_MAX = 512  # Half of Linux's IOV_MAX.
# For a large write Linux allocates large folios.  A virtual machine that reports free memory to its host must get them
# back first: 1 MiB at once took twice the processor time of its pieces.
WRITE_BYTES_MAX = 128 * 1024


class Entry(NamedTuple):
    """One name in a directory; `size` in bytes, -1 for a directory."""

    name: str
    size: int


class File(Protocol):
    """Open file; every method raises DiskFailed if the system call fails."""

    @property
    def path(self) -> str: ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of data; after a failure any part of it may be in the file."""

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write several buffers contiguously, in one system call if possible; fail as write does."""

    def pread(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position` on; fewer only at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the data durable, and the metadata needed to read it back (fdatasync)."""

    def size(self) -> int: ...

    def fileno(self) -> int:
        """Return the descriptor, for sendfile, and for fdatasync if the disk has syncs; -1 without one."""


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """File system as the log uses it; every method raises DiskFailed if the system call fails.

    `has_syncs` is False if syncs do nothing, so that there is nothing to wait for.
    """

    has_syncs: bool

    def open(self, path: str) -> File: ...

    def create(self, path: str) -> File:
        """Create a new file, or empty an existing one."""

    def entries(self, directory: str) -> list[Entry]: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing `new`; durable only after sync_directory."""

    def unlink(self, path: str) -> None:
        """Unlink a file; a missing file is not an error."""

    def make_directory(self, path: str) -> list[str]:
        """Create a directory with missing parents; return the directories that contain a new name."""

    def remove_directory(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Lock a data directory.  Raise DirectoryInUse if the lock is held."""


class FileSlice:
    """Run of whole batches in a file, for a response; `size` makes it a splice of the wire layer.

    It keeps its file open, so it stays readable after the segment was rolled, deleted or unlinked.
    """

    __slots__ = ("_cached_bytes", "file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        assert position >= 0 <= size, "a slice is within a file"
        self.file = file
        self.position = position
        self.size = size
        self._cached_bytes = 0  # From its start, at the last check.

    def read(self) -> bytes:
        """Read the whole slice, also from the disk.  Raise DiskFailed if the file is shorter than the slice."""
        begin_to_read(self.file.fileno(), self.position, self.size)
        data = self.file.pread(self.position, self.size)
        if len(data) != self.size:
            raise FileEnds(
                errno.EIO, f"read {len(data)} bytes at {self.position}, expected {self.size}", self.file.path
            )
        return data

    def send_to(self, socket: int, size_max: int) -> int | None:
        """Send from the page cache without a copy, as much as a non-blocking socket accepts; return the size.

        Return 0 if the socket is full.  Return None if the disk is needed, or if this is not a plain file: then
        the bytes must be read.  Raise OSError for errors of the socket.
        """
        descriptor = self.file.fileno()
        size = min(self.size, size_max, CHECKED_BYTES)
        if not self._cached_bytes:
            if descriptor < 0 or not is_cached(descriptor, self.position, size):
                return None
            self._cached_bytes = size
        try:
            sent = os.sendfile(socket, descriptor, self.position, min(size, self._cached_bytes))
        except BlockingIOError:
            return 0
        if not sent:
            raise FileEnds(errno.EIO, f"end of file before position {self.position}", self.file.path)
        return sent

    def read_cached(self, space: memoryview) -> int:
        """Copy the slice's beginning into `space` from the page cache, and return the number of bytes.

        Return 0 if this is not a plain file.  Also return 0 if `space` is large enough that checking first
        costs little, and not all of its bytes are cached.  Raise DiskFailed if the read fails.
        """
        descriptor, space = self.file.fileno(), space[: self.size]
        if descriptor < 0:
            return 0
        if len(space) > UNCHECKED_BYTES and is_absent(descriptor, self.position, len(space)):
            return 0
        try:
            read = read_cached(descriptor, space, self.position)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise DiskFailed.of(error, self.file.path) from error
        if not read:
            raise FileEnds(errno.EIO, f"end of file before position {self.position}", self.file.path)
        return read

    def failure(self, error: OSError) -> DiskFailed:
        """Return the reason why a mover could not read the slice: the file may be shorter now."""
        failed = DiskFailed.of(error, self.file.path)
        if self.file.size() < self.position + self.size:
            return FileEnds(failed.errno, failed.strerror, failed.filename)
        return failed

    def part(self, start: int, size: int) -> FileSlice:
        """Return a part of the slice, up to its end, because a response is sent in chunks."""
        assert 0 <= start <= self.size
        piece = FileSlice(self.file, self.position + start, min(size, self.size - start))
        piece._cached_bytes = max(self._cached_bytes - start, 0)
        return piece

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, {self.position}, {self.size})"


class NoFile:
    """File of an empty slice, so that a fetch at the end of an idle log opens no file."""

    path = ""

    def write(self, position: int, data: Buffer) -> None:
        raise AssertionError("the missing file is only read")

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        raise AssertionError("the missing file is only read")

    def pread(self, position: int, size: int) -> bytes:
        return b""

    def truncate(self, size: int) -> None:
        raise AssertionError("the missing file is only read")

    def sync(self) -> None:
        return

    def size(self) -> int:
        return 0

    def fileno(self) -> int:
        return -1


EMPTY_SLICE = FileSlice(NoFile(), 0, 0)


def check_may_stay(file: File) -> None:
    """Raise DiskFailed if a file that stays open would use one of the last descriptors.

    Syncs of logs need these descriptors.  The error is the same as without any free descriptor.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and file.fileno() >= limit - SHORT_LIVED_FILES:
        raise DiskFailed(errno.EMFILE, os.strerror(errno.EMFILE), file.path)


class RealFile:
    """File descriptor that closes with its last reference."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    def write(self, position: int, data: Buffer) -> None:
        try:
            if len(data) > WRITE_BYTES_MAX:
                self._write_rest(position, memoryview(data))
                return
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                self._write_rest(position + written, memoryview(data)[written:])
        except OSError as error:
            raise DiskFailed.of(error, self.path) from None

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        start = size = 0
        for number, buffer in enumerate(buffers):
            if number > start and (size + len(buffer) > WRITE_BYTES_MAX or number - start == BUFFERS_PER_WRITE_MAX):
                self._write_some(position, buffers[start:number])
                position, start, size = position + size, number, 0
            size += len(buffer)
        self._write_some(position, buffers[start:])

    def _write_some(self, position: int, buffers: Sequence[Buffer]) -> None:
        if len(buffers) == 1:
            self.write(position, buffers[0])
            return
        try:
            written = os.pwritev(self._fd, buffers, position)
            if written != sum(map(len, buffers)):
                self._write_rest(position + written, memoryview(b"".join(buffers))[written:])
        except OSError as error:
            raise DiskFailed.of(error, self.path) from None

    def _write_rest(self, position: int, rest: memoryview) -> None:
        """Write in pieces, also after a short write; usually the next write reports a full disk."""
        while rest:
            written = os.pwrite(self._fd, rest[:WRITE_BYTES_MAX], position)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            position, rest = position + written, rest[written:]

    def pread(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:
            raise DiskFailed.of(error, self.path) from None

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise DiskFailed.of(error, self.path) from None

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise DiskFailed.of(error, self.path) from None

    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise DiskFailed.of(error, self.path) from None

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


NO_DESCRIPTOR = -1


def _ignore_descriptor(descriptor: int) -> None:
    """Ignore a descriptor; the default if no one counts descriptors."""


class RealDisk:
    """The operating system's files; it has no state, so any thread may use it.

    `opened` is called with the descriptor of each opened file, or with NO_DESCRIPTOR if none was available; in any
    thread.
    """

    has_syncs = True

    def __init__(self, opened: Callable[[int], None] = _ignore_descriptor) -> None:
        self._opened = opened

    def open(self, path: str) -> File:
        return self._open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: str) -> File:
        return self._open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)

    def _open(self, path: str, flags: int) -> File:
        return RealFile(self._descriptor(path, flags), path)

    def _descriptor(self, path: str, flags: int) -> int:
        try:
            descriptor = os.open(path, flags, FILE_MODE)
        except OSError as error:
            if is_out_of_files(error):
                self._opened(NO_DESCRIPTOR)
            raise DiskFailed.of(error, path) from None
        self._opened(descriptor)
        return descriptor

    def entries(self, directory: str) -> list[Entry]:
        try:
            with os.scandir(directory) as found:
                return [Entry(e.name, -1 if e.is_dir() else e.stat().st_size) for e in found]
        except OSError as error:
            raise DiskFailed.of(error, directory) from None

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise DiskFailed.of(error, path) from None

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise DiskFailed.of(error, path) from None

    def rename(self, old: str, new: str) -> None:
        try:
            os.replace(old, new)
        except OSError as error:
            raise DiskFailed.of(error, old) from None

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DiskFailed.of(error, path) from None

    def make_directory(self, path: str) -> list[str]:
        try:
            Path(path).mkdir(FOLDER_MODE)  # Usually only the last directory is new.
        except (FileExistsError, FileNotFoundError):
            return self._make_directories(path)
        except OSError as error:
            raise DiskFailed.of(error, path) from None
        return [str(Path(path).parent)]

    def _make_directories(self, path: str) -> list[str]:
        changed = [str(one.parent) for one in (Path(path), *Path(path).parents) if not os.path.lexists(one)]
        try:
            os.makedirs(path, FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise DiskFailed.of(error, path) from None
        return changed

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DiskFailed.of(error, path) from None

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise DiskFailed.of(error, path) from None

    def lock(self, path: str) -> Lock:
        return RealLock(path)


def read_file(disk: Disk, path: str, bytes_max: int) -> bytes | None:
    """Return the content of a small file; None if it does not exist.

    Raise DiskFailed if it has more than `bytes_max` bytes.
    """
    try:
        file = disk.open(path)
    except DiskFailed as failure:
        if failure.errno == errno.ENOENT:
            return None
        raise
    size = file.size()
    if size > bytes_max:
        raise DiskFailed(errno.EFBIG, f"file size {size} exceeds the maximum of {bytes_max} bytes", path)
    return file.pread(0, size)


def replace_file(disk: Disk, path: str, data: bytes, *, durable: bool = True) -> None:
    """Replace a whole file: write the new content to a temporary file, sync it, and rename it.

    The name itself is durable only after sync_directory.  With `durable` False the content may be lost or empty
    after a power failure; use that for files that the log can rebuild.
    """
    temporary = path + ".tmp"
    file = disk.create(temporary)
    try:
        file.write(0, data)
        if durable:
            file.sync()
        disk.rename(temporary, path)
    except DiskFailed:
        with suppress(DiskFailed):  # The next write or the next start deletes it, too.
            disk.unlink(temporary)
        raise
