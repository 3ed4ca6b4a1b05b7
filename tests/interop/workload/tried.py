"""Detection of sufficient operations for a meaningful history, which takes longer on a busy machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from checker.history import Event, Kind, Operation, Outcome


def is_enough(done: Iterable[Operation], seconds: float) -> bool:
    """Return True if more than one operation of each kind succeeded in every two seconds."""
    counts = Counter(one.kind for one in done if one.outcome is Outcome.OK)
    return all(counts[kind] > seconds / 2 for kind in (Kind.SEND, Kind.TXN, Kind.POLL))


class Acknowledged:
    """A counter of a growing history's successful sends, which reads each line once."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._read = 0  # Bytes.
        self._begun: dict[int, str] = {}  # The current operation of each process.
        self._count = 0

    def count(self) -> int:
        if not self._history.exists():  # The workload has only just started.
            return 0
        with self._history.open("rb") as file:
            file.seek(self._read)
            whole, ending, _ = file.read().rpartition(b"\n")  # The last line may not be whole yet.
        self._read += len(whole) + len(ending)
        for line in whole.decode().splitlines():
            self._add(Event.from_json(line))
        return self._count

    def _add(self, event: Event) -> None:
        if event.type == "invoke":
            self._begun[event.process] = event.kind
        elif event.type == "ok" and self._begun[event.process] == Kind.SEND:
            self._count += 1
