"""Pending notifications of ISR changes for the controller, as needed before Kafka 2.7.

A broker first writes the new ISR to the tree.  It notifies the controller later:

    a state is written ──> changed ──> gathered until 5 s without a change, or for a minute ──> take

The intervals are Kafka's (IsrChangePropagationConfig): thousands of partitions change when a broker leaves and returns,
and the controller reads each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.base.units import MINUTE_MS, SECOND_MS, TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers

CHECK_MS = 2_500
LINGER_MS = 5 * SECOND_MS
DELAY_MS_MAX = MINUTE_MS


class IsrNotifications:
    """Pending ISR notifications of one broker."""

    def __init__(self, timers: Timers, now: Moment) -> None:
        self._timers = timers
        self._changed: dict[TopicPartition, None] = {}
        self._last_change_ms = self._last_taken_ms = now.steady
        self._is_watched = False  # A timer is set.
        self.are_due = False

    def changed(self, partitions: Iterable[TopicPartition], now: Moment) -> None:
        """Record that the states of these partitions were written."""
        self._changed |= dict.fromkeys(partitions)
        self._last_change_ms = now.steady
        self._watch(now)

    def take_changed_partitions(self, now: Moment) -> list[TopicPartition]:
        """Return the partitions to report to the controller, each once; call it when they `are_due`."""
        assert self.are_due, "ISR changes are reported no more often than in Kafka"
        taken = list(self._changed)
        assert taken, "a notification that is due has partitions"
        self._changed.clear()
        self.are_due = False
        self._last_taken_ms = now.steady
        return taken

    def put_back(self, partitions: Iterable[TopicPartition], now: Moment) -> None:
        """Restore partitions after a failed notification; they are due again at the next check."""
        self._changed = {**dict.fromkeys(partitions), **self._changed}
        self._last_taken_ms = min(self._last_taken_ms, now.steady - DELAY_MS_MAX)
        self._watch(now)

    def _watch(self, now: Moment) -> None:
        if self._changed and not self._is_watched:
            self._is_watched = True
            # At fixed times, as in Kafka, and not at a fixed delay after each change.
            self._timers.at((now.steady // CHECK_MS + 1) * CHECK_MS, self._check)

    def _check(self, now: Moment) -> None:
        assert self._is_watched, "one timer is set"
        self._is_watched = False
        is_quiet = now.steady > self._last_change_ms + LINGER_MS
        if is_quiet or now.steady > self._last_taken_ms + DELAY_MS_MAX:
            self.are_due = bool(self._changed)
        else:
            self._watch(now)
