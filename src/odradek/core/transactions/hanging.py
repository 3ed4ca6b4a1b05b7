"""Hanging transactions: open in a partition, but not part of any coordinator's transaction.

No coordinator ever ends a hanging transaction, and read_committed consumers would wait forever. A power failure
creates one if it destroys the coordinator's record but not the first batch. Older brokers left some, too. Apache
Kafka leaves them to the administrator (KIP-664). This broker searches for them after an unclean shutdown, once the
controller has sent all local leaderships, and if all coordinators are local.

    open in a partition ──> the next transaction of a decided one        ──> checked again when that is complete
                       ├──> the partition is part of its transaction    ──> ends with it
                       ├──> its producer is known in this epoch         ──> the partition joins, and all is aborted
                       └──> unknown producer                            ──> an abort marker

A known producer may be alive. It would receive success for retries of existing batches, and commit without this
partition. So it has to learn of the abort, as after a transaction timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from enum import Enum, auto
from typing import NamedTuple

from odradek.base.errors import Refused
from odradek.base.units import NO_BROKER, BrokerId, ProducerId, TimestampMs, TopicPartition
from odradek.core.coordinators.shards import Shards
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.completion import Completions
from odradek.core.transactions.transaction_markers import Marker, WriteMarker
from odradek.core.transactions.transaction_shard import TransactionShard
from odradek.core.transactions.transaction_states import Transaction
from odradek.log.producers.producer_state import ProducerStateEntry

_LOG = logging.getLogger(__name__)

CHECKED_PER_SLICE = 256  # Partitions with their open transactions, or transactions: some microseconds each.


class OpenTransactionOutcome(Enum):
    """The outcome of a transaction that is open in a partition."""

    HELD = auto()
    WAITS = auto()
    JOINS = auto()
    MARKED = auto()


class OpenTransaction(NamedTuple):
    """A transaction found open in a partition."""

    partition: Partition
    seen: ProducerStateEntry

    @property
    def name(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.seen.id, self.seen.epoch)

    @property
    def marker(self) -> Marker:
        """Return the marker that ends only this transaction."""
        # A coordinator epoch above the last marker's would fence the producer's own coordinator here.
        return Marker(self.producer, False, max(self.seen.coordinator_epoch, 0))

    @property
    def is_open(self) -> bool:
        """Return whether the transaction is still open."""
        now = self.partition.log.producers.get(self.seen.id) if self.partition.is_online else None
        return now is not None and (now.epoch, now.first_offset) == (self.seen.epoch, self.seen.first_offset)


def fate(name: TopicPartition, producer: ProducerIdAndEpoch, current: Transaction | None) -> OpenTransactionOutcome:
    """Return the fate of a transaction open in a partition; `current` is the known one of its producer id."""
    if current is None:
        return OpenTransactionOutcome.MARKED
    is_part = name in current.partitions
    if current.is_decided:
        is_next = producer == rules.completed(current, TimestampMs(0)).client
        return (
            OpenTransactionOutcome.WAITS
            if is_next
            else OpenTransactionOutcome.HELD
            if is_part
            else OpenTransactionOutcome.MARKED
        )
    if producer == current.producer and is_part:
        return OpenTransactionOutcome.HELD
    if producer != current.client or current.is_past_last_epoch:
        return (
            OpenTransactionOutcome.MARKED
        )  # It has an older epoch, or one that no client may use, and is unrelated to later joins.
    return OpenTransactionOutcome.WAITS if current.is_kept else OpenTransactionOutcome.JOINS


def all_led(
    broker: BrokerId, view: ClusterView, partitions: Mapping[TopicPartition, Partition]
) -> Generator[None, None, bool]:
    """Return whether the controller has sent all leaderships and this broker has all partitions it leads.

    Yields in between. After a start UpdateMetadata arrives first. It names the partitions led here for which no
    LeaderAndIsr has arrived yet.
    """
    if view.controller == NO_BROKER:
        return False
    checked = 0
    for topic in list(view.topics.values()):
        for index, info in enumerate(topic.partitions):
            if info.leader == broker and TopicPartition(topic.name, index) not in partitions:
                return False
        checked += len(topic.partitions)
        if checked >= CHECKED_PER_SLICE:
            checked = 0
            yield
    return True


def all_shards(shards: Shards[TransactionShard], count: int) -> list[TransactionShard] | None:
    """Return the `count` shards of the cluster, or None if some are on other brokers."""
    try:
        return [shards.shard(index) for index in range(count)]
    except Refused:
        return None


class HangingTransactions:
    """One search for hanging transactions, which ends them."""

    def __init__(self, shards: Sequence[TransactionShard], completions: Completions, write_marker: WriteMarker) -> None:
        self._shards = shards
        self._completions = completions
        self._write_marker = write_marker
        self._kept: dict[ProducerId, tuple[TransactionShard, str]] = {}  # The shard and transactional id of a producer.

    def end_hanging(self, partitions: Mapping[TopicPartition, Partition], now: Moment) -> Generator[None, None, bool]:
        """End hanging transactions in slices; return False if some must be checked again.

        Open transactions are found first, then their coordinators, because a partition joins its transaction before
        the transaction opens in it.
        """
        found: list[OpenTransaction] = []
        for slice_ in _opened(partitions):
            found += slice_
            yield
        yield from self._find({candidate.seen.id for candidate in found})
        is_done = True
        joining: dict[str, list[OpenTransaction]] = {}
        for number, candidate in enumerate(found, 1):
            if self._is_over:
                return False
            outcome = self._fate(candidate)
            if outcome is OpenTransactionOutcome.JOINS:
                joining.setdefault(self._kept[candidate.seen.id][1], []).append(candidate)
            elif outcome is not OpenTransactionOutcome.HELD:
                is_done &= outcome is OpenTransactionOutcome.MARKED and self._mark(candidate, now)
            if outcome is OpenTransactionOutcome.MARKED or number % CHECKED_PER_SLICE == 0:
                yield
        for candidates in joining.values():
            if self._is_over:
                return False
            is_done &= self._abort(candidates, now)
            yield
        return is_done

    @property
    def _is_over(self) -> bool:
        """Return whether a shard has ended, which makes its transactions unknown here."""
        return any(shard.is_over for shard in self._shards)

    def _find(self, producer_ids: Set[ProducerId]) -> Iterator[None]:
        """Find the shards of these producers' transactions; yield now and then."""
        for shard in self._shards if producer_ids else ():
            names = list(shard.transactions)
            for start in range(0, len(names), CHECKED_PER_SLICE):
                for transaction in filter(None, map(shard.transactions.get, names[start : start + CHECKED_PER_SLICE])):
                    for producer_id in producer_ids & {transaction.producer_id, transaction.next_id}:
                        self._kept[producer_id] = shard, transaction.id
                yield

    def _fate(self, candidate: OpenTransaction) -> OpenTransactionOutcome:
        """Return the fate of the transaction by the current state."""
        if not candidate.is_open:
            return OpenTransactionOutcome.HELD
        kept = self._kept.get(candidate.seen.id)
        return fate(candidate.name, candidate.producer, None if kept is None else kept[0].transactions.get(kept[1]))

    def _mark(self, candidate: OpenTransaction, now: Moment) -> bool:
        """End a transaction of an unknown producer; return False if the marker is refused now."""
        _LOG.warning(
            "aborting a hanging transaction in %s of producer %d, which no coordinator knows",
            candidate.name,
            candidate.seen.id,
        )
        try:
            self._write_marker(candidate.name, candidate.marker, now)
        except Refused as refused:
            _LOG.warning("failed to abort the hanging transaction in %s (will retry): %s", candidate.name, refused)
            return False
        return True

    def _abort(self, candidates: Sequence[OpenTransaction], now: Moment) -> bool:
        """Abort one transaction with the partitions that join it; return False if that is refused now."""
        joining = [candidate for candidate in candidates if self._fate(candidate) is OpenTransactionOutcome.JOINS]
        if joining:
            shard, transactional_id = self._kept[joining[0].seen.id]
            current, names = shard.transactions[transactional_id], [candidate.name for candidate in joining]
            assert current.partitions.isdisjoint(names) and not current.is_decided
            _LOG.warning(
                "aborting the transaction of %s, which wrote to %s without adding them",
                current.id,
                ", ".join(map(str, names)),
            )
            try:
                joined = rules.add_partitions(current, joining[0].producer, names, current.version, now.wall)
                self._completions.decide(shard, rules.fenced(joined, now.wall), now)
            except Refused as refused:
                _LOG.warning("failed to abort the transaction of %s (will retry): %s", current.id, refused)
                return False
        return len(joining) == len(candidates)


def _opened(partitions: Mapping[TopicPartition, Partition]) -> Iterator[list[OpenTransaction]]:
    """Yield the open transactions of all partitions led here, in slices.

    Only partitions led here count, because their leader writes the marker.
    """
    found: list[OpenTransaction] = []
    checked = 0
    for partition in list(partitions.values()):
        if partition.is_online and partition.leading is not None:
            found += [OpenTransaction(partition, seen) for seen in partition.log.producers.open_transactions()]
        checked += 1
        if checked + len(found) >= CHECKED_PER_SLICE:
            yield found
            found, checked = [], 0
    yield found
