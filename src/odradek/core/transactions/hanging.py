"""Transactions that are open in a partition and that no coordinator knows: nobody would ever end them.

A power failure leaves one, if it takes the coordinator's record and not the first batch, or an older broker did.
Apache Kafka leaves them to its administrator (KIP-664).  After a stop that was not clean we look for them, where all
coordinators are here: readers of committed records would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.base.errors import Refused
from odradek.base.units import ProducerId, TopicPartition
from odradek.core.coordinators.shards import Shards
from odradek.core.coordinators.state_log import Producer
from odradek.core.partition import Partition
from odradek.core.transactions.markers import Marker
from odradek.core.transactions.shard import TransactionShard
from odradek.core.transactions.states import Transaction


def all_known(shards: Shards[TransactionShard], count: int) -> dict[ProducerId, Transaction] | None:
    """Every transaction of the cluster by its producer; None if not all of the `count` shards are here."""
    try:
        here = [shards.shard(index) for index in range(count)]
    except Refused:
        return None
    return {one.producer_id: one for shard in here for one in shard.transactions.values()}


def hanging(
    partitions: Mapping[TopicPartition, Partition], known: Mapping[ProducerId, Transaction]
) -> Iterator[tuple[TopicPartition, Marker]]:
    """Where they are, and what ends them."""
    for name, partition in partitions.items():
        for one in list(partition.log.producers) if partition.is_online else ():
            transaction = known.get(one.id)
            if one.has_open_transaction and (transaction is None or name not in transaction.partitions):
                # Not above the last marker's: that would fence the producer's own coordinator here.
                yield name, Marker(Producer(one.id, one.epoch), False, max(one.coordinator_epoch, 0))
