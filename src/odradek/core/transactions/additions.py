"""Requests to a transaction coordinator on another broker: verify or add partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch


class TransactionQuery(NamedTuple):
    """A membership query for a transaction's partitions; with `adds` they join it (KIP-890)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    adds: bool


class AddPartitions:
    """An effect: one AddPartitionsToTxn request, which ends in one `AddPartitionsToTxnManager.on_answered`.

    Each query comes with its partitions, and no transactional id repeats.
    """

    def __init__(
        self, broker: BrokerId, transactions: Sequence[tuple[TransactionQuery, Sequence[TopicPartition]]]
    ) -> None:
        self.broker = broker
        self.transactions = transactions


# The error code of each partition, or the reason for a missing answer; the request may or may not have been executed.
AdditionsOutcome = Mapping[tuple[str, TopicPartition], ErrorCode] | Refused
