"""The writes by which partitions became part of transactions that are coordinated here, until they are safe.

A write may be lost with the coordinator's leadership, and a batch it was made for lie in its partition all the same.
Then that partition's log no longer tells that it is part of the transaction: whoever coordinates by then has to be
asked about it, once.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.base.units import TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.kernel.moment import Moment


class Joins:
    """The last such write of each transactional id, and the ids of which one was lost."""

    def __init__(self, forgotten_after_ms: int) -> None:
        """What was lost is forgotten after the time in which every transaction ends."""
        self._forgotten_after_ms = forgotten_after_ms
        self._last: dict[str, Written] = {}
        self.lost: dict[str, set[TopicPartition]] = {}  # With the partitions that were asked about since.
        self._lost_since: dict[str, int] = {}  # As `keep_house` has seen it, on the steady clock.

    def wrote(self, transactional_id: str, written: Written) -> None:
        self._look(transactional_id)
        self._last[transactional_id] = written

    def unsafe(self, transactional_id: str) -> Written | None:
        """Returns the last write of the transaction if it is not safe; one that is lost is returned once."""
        written = self._last.get(transactional_id)
        if written is None or written.is_safe:
            return None
        self._look(transactional_id)
        return written

    def is_in_doubt(self, transactional_id: str, name: TopicPartition) -> bool:
        """True if the partition's join may be lost."""
        self._look(transactional_id)
        confirmed = self.lost.get(transactional_id)
        return confirmed is not None and name not in confirmed

    def confirmed(self, transactional_id: str, names: Iterable[TopicPartition]) -> None:
        """Takes in that a coordinator has the partitions in its transaction."""
        confirmed = self.lost.get(transactional_id)
        if confirmed is not None:
            confirmed.update(names)

    def keep_house(self, now: Moment) -> None:
        for transactional_id in list(self._last):
            self._look(transactional_id)
        self._last = {name: written for name, written in self._last.items() if not written.is_safe}
        for name in list(self.lost):
            if now.steady - self._lost_since.setdefault(name, now.steady) >= self._forgotten_after_ms:
                del self.lost[name], self._lost_since[name]

    def _look(self, transactional_id: str) -> None:
        """Notes if the last write is lost."""
        written = self._last.get(transactional_id)
        if written is not None and written.failure is not None:
            del self._last[transactional_id]
            self.lost[transactional_id] = set()
            self._lost_since.pop(transactional_id, None)
