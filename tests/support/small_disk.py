"""A disk that a test can fill: a small tmpfs, mounted for the time of the test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PIECE_BYTES = 1 << 16


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Path]:
    """Skips the test where mounting is not permitted."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        if subprocess.run(["umount", str(path)], check=False).returncode:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """A file that takes all the room there is."""
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
