"""Instances of one copier in one group; an instance that exits is restarted."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from copiers.programs import Program, environment

RESTARTS_MAX = 30
STOP_SECONDS_MAX = 20
WATCH_SECONDS = 0.1


class Instances:
    """The instances, for `with`. `kill` is kill -9, after which the instance is restarted."""

    def __init__(self, program: Program, count: int, folder: Path, *, address: str, group: str, topics: Sequence[str]):
        """Start the instances; `topics` are the source and the sink."""
        command = [*program.command(), address, group, program.protocol]
        self._commands = [[*command, f"{group}-{number}", *topics] for number in range(count)]
        self._output = folder / "copiers.txt"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self.restarts = 0

    def __enter__(self) -> Instances:
        for number in range(len(self._commands)):
            self._start(number)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._watcher.join(STOP_SECONDS_MAX)
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
            process.kill()
            process.wait()

    def kill(self, number: int) -> None:
        with self._lock:
            self._processes[number].kill()
            self._processes[number].wait()
            self._start(number)

    def output(self) -> str:
        return self._output.read_text()[-5000:]

    def _start(self, number: int) -> None:
        with self._output.open("ab") as output:
            self._processes[number] = subprocess.Popen(
                self._commands[number], env=environment(), stdout=output, stderr=output
            )

    def _watch(self) -> None:
        while not self._is_over.wait(WATCH_SECONDS):
            with self._lock:
                ended = [number for number, process in self._processes.items() if process.poll() is not None]
                for number in ended[: max(0, RESTARTS_MAX - self.restarts)]:
                    self.restarts += 1
                    self._start(number)
