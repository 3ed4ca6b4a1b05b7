"""The notes of all clients: a line of JSON for each event, written as it happens."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from types import TracebackType

from checker.history import Event, Kind, Outcome, Send, Step, Value

PROGRAM_SUFFIX = ".program.jsonl"


class Recorder:
    """Threads may share it.  An event's time is when it was noted, so note before asking and after the answer."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = threading.Lock()
        self._values = itertools.count()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._file.close()

    def new_value(self) -> Value:
        return next(self._values)

    def invoke(self, process: int, kind: Kind, *planned: Send, group: str | None = None) -> None:
        with self._lock:
            self._write(Event("invoke", process, time.monotonic_ns(), kind, group, planned))

    def commit(self, process: int) -> None:
        with self._lock:
            self._write(Event("commit", process, time.monotonic_ns()))

    def complete(self, process: int, outcome: Outcome, steps: list[Step], error: str = "") -> None:
        with self._lock:
            self._write(Event(outcome.value, process, time.monotonic_ns(), steps=tuple(steps), error=error))

    def _write(self, event: Event) -> None:
        self._file.write(f"{event.to_json()}\n")
        self._file.flush()


def read_history(path: Path) -> list[Event]:
    """With what a program of another language has noted beside it.  A line that is not whole yet is left out."""
    files = [one for one in (path, path.with_suffix(PROGRAM_SUFFIX)) if one.exists()]
    return [Event.from_json(line) for one in files for line in one.read_text().rpartition("\n")[0].splitlines()]
