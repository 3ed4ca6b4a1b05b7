"""A disk that a test can fill or pull: a small file system, mounted during the test."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PIECE_BYTES = 1 << 16
_SHUTDOWN, _WITHOUT_FLUSH = 0x8004587D, 2  # Of <linux/ext4.h>.


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a small disk, or skip the test if mounting is not permitted."""
    with _mounted(path, "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs"):
        yield path


@contextmanager
def failing_disk(path: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a disk for `pull`, ext4 in a file, or skip the test as small_disk does."""
    image = path.with_name(f"{path.name}.image")
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    make = shutil.which("mkfs.ext4") or "/sbin/mkfs.ext4"
    if not Path(make).exists():
        pytest.skip("there is no mkfs.ext4")
    subprocess.run([make, "-q", str(image)], check=True)
    with _mounted(path, "-o", "loop", str(image)):
        yield path


def pull(path: Path) -> None:
    """Make every call on the file system of `path` that needs its device end with EIO from now on."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
    os.close(descriptor)


@contextmanager
def _mounted(path: Path, *arguments: str) -> Iterator[None]:
    path.mkdir(parents=True)
    command = ["mount", *arguments, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        if subprocess.run(["umount", str(path)], check=False).returncode:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """Write a file that takes all the remaining space."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = PIECE_BYTES
    while size:
        with suppress(OSError):
            while os.write(descriptor, bytes(size)) == size:
                pass
        size //= 2
    os.close(descriptor)


def free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
