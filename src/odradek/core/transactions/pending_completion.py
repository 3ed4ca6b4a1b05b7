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

    __slots__ = ("again", "decided", "is_paused", "left", "marker", "shard")

    def __init__(self, shard: TransactionShard, decided: Transaction) -> None:
        self.shard = shard
        self.decided = decided
        is_commit = decided.state is TransactionState.PREPARE_COMMIT
        self.marker = Marker(decided.producer, is_commit, shard.coordinator_epoch, decided.version)
        self.left = len(decided.partitions)  # Partitions without a safe marker.
        self.again: list[TopicPartition] = []  # Partitions to be retried after a pause,
        self.is_paused = False  # which has begun.
