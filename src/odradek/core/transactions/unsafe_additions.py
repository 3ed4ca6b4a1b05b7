"""Writes that added partitions to transactions coordinated here, until they are safe.

A write may be lost with the coordinator's leadership while a batch that relies on it stays in its partition. Then
that partition's log no longer proves that it is part of the transaction, and the current coordinator must be asked
once.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.base.units import TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.moment import Moment


class UnsafeAdditions:
    """The last such write of each transactional id, and the ids with a lost write."""

    def __init__(self, forgotten_after_ms: int) -> None:
        """Create the table; lost writes are dropped after the time in which every transaction ends."""
        self._forgotten_after_ms = forgotten_after_ms
        self._last: dict[str, PendingWrite] = {}
        self.lost: dict[str, set[TopicPartition]] = {}  # With the partitions confirmed since then.
        self._lost_since: dict[str, int] = {}  # The time when `expire_lost_writes` first saw it (steady clock).

    def wrote(self, transactional_id: str, written: PendingWrite) -> None:
        self._check_last(transactional_id)
        self._last[transactional_id] = written

    def unsafe(self, transactional_id: str) -> PendingWrite | None:
        """Return the transaction's last write if it is not safe; a lost one is returned once."""
        written = self._last.get(transactional_id)
        if written is None or written.is_safe:
            return None
        self._check_last(transactional_id)
        return written

    def is_in_doubt(self, transactional_id: str, name: TopicPartition) -> bool:
        """Return whether the partition's join may be lost."""
        self._check_last(transactional_id)
        confirmed = self.lost.get(transactional_id)
        return confirmed is not None and name not in confirmed

    def confirmed(self, transactional_id: str, names: Iterable[TopicPartition]) -> None:
        """Record that a coordinator has the partitions in its transaction."""
        confirmed = self.lost.get(transactional_id)
        if confirmed is not None:
            confirmed.update(names)

    def expire_lost_writes(self, now: Moment) -> None:
        for transactional_id in list(self._last):
            self._check_last(transactional_id)
        self._last = {name: written for name, written in self._last.items() if not written.is_safe}
        for name in list(self.lost):
            if now.steady - self._lost_since.setdefault(name, now.steady) >= self._forgotten_after_ms:
                del self.lost[name], self._lost_since[name]
        assert len(self._lost_since) == len(self.lost), "every lost write has a time at which it is dropped"

    def _check_last(self, transactional_id: str) -> None:
        """Record the last write as lost if it has failed."""
        written = self._last.get(transactional_id)
        if written is not None and written.failure is not None:
            del self._last[transactional_id]
            self.lost[transactional_id] = set()
            self._lost_since.pop(transactional_id, None)
        assert len(self._lost_since) <= len(self.lost)
