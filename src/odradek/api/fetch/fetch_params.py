"""Parameters of a fetch: the reader, and the end of the records it may read; Kafka's FetchParams.

    a follower                    up to the log's end        of the leader
    a consumer before v11         up to the high watermark   of the leader
    a consumer since v11          the same, or up to the last stable offset, of any replica (KIP-392)

A follower returns to consumers only records below its own high watermark, which it learns from its leader.
"""

from __future__ import annotations

from collections.abc import Hashable

from odradek.api.fetch.follower_fetch import follower_of
from odradek.api.request.call import Call
from odradek.api.templates.fetch_template import ANY_REPLICA_SINCE
from odradek.base.units import NO_OFFSET, BrokerId, Offset, TopicName
from odradek.core.fetch.fetch_sessions import CachedPartition, LogEnd, Watchers
from odradek.core.kernel.access import CLUSTER_NAME, Operation, ResourceType, Rights
from odradek.core.partition.partition import Partition
from odradek.core.partition.positions import READ_COMMITTED
from odradek.core.partition.replica_selector import preferred_read_replica
from odradek.wire.messages.fetch import FetchRequest, PartitionData


def may_read(rights: Rights, name: TopicName) -> bool:
    """Return whether a consumer with these rights may fetch from the topic."""
    return rights.allows(Operation.READ, ResourceType.TOPIC, name)


class FetchParams:
    """The common parameters of all partitions of one fetch.

    A fetch that waits is answered with the rights that the request had on arrival.
    """

    def __init__(self, call: Call, body: FetchRequest) -> None:
        self.follower = follower_of(body, call.version)
        self.read_committed = body.isolation_level == READ_COMMITTED and self.follower is None
        self.only_leader = self.follower is not None or call.version < ANY_REPLICA_SINCE
        self._broker = call.broker
        self._listener = call.peer.listener
        self._rack = body.rack_id if call.broker.selects_by_rack and not self.only_leader else ""
        self._rights = call.rights
        self._readable: dict[TopicName, bool] = {}

    def may_fetch(self, name: TopicName | None) -> bool:
        """Return whether the follower may replicate, or the consumer may read the topic.

        `name` is None if no topic has the requested id.
        """
        if self.follower is not None:
            return self._rights.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        if name is None:
            return True
        is_readable = self._readable.get(name)
        if is_readable is None:
            is_readable = self._readable[name] = may_read(self._rights, name)
        return is_readable

    def check_role(self, partition: Partition, epoch: int) -> None:
        """Raise Refused if the leader epoch differs, or this broker's replica has the wrong role or no log."""
        if self.only_leader:
            partition.check_leader(epoch)
        else:
            partition.check_replica(epoch)

    def is_served_by(self, partition: Partition) -> bool:
        """Return whether the replica has the role to be read from, and its log."""
        # A fetch without a leader epoch keeps waiting when this broker stops leading: since version 11 any replica may
        # answer, and this broker still has one. Consumers send the epoch.
        return partition.leading is not None or (not self.only_leader and partition.is_online)

    def preferred(self, partition: Partition, offset: int) -> BrokerId | None:
        """Return the other replica from which the consumer should read; None for this one."""
        leading = partition.leading
        if not self._rack or leading is None:
            return None
        return preferred_read_replica(leading, self._broker.view, self._listener, self._rack, offset)

    def end_offset_of(self, partition: Partition) -> Offset:
        """Return the offset where reading ends now; -1 if a follower would get an error."""
        if self.follower is None:
            return partition.readable_end(read_committed=self.read_committed)
        return NO_OFFSET if partition.leading is None else partition.log.end_offset

    def watchers(self, partition: Partition) -> Watchers:
        """Return the watchers of a partition's changes, where this fetch can register."""
        return partition.watchers if self.follower is None else partition.end_watchers

    def keys(self, partition: Partition) -> tuple[Hashable, ...]:
        """Return the keys that wake a fetch without a session."""
        name = partition.topic_partition
        return (name,) if self.follower is None else (name, LogEnd(name))

    def has_changed(self, partition: Partition, cached_partition: CachedPartition, data: PartitionData) -> bool:
        """Return whether a partition may have news since `data` was read."""
        if not self.is_served_by(partition) or partition.positions.high_watermark != data.high_watermark:
            return True
        if self.follower is not None:
            return partition.log.end_offset > cached_partition.fetch_offset
        return partition.last_stable_offset != data.last_stable_offset
