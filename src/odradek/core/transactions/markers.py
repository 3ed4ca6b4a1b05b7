"""Transaction markers, also those that end hanging transactions: open ones that no coordinator knows.

Nobody would ever end a hanging transaction, and readers of committed records would wait for ever.  A power failure
makes one if it takes the coordinator's record and not the first batch; older brokers left some, too.  Apache Kafka
leaves them to its administrator (KIP-664).  After a stop that was not clean we look for them, if all coordinators are
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from odradek.base.errors import Refused
from odradek.base.units import ProducerId, TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.shards import Shards
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.core.transactions.shard import TransactionShard
from odradek.core.transactions.states import Transaction


class Marker(NamedTuple):
    """How the transaction of a producer ends, as its coordinator says.

    From version 2 on the marker's epoch is above that of the records it ends (KIP-890).
    """

    producer: ProducerIdAndEpoch
    is_commit: bool
    coordinator_epoch: int
    version: int = 0


class WriteMarker(Protocol):
    """Writes a marker to one partition; returns None if there is no such topic any more.  Raises Refused."""

    def __call__(self, name: TopicPartition, marker: Marker, now: Moment) -> Written | None: ...


def all_known(shards: Shards[TransactionShard], count: int) -> dict[ProducerId, Transaction] | None:
    """Returns all transactions of the cluster by producer; None if not all of the `count` shards are here."""
    try:
        here = [shards.shard(index) for index in range(count)]
    except Refused:
        return None
    return {one.producer_id: one for shard in here for one in shard.transactions.values()}


def hanging(
    partitions: Mapping[TopicPartition, Partition], known: Mapping[ProducerId, Transaction]
) -> Iterator[tuple[TopicPartition, Marker]]:
    """Yields each hanging transaction's partition, with the marker that ends it."""
    for name, partition in partitions.items():
        for one in list(partition.log.producers) if partition.is_online else ():
            transaction = known.get(one.id)
            if one.has_open_transaction and (transaction is None or name not in transaction.partitions):
                # A coordinator epoch above the last marker's would fence the producer's own coordinator here.
                yield name, Marker(ProducerIdAndEpoch(one.id, one.epoch), False, max(one.coordinator_epoch, 0))
