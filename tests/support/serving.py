"""A broker as users run it: `odradek serve` in its own process, on a free port, in a temporary directory."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

READY_SECONDS_MAX = 180


class NotReady(RuntimeError):
    """Raised if the process ended before it was ready; the text contains its output."""


class Serving:
    """One broker process. `kill` is kill -9, `stop` SIGTERM; `start` may follow either, with the same data and port."""

    def __init__(self, directory: Path, *options: str, **overrides: str) -> None:
        self.directory = directory
        self._options = options
        self._overrides: dict[str, str] = {"log.dirs": str(directory / "data"), **overrides}
        self.environment: dict[str, str] = {}  # For the next process, in addition to ours.
        self.program: tuple[str, ...] = ("-m", "odradek")  # Arguments of the interpreter before `serve`.
        self.host = "127.0.0.1"  # Where it listens.
        self.within: tuple[str, ...] = ()  # The command that runs it, as in a namespace.
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, overrides: Mapping[str, str] = {}) -> Serving:
        self._overrides |= overrides
        self._overrides.setdefault("listeners", f"PLAINTEXT://{self.address}")
        if self.port:
            self._overrides["listeners"] = f"PLAINTEXT://{self.address}"
        arguments = [f"--override={key}={value}" for key, value in self._overrides.items()]
        with (self.directory / "stderr.txt").open("a") as errors:
            self._process = subprocess.Popen(
                [*self.within, sys.executable, *self.program, "serve", *self._options, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.directory,
                env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            code = self._process.wait(READY_SECONDS_MAX)
            raise NotReady(f"exit {code}: {line}{(self.directory / 'stderr.txt').read_text()}")
        self.port = int(line.rpartition(":")[2])
        return self

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        return self._end(signal.SIGTERM)

    def interrupt(self) -> int:
        """Send Ctrl-C; return the exit status."""
        return self._end(signal.SIGINT)

    def is_idle_for(self, seconds: float) -> bool:
        """Return whether the process uses less than a sixth of this time; a loop that spins uses nearly all of it."""
        before = self.cpu_seconds()
        time.sleep(seconds)
        return self.cpu_seconds() - before < seconds / 6

    def memory_kib(self) -> int:
        """Return the resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]  # A process that runs has it.

    def cpu_seconds(self) -> float:
        """Return the processor time since the start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _end(self, signal_number: int) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(signal_number)
        try:
            code = process.wait(READY_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()
        return code

    def errors(self) -> str:
        return (self.directory / "stderr.txt").read_text()

    def __enter__(self) -> Serving:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def outcome_of_serve(directory: Path, *arguments: str) -> tuple[int, str]:
    """Return exit status and standard error of a `serve` that must end on its own."""
    command = [sys.executable, "-m", "odradek", "serve", *arguments]
    ended = subprocess.run(
        command, check=False, cwd=directory, capture_output=True, text=True, timeout=READY_SECONDS_MAX
    )
    return ended.returncode, ended.stderr


@contextmanager
def serving(directory: Path, *options: str, **overrides: str) -> Iterator[Serving]:
    """Return a broker with these keys, '_' for '.': serving(tmp_path, "--log-format=json", num_partitions="3")."""
    directory.mkdir(parents=True, exist_ok=True)
    with Serving(directory, *options, **{key.replace("_", "."): value for key, value in overrides.items()}) as broker:
        yield broker
