"""The offsets that the groups of one shard have committed, and those whose transaction is still open.

Every change is a record that was written before, and comes through `replay`, live as at a start.  An offset that
belongs to a transaction waits for the transaction's end, and counts then unless a later commit has overtaken it: what
counts is the order of the records, not that of the ends.
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

NEVER = -1  # An expire_timestamp: the offset has no time of its own to expire.
_EXPIRING_VERSION = 1  # The only version of the value with such a time.

_NOTHING: Topics = MappingProxyType({})


class _Pending(NamedTuple):
    """`value` is None once a later commit has overtaken it; it is pending all the same."""

    order: int
    value: OffsetCommitValue | None


class GroupOffsets:
    """The offsets of one shard, by group, topic and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self._pending: dict[int, dict[GroupTopicPartition, _Pending]] = {}  # By producer id.
        self._open: dict[str, set[int]] = {}  # The producers with something pending, by group.
        self._orders = count()
        self._last = OffsetCommitValue(offset=0, metadata="", commit_timestamp=0)

    # From the log.

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int) -> None:
        """Takes in one record.  A producer id below 0 stands for no transaction; None as value is a tombstone.

        A tombstone drops pending offsets of the partition, too.
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
                self._overtake(place, next(self._orders))

    def put_all(self, group: str, offsets: CommittedOffsets, producer_id: int) -> None:
        """Takes in one commit of very many offsets as `replay` would; the values belong to the state from then on."""
        order = next(self._orders)
        if producer_id >= 0:
            pending = self._pending.setdefault(producer_id, {})
            for topic, values in offsets.items():
                pending.update({(group, topic, at): _Pending(order, value) for at, value in values.items()})
            self._open.setdefault(group, set()).add(producer_id)
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
        """Commits or drops the offsets of a transaction whose marker was written."""
        pending = self._pending.pop(producer_id, {})
        for group in dict.fromkeys(place[0] for place in pending):
            self._close(group, producer_id)
        if is_commit:
            for place, (order, value) in pending.items():
                if value is not None:
                    self._put(place, value)
                    self._overtake(place, order)

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
        """Shares equal texts and ids with the last offset: most are committed, and all are read, by the dozen."""
        last, self._last = self._last, value
        if value.topic_id == last.topic_id:
            value.topic_id = last.topic_id
        if value.commit_timestamp == last.commit_timestamp:
            value.commit_timestamp = last.commit_timestamp
        if value.metadata == last.metadata:
            value.metadata = last.metadata

    def _overtake(self, place: GroupTopicPartition, order: int) -> None:
        """Drops the values of a partition's pending offsets that were written before `order`: they never count."""
        for producer_id in self._open.get(place[0], ()):
            pending = self._pending[producer_id]
            earlier = pending.get(place)
            if earlier is not None and earlier.order < order:
                pending[place] = _Pending(earlier.order, None)

    def forget(self, places: Iterable[GroupTopicPartition]) -> None:
        """Forgets offsets, as their tombstones do."""
        for place in places:
            self._forget(place)

    def forget_group(self, group: str) -> None:
        """Forgets all offsets of a group, as their tombstones do."""
        self._groups.pop(group, None)
        for producer_id in self._open.pop(group, ()):
            left = {place: one for place, one in self._pending[producer_id].items() if place[0] != group}
            if left:
                self._pending[producer_id] = left
            else:
                del self._pending[producer_id]

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
            if pending.pop(place, None) is not None and not any(one[0] == group for one in pending):
                self._close(group, producer_id)
                if not pending:
                    del self._pending[producer_id]

    def _close(self, group: str, producer_id: int) -> None:
        producers = self._open[group]
        producers.remove(producer_id)
        if not producers:
            del self._open[group]

    # What is known.

    def __len__(self) -> int:
        """How many offsets are committed."""
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def groups(self) -> list[str]:
        """Returns the groups that have committed offsets, or are about to."""
        return list(self._groups | self._open)

    def of_group(self, group: str) -> Topics:
        """Returns a group's committed offsets by topic and partition, not to be changed from outside."""
        return self._groups.get(group, _NOTHING)

    def find(self, group: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.of_group(group).get(topic, {}).get(partition)

    def has(self, group: str, topic: str, partition: int) -> bool:
        """True if the partition's offset is committed, or about to be."""
        return self.find(group, topic, partition) is not None or self.is_pending(group, topic, partition)

    def has_pending_of(self, group: str) -> bool:
        """True if a transaction is open in which the group's offsets are committed."""
        return group in self._open

    def pending_of(self, group: str) -> list[Mapping[GroupTopicPartition, object]]:
        """Returns all pending offsets of each open transaction in which the group's offsets are committed."""
        return [self._pending[producer_id] for producer_id in self._open.get(group, ())]

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """True if a transaction is open in which this offset is committed."""
        place = group, topic, partition
        return any(place in self._pending[producer_id] for producer_id in self._open.get(group, ()))

    def count_of_group(self, group: str) -> int:
        """Returns how many offsets a group has committed, or is about to; some are counted twice."""
        committed = sum(map(len, self.of_group(group).values()))
        return committed + sum(len(self._pending[producer_id]) for producer_id in self._open.get(group, ()))

    def places_of_group(self, group: str) -> list[GroupTopicPartition]:
        """Returns each partition of which a group has committed an offset, or is about to, once."""
        places: dict[GroupTopicPartition, None] = {}
        for topic, partitions in self.of_group(group).items():
            places.update(dict.fromkeys(zip(repeat(group), repeat(topic), partitions)))
        for producer_id in self._open.get(group, ()):
            places.update(dict.fromkeys(place for place in self._pending[producer_id] if place[0] == group))
        return list(places)

    def places_of_topics(self, names: Iterable[TopicName]) -> Iterator[list[GroupTopicPartition]]:
        """Yields all groups' partitions of these topics, those of one group, or one transaction, at a time.

        Between two of them offsets may be forgotten, and come.
        """
        gone = frozenset(names)
        for group in list(self._groups):
            for topic in sorted(gone.intersection(self.of_group(group))):
                yield [(group, topic, partition) for partition in self.of_group(group).get(topic, ())]
            yield []
        for producer_id in list(self._pending):
            yield [place for place in self._pending.get(producer_id, ()) if place[1] in gone]


def record_of(key: OffsetCommitKey, value: OffsetCommitValue) -> StateRecord:
    """Returns the record of an offset, in the version that has all that the value says."""
    return StateRecord(key, value, None if value.expire_timestamp == NEVER else _EXPIRING_VERSION)


def tombstone(group: str, topic: str, partition: int) -> StateRecord:
    """Returns the record by which one offset is forgotten."""
    return StateRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def tombstones(places: Iterable[GroupTopicPartition]) -> list[StateRecord]:
    """Returns the records by which offsets are forgotten."""
    return [tombstone(*place) for place in places]
