"""A cluster as users run it: `odradek serve --brokers 3`, with its brokers in separate processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from types import TracebackType

from support.ports import free_port
from support.waiting import SECONDS_MAX, until


def free_ports(count: int) -> int:
    """Return the first of this number of consecutive unused ports."""
    while True:
        first = free_port()
        if all(_is_free(first + further) for further in range(count)):
            for _ in range(count):
                free_port()  # They are not returned again soon.
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class ServingCluster:
    """A cluster that starts with `with`; its brokers are 1, 2, 3."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        configs: Mapping[str, str] = {},
        protocol: str = "PLAINTEXT",
        port: int | None = None,
    ) -> None:
        self.directory = directory
        self.count = brokers
        self.port = free_ports(brokers) if port is None else port
        self._overrides = {
            "listeners": f"{protocol}://localhost:{self.port}",
            "log.dirs": str(directory / "data"),
            **configs,
        }
        self.environment: dict[str, str] = {}  # For the processes, in addition to ours.
        self.lines: list[str] = []  # Of standard output.
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return ",".join(self.address_of(broker) for broker in range(1, self.count + 1))

    def address_of(self, broker: int) -> str:
        return f"localhost:{self.port + broker - 1}"

    def start(self) -> ServingCluster:
        arguments = [f"--override={key}={value}" for key, value in self._overrides.items()]
        with (self.directory / "stderr.txt").open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek", "serve", f"--brokers={self.count}", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.directory,
                env={**os.environ, **self.environment},
            )
        self.lines = []
        Thread(target=self._read, args=(self._process, self.lines), daemon=True).start()
        listeners = len(self._overrides["listeners"].split(","))
        until(lambda: len(self.lines) >= self.count * listeners or self.has_ended)
        assert not self.has_ended, self.errors()
        return self

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            lines.extend(stdout)

    @property
    def pid(self) -> int:
        """Return the id of the first process."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def pids(self) -> dict[int, int]:
        """Return the process of each running broker."""
        found = {}
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            arguments = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            ids = [one.removeprefix("--override=broker.id=") for one in arguments if "=broker.id=" in one]
            if ids:
                found[int(ids[-1])] = int(child)
        return found

    def signal(self, broker: int, number: signal.Signals) -> None:
        os.kill(self.pids()[broker], number)

    def signal_first(self, number: signal.Signals) -> None:
        """Send a signal to the first process: while it is paused, no broker is restarted."""
        os.kill(self.pid, number)

    def kill(self, broker: int) -> None:
        """Kill a broker; return when it has been restarted and is ready."""
        ready = len(self.lines)
        self.signal(broker, signal.SIGKILL)
        until(lambda: len(self.lines) > ready)

    def kill_all(self) -> None:
        """Kill the first process; return when its brokers have ended too, so that `start` may follow."""
        brokers = self.pids().values()
        self._end(signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in brokers))

    def stop(self) -> int:
        """Stop with SIGTERM; return the exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(SECONDS_MAX)

    def errors(self) -> str:
        return (self.directory / "stderr.txt").read_text()

    def __enter__(self) -> ServingCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
