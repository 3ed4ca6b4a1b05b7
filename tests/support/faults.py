"""Disk failures and clock jumps for a broker process: faults.c, compiled on first use."""

from __future__ import annotations

import errno
import shutil
import struct
import subprocess
from enum import IntFlag
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")
_CLOCK = struct.Struct("=q")
_FAILING = struct.Struct("=ii")
_FAILURES = struct.Struct("=q")
_SLOW = struct.Struct("=qii")
_FAILURES_AT = _CLOCK.size + _FAILING.size
_SLOW_AT = _FAILURES_AT + _FAILURES.size
_TEXT_AT = _SLOW_AT + _SLOW.size
_SIZE = _TEXT_AT + 1000


class Operations(IntFlag):
    NONE = 0
    READS = 1
    WRITES = 2
    SYNCS = 4
    OPENS = 8
    ALL = 15


class Faults:
    """Faults of a process started with `environment`; without a compiler, the test is skipped."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler")
        library = directory / "faults.so"
        command = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._control = directory / "faults.control"
        self._control.write_bytes(bytes(_SIZE))
        self.environment = {"LD_PRELOAD": str(library), "ODRADEK_FAULTS": str(self._control)}

    def fail(self, operations: Operations, path_part: str, error: int = errno.EIO) -> None:
        """Make these operations fail with that error on every file whose path contains `path_part`."""
        self.repair()
        self._write(_TEXT_AT, path_part.encode() + b"\0")
        self._write(_CLOCK.size, _FAILING.pack(operations, error))

    def slow_syncs(self, seconds: float, path_part: str) -> None:
        """Delay each sync of a file whose path contains `path_part` by this time; 0 ends this at once."""
        self.slow(Operations.SYNCS, seconds, path_part)

    def slow(self, operations: Operations, seconds: float, path_part: str) -> None:
        """Delay these operations on every such file by this time; `repair` ends this at once."""
        self.repair()
        self._write(_TEXT_AT, path_part.encode() + b"\0")
        self._write(_SLOW_AT, _SLOW.pack(int(seconds * 1e9), operations, 0))

    def repair(self) -> None:
        self._write(_CLOCK.size, _FAILING.pack(Operations.NONE, 0))
        self._write(_SLOW_AT, _SLOW.pack(0, Operations.NONE, 0))

    @property
    def failures(self) -> int:
        """Return the number of operations that were made to fail so far."""
        data = self._control.read_bytes()
        count: int = _FAILURES.unpack_from(data, _FAILURES_AT)[0]
        return count

    def shift_clock(self, seconds: float) -> None:
        """Set the wall clock ahead of the true time by this much; the monotonic clock is unchanged."""
        self._write(0, _CLOCK.pack(int(seconds * 1e9)))

    def _write(self, position: int, data: bytes) -> None:
        with self._control.open("r+b") as file:
            file.seek(position)
            file.write(data)
