"""Hanging transactions: open in a partition, and part of no transaction that a coordinator would end.

Nobody would ever end a hanging transaction, and readers of committed records would wait for ever.  A power failure
makes one if it takes the coordinator's record and not the first batch; older brokers left some, too.  Apache Kafka
leaves them to its administrator (KIP-664).  After a stop that was not clean we look for them, once the controller has
told what is led here, if all coordinators are.

    open in a partition ──> the next transaction of one that is decided ──> looked at again when that is complete
                       ├──> the partition is part of its transaction    ──> ends with it
                       ├──> its producer is known in this epoch         ──> the partition joins, and all is aborted
                       └──> nobody knows it                             ──> an abort marker

A producer that is known may be alive.  It would be told that what it sends again is there, and commit, without this
partition; so it has to learn of the abort, as of one whose time was up.
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

LOOKED_AT_PER_SLICE = 256  # Partitions, and what is open in them, or transactions: some microseconds each.


class Fate(Enum):
    """What becomes of a transaction that is open in a partition."""

    HELD = auto()
    WAITS = auto()
    JOINS = auto()
    MARKED = auto()


class Open(NamedTuple):
    """A transaction that was seen to be open in a partition."""

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
        """The marker that ends it alone."""
        # A coordinator epoch above the last marker's would fence the producer's own coordinator here.
        return Marker(self.producer, False, max(self.seen.coordinator_epoch, 0))

    @property
    def is_open(self) -> bool:
        """True if it is still open."""
        now = self.partition.log.producers.get(self.seen.id) if self.partition.is_online else None
        return now is not None and (now.epoch, now.first_offset) == (self.seen.epoch, self.seen.first_offset)


def fate(name: TopicPartition, producer: ProducerIdAndEpoch, was: Transaction | None) -> Fate:
    """Returns what becomes of what `producer` has open in a partition; `was` is the transaction that has its id."""
    if was is None:
        return Fate.MARKED
    is_part = name in was.partitions
    if was.is_decided:
        is_next = producer == rules.completed(was, TimestampMs(0)).client
        return Fate.WAITS if is_next else Fate.HELD if is_part else Fate.MARKED
    if producer == was.producer and is_part:
        return Fate.HELD
    if producer != was.client:
        return Fate.MARKED  # Of an older epoch, which has nothing to do with what has joined since.
    return Fate.WAITS if was.is_kept else Fate.JOINS


def all_led(
    broker: BrokerId, view: ClusterView, partitions: Mapping[TopicPartition, Partition]
) -> Generator[None, None, bool]:
    """Returns True if the controller has told who leads what, and the broker has all that it leads.  Yields in between.

    After a start UpdateMetadata comes first: what is led here, but for what no LeaderAndIsr has come to yet.
    """
    if view.controller == NO_BROKER:
        return False
    looks = 0
    for topic in list(view.topics.values()):
        for index, info in enumerate(topic.partitions):
            if info.leader == broker and TopicPartition(topic.name, index) not in partitions:
                return False
        looks += len(topic.partitions)
        if looks >= LOOKED_AT_PER_SLICE:
            looks = 0
            yield
    return True


def all_shards(shards: Shards[TransactionShard], count: int) -> list[TransactionShard] | None:
    """Returns the `count` shards of the cluster; None if not all of them are here."""
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
        self._kept: dict[ProducerId, tuple[TransactionShard, str]] = {}  # Shard and transactional id of a producer.

    def end(self, partitions: Mapping[TopicPartition, Partition], now: Moment) -> Generator[None, None, bool]:
        """Ends them, in slices; returns False if there may be some that have to be looked at again.

        What is open is found first, then who knows it: a partition joins its transaction before anything is open in it.
        """
        found: list[Open] = []
        for some in _opened(partitions):
            found += some
            yield
        yield from self._find({one.seen.id for one in found})
        is_done = True
        joining: dict[str, list[Open]] = {}
        for number, one in enumerate(found, 1):
            if self._is_over:
                return False
            what = self._fate(one)
            if what is Fate.JOINS:
                joining.setdefault(self._kept[one.seen.id][1], []).append(one)
            elif what is not Fate.HELD:
                is_done &= what is Fate.MARKED and self._mark(one, now)
            if what is Fate.MARKED or number % LOOKED_AT_PER_SLICE == 0:
                yield
        for together in joining.values():
            if self._is_over:
                return False
            is_done &= self._abort(together, now)
            yield
        return is_done

    @property
    def _is_over(self) -> bool:
        """True if a shard went meanwhile: what it knew is not known here any more."""
        return any(shard.is_over for shard in self._shards)

    def _find(self, wanted: Set[ProducerId]) -> Iterator[None]:
        """Finds where the transactions of these producers are kept.  Yields now and then."""
        for shard in self._shards if wanted else ():
            names = list(shard.transactions)
            for start in range(0, len(names), LOOKED_AT_PER_SLICE):
                for one in filter(None, map(shard.transactions.get, names[start : start + LOOKED_AT_PER_SLICE])):
                    for producer_id in wanted & {one.producer_id, one.next_id}:
                        self._kept[producer_id] = shard, one.id
                yield

    def _fate(self, one: Open) -> Fate:
        """Returns what becomes of it, by what is known now."""
        if not one.is_open:
            return Fate.HELD
        kept = self._kept.get(one.seen.id)
        return fate(one.name, one.producer, None if kept is None else kept[0].transactions.get(kept[1]))

    def _mark(self, one: Open, now: Moment) -> bool:
        """Ends what nobody knows; returns False if that is refused now."""
        _LOG.warning("%s has an open transaction of producer %d that nobody knows", one.name, one.seen.id)
        try:
            self._write_marker(one.name, one.marker, now)
        except Refused as refused:
            _LOG.warning("%s: no marker yet: %s", one.name, refused)
            return False
        return True

    def _abort(self, together: Sequence[Open], now: Moment) -> bool:
        """Aborts one transaction with the partitions that had joined it; returns False if that is refused now."""
        joining = [one for one in together if self._fate(one) is Fate.JOINS]
        if joining:
            shard, transactional_id = self._kept[joining[0].seen.id]
            was, names = shard.transactions[transactional_id], [one.name for one in joining]
            _LOG.warning("%s is aborted: it was not known to have written to %s", was.id, ", ".join(map(str, names)))
            try:
                joined = rules.touches(was, joining[0].producer, names, was.version, now.wall)
                self._completions.decide(shard, rules.fenced(joined, now.wall), now)
            except Refused as refused:
                _LOG.warning("%s: it can't be aborted yet: %s", was.id, refused)
                return False
        return len(joining) == len(together)


def _opened(partitions: Mapping[TopicPartition, Partition]) -> Iterator[list[Open]]:
    """Yields what is open in all partitions that are led here, in slices: a marker comes from their leader."""
    found: list[Open] = []
    looks = 0
    for partition in list(partitions.values()):
        if partition.is_online and partition.leading is not None:
            found += [Open(partition, seen) for seen in partition.log.producers.open_transactions()]
        looks += 1
        if looks + len(found) >= LOOKED_AT_PER_SLICE:
            yield found
            found, looks = [], 0
    yield found
