"""One decision in progress: its marker, and the number of partitions still without it."""

from __future__ import annotations

from odradek.base.units import TopicPartition
from odradek.core.transactions.transaction_markers import Marker
from odradek.core.transactions.transaction_shard import TransactionShard
from odradek.core.transactions.transaction_states import Transaction, TransactionState


class PendingCompletion:
    """A decided transaction of one shard whose markers are being written (Kafka's PendingCompleteTxn).

    It is compared by identity. The next coordinator of the same transaction has its own PendingCompletion.
    """

    __slots__ = ("decided", "failed", "is_paused", "left", "marker", "shard")

    def __init__(self, shard: TransactionShard, decided: Transaction) -> None:
        assert decided.is_decided
        self.shard = shard
        self.decided = decided
        is_commit = decided.state is TransactionState.PREPARE_COMMIT
        self.marker = Marker(decided.producer, is_commit, shard.coordinator_epoch, decided.version)
        self.left = len(decided.partitions)  # Partitions without a safe marker.
        self.failed: list[TopicPartition] = []  # Partitions to be retried after a pause,
        self.is_paused = False  # which has begun.

    def add_marked(self) -> None:
        """Record that one more partition has its marker, or needs none."""
        self.left -= 1
        self._check()

    def add_failed(self, name: TopicPartition) -> None:
        """Record that a partition's marker must be written again after a pause."""
        self.failed.append(name)
        self._check()

    def pause(self) -> None:
        assert self.failed and not self.is_paused
        self.is_paused = True

    def take_failed(self) -> list[TopicPartition]:
        """End the pause and return the partitions to retry."""
        assert self.failed and self.is_paused
        names, self.failed, self.is_paused = self.failed, [], False
        self._check()
        return names

    def _check(self) -> None:
        """Check the number of partitions without a marker, to which those to be retried belong."""
        assert len(self.failed) <= self.left <= len(self.decided.partitions)
