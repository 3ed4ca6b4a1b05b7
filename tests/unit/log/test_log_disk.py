"""Real files on a real file system: guarantees and failures."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.log.files.disk import (
    EMPTY_SLICE,
    WRITE_BYTES_MAX,
    DirectoryInUse,
    DiskFailed,
    Entry,
    FileSlice,
    RealDisk,
    read_file,
    replace_file,
)
from support.limits import file_size_limit

DISK = RealDisk()

HOLD_THE_LOCK = """
import sys
from odradek.log.files.disk import RealDisk
lock = RealDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_writes_go_to_their_positions(tmp_path: Path) -> None:
    file = DISK.create(f"{tmp_path}/f")
    file.write(0, b"abcdef")
    file.write_all(3, [b"DE", bytearray(b"F"), memoryview(b"gh")])
    file.sync()
    assert file.pread(0, 100) == b"abcDEFgh"
    assert file.size() == 8
    file.truncate(2)
    assert DISK.open(f"{tmp_path}/f").pread(0, 100) == b"ab"


def test_many_buffers_are_written_consecutively(tmp_path: Path) -> None:
    file = DISK.create(f"{tmp_path}/f")
    buffers = [b"%05d" % number for number in range(3000)]
    file.write_all(10, buffers)
    assert file.pread(10, 20_000) == b"".join(buffers)


@pytest.mark.parametrize("sizes", [[700_000], [16_000] * 50, [100_000, 300_000, 5, 0, 131_072, 131_073], [0], []])
def test_large_writes_are_split(tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = [random.randbytes(size) for size in sizes]
    written: list[int] = []
    for name in ("pwrite", "pwritev"):
        monkeypatch.setattr(f"os.{name}", noting(getattr(os, name), written, tmp_path / "f"))
    file = DISK.create(f"{tmp_path}/f")
    file.write_all(10, buffers)
    assert file.pread(10, 1_000_000) == b"".join(buffers)
    assert max(written, default=0) <= WRITE_BYTES_MAX and sum(written) == sum(sizes)
    if len(sizes) == 1:
        file.write(5, buffers[0])
        assert file.pread(5, sizes[0]) == buffers[0]


def noting(write: Callable[..., int], written: list[int], path: Path) -> Callable[..., int]:
    """Return `write`, noting how much it writes to one file; threads of other tests may write to theirs."""

    def noted(descriptor: int, *arguments: Any) -> int:
        count = write(descriptor, *arguments)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            written.append(count)
        return count

    return noted


def test_short_write_fails_with_the_reason(tmp_path: Path) -> None:
    file = DISK.create(f"{tmp_path}/f")
    with file_size_limit(10_000):
        for buffers in ([b"x" * 20_000], [b"x" * 7000] * 3):
            with pytest.raises(DiskFailed) as failed:
                file.write_all(0, buffers)
            assert failed.value.errno == errno.EFBIG
            with pytest.raises(DiskFailed) as failed:
                file.write(0, b"".join(buffers))
            assert failed.value.errno == errno.EFBIG
            assert failed.value.filename == f"{tmp_path}/f"
    assert file.size() == 10_000


def test_full_device_is_reported_as_full() -> None:
    with pytest.raises(DiskFailed, match="No space left") as failed:
        DISK.open("/dev/full").write(0, b"x")
    assert failed.value.is_full


def test_failures_name_the_path(tmp_path: Path) -> None:
    missing = f"{tmp_path}/missing"
    for act in (
        lambda: DISK.open(missing),
        lambda: DISK.size(missing),
        lambda: DISK.modified_ms(missing),
        lambda: DISK.rename(missing, missing + "2"),
        lambda: DISK.entries(missing),
        lambda: DISK.sync_directory(missing),
        lambda: DISK.create(f"{missing}/f"),
    ):
        with pytest.raises(DiskFailed, match="missing") as failed:
            act()
        assert failed.value.errno == errno.ENOENT
        assert not failed.value.is_full


def test_directory_operations(tmp_path: Path) -> None:
    DISK.make_directory(f"{tmp_path}/a/b")
    DISK.make_directory(f"{tmp_path}/a/b")
    DISK.create(f"{tmp_path}/a/f").write(0, b"123")
    assert sorted(DISK.entries(f"{tmp_path}/a")) == [Entry("b", -1), Entry("f", 3)]
    DISK.unlink(f"{tmp_path}/a/f")
    DISK.unlink(f"{tmp_path}/a/f")
    DISK.remove_directory(f"{tmp_path}/a/b")
    DISK.remove_directory(f"{tmp_path}/a/b")
    DISK.sync_directory(f"{tmp_path}/a")
    assert DISK.entries(f"{tmp_path}/a") == []


def test_small_files_are_replaced_atomically(tmp_path: Path) -> None:
    path = f"{tmp_path}/f"
    assert read_file(DISK, path, 10) is None
    replace_file(DISK, path, b"one")
    replace_file(DISK, path, b"two", durable=False)
    assert read_file(DISK, path, 10) == b"two"
    with pytest.raises(DiskFailed, match="size 3"):
        read_file(DISK, path, 2)
    assert [entry.name for entry in DISK.entries(str(tmp_path))] == ["f"]


def test_a_slice_outlives_its_file(tmp_path: Path) -> None:
    file = DISK.create(f"{tmp_path}/f")
    file.write(0, b"0123456789")
    piece = FileSlice(file, 2, 6)
    del file
    DISK.unlink(f"{tmp_path}/f")
    assert piece.read() == b"234567"
    assert piece.part(4, 100).read() == b"67"
    assert piece.part(6, 1).size == 0


def test_slice_of_a_truncated_file_fails(tmp_path: Path) -> None:
    file = DISK.create(f"{tmp_path}/f")
    file.write(0, b"0123456789")
    piece = FileSlice(file, 2, 6)
    file.truncate(5)
    with pytest.raises(DiskFailed, match="read 3 bytes at 2, expected 6"):
        piece.read()


def test_files_close_with_their_last_reference(tmp_path: Path) -> None:
    file = DISK.create(f"{tmp_path}/f")
    number = file.fileno()
    os.fstat(number)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_disk_failure_has_the_path_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller takes the log offline; without a path it would look like a socket failure."""
    file = DISK.create(f"{tmp_path}/f")
    file.write(0, b"abcdefgh")
    piece = FileSlice(file, 2, 6)
    space = memoryview(bytearray(6))
    for flags_known in (True, False):

        def fails(*arguments: object, is_known: bool = flags_known) -> int:
            code = errno.EIO if is_known or len(arguments) == 3 else errno.EOPNOTSUPP
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", fails)
            with pytest.raises(DiskFailed) as caught:
                piece.read_cached(space)
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, file.path)
    assert piece.read_cached(space) == 6
    assert bytes(space) == b"cdefgh"


def test_the_empty_slice_opens_nothing() -> None:
    assert EMPTY_SLICE.read() == b""
    assert EMPTY_SLICE.part(0, 10).size == 0


def test_a_directory_is_locked_once(tmp_path: Path) -> None:
    lock = DISK.lock(f"{tmp_path}/.lock")
    with pytest.raises(DirectoryInUse, match=f"{tmp_path} is in use by another broker"):
        DISK.lock(f"{tmp_path}/.lock")
    lock.release()
    lock.release()
    another = DISK.lock(f"{tmp_path}/.lock")
    lock.release()
    with pytest.raises(DirectoryInUse):
        DISK.lock(f"{tmp_path}/.lock")
    another.release()
    DISK.lock(f"{tmp_path}/.lock").release()


@pytest.mark.waits
def test_lock_of_another_process_is_respected(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_THE_LOCK, f"{tmp_path}/.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUse, match="in use"):
            DISK.lock(f"{tmp_path}/.lock")
        other.kill()
    DISK.lock(f"{tmp_path}/.lock").release()


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    disk = RealDisk()
    before = os.umask(0o002)
    try:
        disk.make_directory(f"{tmp_path}/folder")
        disk.create(f"{tmp_path}/folder/file")
        os.umask(0o077)
        disk.create(f"{tmp_path}/folder/strict")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("folder", "folder/file", "folder/strict")]
    assert modes == [0o750, 0o640, 0o600]
