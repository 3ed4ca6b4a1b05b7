"""The committed offsets of one shard's groups, and the pending offsets of open transactions.

Every change is a record already written to the log and is applied by `replay`, both live and when loading. A
transactional offset is pending until the transaction ends. It then takes effect unless a later commit has superseded
it. Precedence follows the order of the records, not the order in which transactions end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, repeat
from types import MappingProxyType
from typing import NamedTuple

from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import StateRecord
from odradek.record.internal.offset_commit_records import OffsetCommitKey, OffsetCommitValue

GroupTopicPartition = tuple[str, str, int]  # Group, topic, partition.
CommittedOffsets = Mapping[str, Mapping[int, OffsetCommitValue]]
Topics = Mapping[str, Mapping[int, OffsetCommitValue]]

NEVER = -1  # An expire_timestamp: the offset has no expiry time of its own.
_EXPIRING_VERSION = 1  # The only version of the value with an expiry time.

_NOTHING: Topics = MappingProxyType({})


class _Pending(NamedTuple):
    """A pending offset; `value` is None once a later commit has superseded it, but it remains pending."""

    order: int
    value: OffsetCommitValue | None


class GroupOffsets:
    """The offsets of one shard, by group, topic and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self._pending: dict[int, dict[GroupTopicPartition, _Pending]] = {}  # By producer id.
        self._open: dict[str, set[int]] = {}  # Producers with pending offsets, by group.
        self._orders = count()
        self._last = OffsetCommitValue(offset=0, metadata="", commit_timestamp=0)

    # Records from the log.

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int) -> None:
        """Apply one record.

        A producer id below 0 means no transaction. A value of None is a tombstone, which also drops the partition's
        pending offsets.
        """
        place = key.group, key.topic, key.partition
        if value is None:
            self._forget(place)
        elif producer_id >= 0:
            self._pending.setdefault(producer_id, {})[place] = _Pending(next(self._orders), value)
            self._open.setdefault(key.group, set()).add(producer_id)
        else:
            self._put(place, value)
            if key.group in self._open:
                self._supersede(place, next(self._orders))

    def put_all(self, group: str, offsets: CommittedOffsets, producer_id: int) -> None:
        """Apply one commit of many offsets as `replay` would; the state takes ownership of the values."""
        order = next(self._orders)
        if producer_id >= 0:
            assert offsets, "a producer without pending offsets would stay open"
            pending = self._pending.setdefault(producer_id, {})
            for topic, values in offsets.items():
                pending.update({(group, topic, at): _Pending(order, value) for at, value in values.items()})
            self._open.setdefault(group, set()).add(producer_id)
            assert self._pending[producer_id], "an open producer has pending offsets"
            return
        topics = self._groups.setdefault(group, {})
        for topic, values in offsets.items():
            topics.setdefault(topic, {}).update(values)
        for open_id in self._open.get(group, ()):
            pending = self._pending[open_id]
            for place, earlier in pending.items():
                if place[0] == group and place[2] in offsets.get(place[1], ()):
                    pending[place] = _Pending(earlier.order, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop the offsets of a transaction whose marker was written."""
        pending = self._pending.pop(producer_id, {})
        for group in dict.fromkeys(place[0] for place in pending):
            self._close(group, producer_id)
        assert bool(self._pending) == bool(self._open)
        if is_commit:
            for place, (order, value) in pending.items():
                if value is not None:
                    self._put(place, value)
                    self._supersede(place, order)

    def _put(self, place: GroupTopicPartition, value: OffsetCommitValue) -> None:
        group, topic, partition = place
        self._share(value)
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = value

    def _share(self, value: OffsetCommitValue) -> None:
        """Share equal strings and ids with the previous offset.

        Most offsets are committed many at a time, and all are loaded many at a time.
        """
        last, self._last = self._last, value
        if value.topic_id == last.topic_id:
            value.topic_id = last.topic_id
        if value.commit_timestamp == last.commit_timestamp:
            value.commit_timestamp = last.commit_timestamp
        if value.metadata == last.metadata:
            value.metadata = last.metadata

    def _supersede(self, place: GroupTopicPartition, order: int) -> None:
        """Drop a partition's pending values written before `order`, because they never take effect."""
        for producer_id in self._open.get(place[0], ()):
            pending = self._pending[producer_id]
            earlier = pending.get(place)
            if earlier is not None and earlier.order < order:
                pending[place] = _Pending(earlier.order, None)

    def forget(self, places: Iterable[GroupTopicPartition]) -> None:
        """Delete offsets, as their tombstones do."""
        for place in places:
            self._forget(place)

    def forget_group(self, group: str) -> None:
        """Delete all offsets of a group, as their tombstones do."""
        self._groups.pop(group, None)
        for producer_id in self._open.pop(group, ()):
            assert self._pending[producer_id], "an open producer has pending offsets"
            left = {place: pending for place, pending in self._pending[producer_id].items() if place[0] != group}
            if left:
                self._pending[producer_id] = left
            else:
                del self._pending[producer_id]
        assert bool(self._pending) == bool(self._open)

    def _forget(self, place: GroupTopicPartition) -> None:
        group, topic, partition = place
        topics = self._groups.get(group, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group]
        for producer_id in list(self._open.get(group, ())):
            pending = self._pending[producer_id]
            if pending.pop(place, None) is not None and not any(left[0] == group for left in pending):
                self._close(group, producer_id)
                if not pending:
                    del self._pending[producer_id]
        assert bool(self._pending) == bool(self._open)

    def _close(self, group: str, producer_id: int) -> None:
        producers = self._open[group]
        producers.remove(producer_id)
        if not producers:
            del self._open[group]

    # Queries.

    def __len__(self) -> int:
        """Return the number of committed offsets."""
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def groups(self) -> list[str]:
        """Return the groups that have committed or pending offsets."""
        return list(self._groups | self._open)

    def of_group(self, group: str) -> Topics:
        """Return a group's committed offsets by topic and partition; callers must not change them."""
        return self._groups.get(group, _NOTHING)

    def find_offset(self, group: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.of_group(group).get(topic, {}).get(partition)

    def has(self, group: str, topic: str, partition: int) -> bool:
        """Return whether the partition has a committed or pending offset."""
        return self.find_offset(group, topic, partition) is not None or self.is_pending(group, topic, partition)

    def has_pending_of(self, group: str) -> bool:
        """Return whether the group has pending offsets in an open transaction."""
        return group in self._open

    def pending_of(self, group: str) -> list[Mapping[GroupTopicPartition, object]]:
        """Return all pending offsets of each open transaction that commits offsets of the group."""
        return [self._pending[producer_id] for producer_id in self._open.get(group, ())]

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction commits this offset."""
        place = group, topic, partition
        return any(place in self._pending[producer_id] for producer_id in self._open.get(group, ()))

    def count_of_group(self, group: str) -> int:
        """Return the number of a group's committed and pending offsets; some are counted twice."""
        committed = sum(map(len, self.of_group(group).values()))
        return committed + sum(len(self._pending[producer_id]) for producer_id in self._open.get(group, ()))

    def places_of_group(self, group: str) -> list[GroupTopicPartition]:
        """Return each partition with a committed or pending offset of a group, once."""
        places: dict[GroupTopicPartition, None] = {}
        for topic, partitions in self.of_group(group).items():
            places.update(dict.fromkeys(zip(repeat(group), repeat(topic), partitions)))
        for producer_id in self._open.get(group, ()):
            places.update(dict.fromkeys(place for place in self._pending[producer_id] if place[0] == group))
        return list(places)

    def places_of_topics(self, names: Iterable[TopicName]) -> Iterator[list[GroupTopicPartition]]:
        """Yield all groups' partitions of these topics, one group or transaction at a time.

        Offsets may be added and deleted between two of them.
        """
        deleted = frozenset(names)
        for group in list(self._groups):
            for topic in sorted(deleted.intersection(self.of_group(group))):
                yield [(group, topic, partition) for partition in self.of_group(group).get(topic, ())]
            yield []
        for producer_id in list(self._pending):
            yield [place for place in self._pending.get(producer_id, ()) if place[1] in deleted]


def record_of(key: OffsetCommitKey, value: OffsetCommitValue) -> StateRecord:
    """Return the record of an offset, in the version that has all fields of the value."""
    return StateRecord(key, value, None if value.expire_timestamp == NEVER else _EXPIRING_VERSION)


def tombstone(group: str, topic: str, partition: int) -> StateRecord:
    """Return the record that deletes one offset."""
    return StateRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def tombstones(places: Iterable[GroupTopicPartition]) -> list[StateRecord]:
    """Return the records that delete offsets."""
    return [tombstone(*place) for place in places]
