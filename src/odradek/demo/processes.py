"""The broker and the Spark driver as separate processes, which can be killed and restarted.

Each has its own session. Spark's Python daemon creates its own process group, so killing the driver's group would leave
its workers running. The session contains all of them: driver, Java, daemons, workers. It also isolates them from the
terminal's Ctrl-C, so that only the demo ends them.
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
    """Error of a process that ended, or did not start or stop, with the end of its log."""


class Process:
    """One command and all processes that it starts."""

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
        """Raise ProcessFailed if it has ended."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise self.failed(f"ended with status {status}")

    def kill(self) -> int:
        """Kill all its processes with SIGKILL and return their number, 0 if none is running."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()  # Immediately; finding the others takes time.
        killed = {process.pid}
        deadline = time.monotonic() + KILL_SECONDS_MAX
        # Repeated because a process may have started another one before it was killed.
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
        """Send SIGTERM and wait; raise ProcessFailed for an exit status other than 0."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not stop within {STOP_SECONDS_MAX:.0f} s") from None
        finally:
            self.kill()  # Processes that it may have left running.
        if status != 0:
            raise self.failed(f"stopped with status {status}")

    def failed(self, what: str) -> ProcessFailed:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if not line.startswith("\tat ")]
        shown = "\n    ".join(lines[-LOG_LINES_SHOWN:])  # Without Java's stack traces, which would fill all lines.
        return ProcessFailed(f"The {self.name} {what}.  The end of {self._log.name}:\n    {shown}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Broker(Process):
    """The command odradek serve; a restart uses the same data and address."""

    def __init__(self, folder: Path) -> None:
        super().__init__("broker", folder / "broker.log")
        self._data = folder / "broker"
        self.address = "127.0.0.1:0"  # Port 0: the system chooses, and the broker prints the port.

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
    """The Spark driver of pipeline.py; its temporary files are in a folder that the demo always removes."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        super().__init__(
            "Spark driver", folder / "spark.log", {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        )
        self._folder = folder

    def start(self, address: str) -> None:
        self.launch("odradek.demo.pipeline", address, str(self._folder))


def members_of(session: int) -> Iterator[int]:
    """Yield the live processes of a session.

    The format of /proc/PID/stat is: pid (name) state ppid pgrp session ...
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # The process ended in the meantime.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    yield int(entry.name)
