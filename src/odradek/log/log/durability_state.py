"""Durability state of one log: what is not synced yet, and the flushes in progress."""

from __future__ import annotations

from odradek.base.units import Offset
from odradek.log.log.flush import Flush
from odradek.log.segment.segment import Segment


class DurabilityState:
    """Unsynced parts of one log, and its flushes in progress.

    `unsynced` holds sealed segments, oldest first.  `changes` counts changes of the directory.  A flush must sync
    the directory when `changes` exceeds `synced_changes`.
    """

    def __init__(self, unsynced: list[Segment], *, is_synced: bool) -> None:
        self.unsynced = unsynced
        self.changes = 0
        self.synced_changes = 0 if is_synced else -1  # -1: even the directory's own name is not durable.
        self.synced_epoch_changes = 0
        self.under_way: list[Flush] = []

    @property
    def has_failed(self) -> bool:
        """Return whether a flush failed, so that the state on the disk is unknown."""
        return any(flush.has_failed for flush in self.under_way)

    def keep(self, end: Offset, kept: frozenset[Segment]) -> None:
        """Adjust to a truncation at `end` that leaves only these sealed segments."""
        self.unsynced = [segment for segment in self.unsynced if segment in kept]
        for flush in self.under_way:
            flush.end_offset = Offset(min(flush.end_offset, end))
            flush.sealed &= kept  # The last one is active again.
        self.changes += 1

    def forget(self, deleted: frozenset[Segment]) -> None:
        """Forget segments that the log deleted at its start."""
        self.unsynced = [segment for segment in self.unsynced if segment not in deleted]

    def on_flushed(self, flush: Flush) -> None:
        """Record the work of a completed flush."""
        assert flush in self.under_way, "a flush completes once, in the log that began it"
        assert not flush.has_failed and not flush.was_postponed, "only a successful flush is recorded"
        assert flush.changes <= self.changes, "a flush covers no later directory changes"
        self.under_way.remove(flush)
        if self.unsynced:
            self.unsynced = [segment for segment in self.unsynced if segment not in flush.sealed]
        self.synced_changes = max(self.synced_changes, flush.changes)
        self.synced_epoch_changes = max(self.synced_epoch_changes, flush.epoch_changes)
        assert self.synced_changes <= self.changes, "no later change of the directory is synced"
