"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members report partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.core.groups.consumer.consumer_group import ConsumerGroup
from odradek.core.groups.consumer.fencing import on_timer_expired
from odradek.record.internal.consumer_group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard, Replay

__all__ = ["REPLAYS", "ConsumerGroup"]

_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


def _replay(shard: GroupShard, key: object, value: object | None) -> None:
    assert isinstance(key, _KEYS)
    group = shard.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        # A group with only offsets has no record whose tombstone would end it.
        group = shard.groups[key.group_id] = ConsumerGroup(key.group_id, shard, on_timer_expired)
    if value is None and isinstance(key, ConsumerGroupMetadataKey):
        group.on_unloaded()
        del shard.groups[key.group_id]
        return
    group.apply(key, value)


REPLAYS: dict[type, Replay] = dict.fromkeys(_KEYS, _replay)
