"""Groups of the classic protocol, in which one member computes the assignment for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.core.groups.classic.classic_group import ClassicGroup
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from odradek.core.groups.shard.group_shard import GroupShard, Replay

__all__ = ["REPLAYS", "ClassicGroup"]


def _replay(shard: GroupShard, key: object, value: object | None) -> None:
    assert isinstance(key, GroupMetadataKey) and (value is None or isinstance(value, GroupMetadataValue))
    group = shard.groups.get(key.group)
    if value is None:
        if isinstance(group, ClassicGroup):
            group.on_unloaded()
            del shard.groups[key.group]
        return
    if not isinstance(group, ClassicGroup):
        group = shard.groups[key.group] = ClassicGroup(key.group, shard)
    group.load(value)


REPLAYS: dict[type, Replay] = {GroupMetadataKey: _replay}
