"""The recorded events of all clients: a line of JSON for each event, written immediately."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from checker.history import Event, Kind, Outcome, Send, Step

PROGRAM_SUFFIX = ".program.jsonl"


class Recorder:
    """A recorder that several processes may share: each line is appended atomically.

    The time of an event is that of its recording, so record before a request and after its response.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def invoke(self, process: int, kind: Kind, *planned: Send, group: str | None = None) -> None:
        self._write(Event("invoke", process, time.monotonic_ns(), kind, group, planned))

    def commit(self, process: int) -> None:
        self._write(Event("commit", process, time.monotonic_ns()))

    def complete(self, process: int, outcome: Outcome, steps: list[Step], error: str = "") -> None:
        self._write(Event(outcome.value, process, time.monotonic_ns(), steps=tuple(steps), error=error))

    def _write(self, event: Event) -> None:
        line = f"{event.to_json()}\n".encode()
        assert os.write(self._file, line) == len(line)


def read_history(path: Path) -> list[Event]:
    """Return the history, including events recorded by programs in other languages, without incomplete lines."""
    files = [one for one in (path, path.with_suffix(PROGRAM_SUFFIX)) if one.exists()]
    return [Event.from_json(line) for one in files for line in one.read_text().rpartition("\n")[0].splitlines()]
