"""The broker and the Spark driver as processes of their own, that can be killed and started again.

Each gets a session of its own.  Spark's Python daemon makes a process group for itself, so killing the driver's group
would leave its workers behind; the session is what all of them share: driver, Java, daemons, workers.  It also keeps
the terminal's Ctrl-C from them, so that the demo alone decides how they end.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

READY_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 180.0
KILL_SECONDS_MAX = 300.0
LOG_LINES_SHOWN = 15


class ProcessFailed(Exception):
    """Raised for a process that ended by itself, or would not start or stop; the text has the end of its log."""


class Process:
    """One command and everything it starts."""

    def __init__(self, name: str, log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *arguments: str, output: int | None = None) -> IO[bytes] | None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=log,
                cwd=self._log.parent,
                env=self._environment,
                start_new_session=True,
            )
        return self._process.stdout

    def check(self) -> None:
        """Raises ProcessFailed if it has ended."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise self.failed(f"ended with status {status}")

    def kill(self) -> int:
        """Kills all of it with SIGKILL; returns how many processes that were.  Does nothing where nothing runs."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()  # At once; looking for the others takes its time.
        killed = {process.pid}
        deadline = time.monotonic() + KILL_SECONDS_MAX
        # Again and again: a process may have started another between being seen and being killed.
        while members := set(members_of(process.pid)):
            killed |= members
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise self.failed(f"could not be killed: {members}")
            time.sleep(0.01)
        process.wait(KILL_SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()
        return len(killed)

    def stop(self) -> None:
        """Sends SIGTERM and waits.  Raises ProcessFailed for an exit status other than 0."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not stop within {STOP_SECONDS_MAX:.0f} s") from None
        finally:
            self.kill()  # What it may have left behind.
        if status != 0:
            raise self.failed(f"stopped with status {status}")

    def failed(self, what: str) -> ProcessFailed:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if not line.startswith("\tat ")]
        shown = "\n    ".join(lines[-LOG_LINES_SHOWN:])  # Without Java's stacks, which would be all there is.
        return ProcessFailed(f"The {self.name} {what}.  The end of {self._log.name}:\n    {shown}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Broker(Process):
    """odradek serve; started again it has the same data and the same address."""

    def __init__(self, folder: Path) -> None:
        super().__init__("broker", folder / "broker.log")
        self._data = folder / "broker"
        self.address = "127.0.0.1:0"  # Port 0: the system chooses, and the broker says which.

    def start(self) -> None:
        settings = {"listeners": f"PLAINTEXT://{self.address}", "log.dirs": str(self._data)}
        overrides = [f"--override={key}={value}" for key, value in settings.items()]
        output = self.launch("odradek", "serve", *overrides, output=subprocess.PIPE)
        assert output is not None
        self.address = self._ready_line(output).rpartition("//")[2]

    def _ready_line(self, output: IO[bytes]) -> str:
        line = b""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([output], [], [], max(deadline - time.monotonic(), 0))
            if not readable:
                raise self.failed(f"was not ready within {READY_SECONDS_MAX:.0f} s")
            part = os.read(output.fileno(), 1_000)
            if not part:
                raise self.failed("did not start")
            line += part
        return line.decode().strip()


class Pipeline(Process):
    """The Spark driver of pipeline.py.  Its temporary files are in a folder that the demo removes, killed or not."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        super().__init__(
            "Spark driver", folder / "spark.log", {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        )
        self._folder = folder

    def start(self, address: str) -> None:
        self.launch("odradek.demo.pipeline", address, str(self._folder))


def members_of(session: int) -> Iterator[int]:
    """Yields the live processes of a session.  /proc/PID/stat: pid (name) state ppid pgrp session ..."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # It ended while we looked.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    yield int(entry.name)
