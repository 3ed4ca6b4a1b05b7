"""A remote coordinator's answer about the partitions of one request, and its validity.

The answer takes time. By then, a partition may have received the marker of the very transaction in question, and a
batch behind the marker would stay open forever. So the answer is valid in two cases only. Either the partition's
producer state is unchanged since the query (Kafka's VerificationGuard), or the transaction is already open in the
partition.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicPartition
from odradek.core.partition.leading import Leading
from odradek.core.transactions.addition_queue import Codes
from odradek.core.transactions.additions import TransactionQuery
from odradek.log.producers.producer_state import ProducerStateEntry


class Verification:
    """One query and its answer; `partitions` maps each partition to its producer state at the query."""

    def __init__(self, query: TransactionQuery) -> None:
        self.query = query
        self.partitions: dict[TopicPartition, ProducerStateEntry | None] = {}
        self.codes: Codes = {}

    def add(self, leading: Leading) -> None:
        """Add a partition to the query."""
        self.partitions[leading.name] = leading.producer(self.query.producer.id)

    def answered(self, codes: Codes | None) -> None:
        """Store the answer; None if there was none in time, or the broker is stopping."""
        self.codes = dict.fromkeys(self.partitions, ErrorCode.NETWORK_EXCEPTION) if codes is None else codes

    @property
    def confirmed(self) -> list[TopicPartition]:
        """Return the partitions that are part of the transaction."""
        return [name for name, code in self.codes.items() if code is ErrorCode.NONE]

    def check(self, leading: Leading) -> None:
        """Raise Refused unless the producer may write to the partition now, by the coordinator's answer.

        The code is NOT_ENOUGH_REPLICAS, which producers of all versions retry, if the query must be repeated.
        """
        code = self.codes.get(leading.name, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise Refused(code, f"the coordinator of {self.query.transactional_id} rejected {leading.name}")
        producer = self.query.producer
        if not leading.has_open_transaction(producer.id, producer.epoch) and not self._is_verified(leading):
            text = f"producer {producer.id} ended a transaction in {leading.name} during verification"
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    def _is_verified(self, leading: Leading) -> bool:
        if leading.name not in self.partitions:
            return False
        # With an epoch for each transaction, only the previous one may have ended since. The end of this one has a
        # higher epoch, which fences late batches.
        return self.query.adds or leading.producer(self.query.producer.id) is self.partitions[leading.name]
