"""Whether a workload has done enough for its history to tell anything; on a busy machine that takes longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from checker.history import Event, Kind, Operation, Outcome


def is_enough(done: Iterable[Operation], seconds: float) -> bool:
    """True if of each kind more than one operation in two seconds went well."""
    counts = Counter(one.kind for one in done if one.outcome is Outcome.OK)
    return all(counts[kind] > seconds / 2 for kind in (Kind.SEND, Kind.TXN, Kind.POLL))


class Acknowledged:
    """Counts the sends of a history that went well while it is written; no line of it is read twice."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._read = 0  # Bytes.
        self._begun: dict[int, str] = {}  # What a process does, by its number.
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
