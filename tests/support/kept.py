"""The state of a shard of groups in a comparable form: from the shard, and from its log."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from odradek.core.coordinators.state_log import StateRecord
from odradek.core.groups.classic import ClassicGroup
from odradek.core.groups.classic.classic_group_records import value_of
from odradek.core.groups.consumer import ConsumerGroup
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer.consumer_group_state import GroupState
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import GroupOffsets, GroupTopicPartition
from odradek.log.log.log import Log
from odradek.record.end_transaction_marker import end_marker
from odradek.record.internal.consumer_group_metadata import ConsumerGroupMetadataKey
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.record.internal.internal_codec import decode_key, decode_value
from odradek.record.internal.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from odradek.record.records import iter_records
from support.cleaning import batches_of

OPEN = object()


class Kept(NamedTuple):
    """The state of a shard; `classic` is exact only after loading, since changes between two writes are not stored."""

    classic: dict[str, GroupMetadataValue]
    consumer: dict[str, dict[str, object]]
    committed: dict[GroupTopicPartition, OffsetCommitValue]
    open: set[GroupTopicPartition]  # Committed in an open transaction.


def kept(shard: GroupShard) -> Kept:
    classic, consumer = {}, {}
    for group in shard.groups.values():
        if isinstance(group, ConsumerGroup):
            consumer[group.id] = vars(group.kept)
        elif isinstance(group, ClassicGroup) and group._is_stored:
            assignments = {member.id: member.assignment for member in group.members}
            classic[group.id] = value_of(group.stored_generation(), group.members, assignments)
    pending = {place for places in shard.offsets._pending.values() for place in places}
    return Kept(classic, consumer, committed_offsets(shard.offsets), pending)


def committed_offsets(offsets: GroupOffsets) -> dict[GroupTopicPartition, OffsetCommitValue]:
    return {
        (group, topic, partition): value
        for group, topics in offsets._groups.items()
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }


def pending(offsets: GroupOffsets) -> list[tuple[int, GroupTopicPartition, OffsetCommitValue]]:
    """Return pending offsets with their producers, in the order of writing, without overwritten ones."""
    found = [
        (one, producer_id, place, one.value)
        for producer_id, places in offsets._pending.items()
        for place, one in places.items()
        if one.value is not None
    ]
    found.sort(key=lambda one: one[0].order)
    return [(producer_id, place, value) for _, producer_id, place, value in found]


def records_of(state: GroupState) -> list[StateRecord]:
    """Return the records that recreate the consumer group."""
    listed = [records.member_metadata(state.id, member.id, member.metadata) for member in state.members.values()]
    listed += [records.regex(state.id, pattern, topics, 0) for pattern, topics in state.regexes.items()]
    listed += [records.epoch(state.id, state.epoch, state.metadata_hash)]
    listed += [records.target(state.id, member_id, assignment) for member_id, assignment in state.targets.items()]
    listed += [records.assigned(state.id, state.assigned)]
    return listed + [records.current(state.id, member.id, member.current) for member in state.members.values()]


class _LogRecord(NamedTuple):
    """A record of the log; `outcome` is that of its transaction, OPEN while it has not ended."""

    key: object
    value: object | None
    outcome: object


def kept_in_log(log: Log) -> Kept:
    """Return the state according to the log: the last committed record of each key, regardless of its position."""
    written = list(_records(log))
    last = {_name(one.key): one for one in written if one.outcome is True}
    groups: dict[str, GroupState] = {}
    classic = {}
    for one in sorted(last.values(), key=lambda one: _name(one.key)):
        if isinstance(one.key, GroupMetadataKey) and isinstance(one.value, GroupMetadataValue):
            classic[one.key.group] = one.value
        elif not isinstance(one.key, GroupMetadataKey | OffsetCommitKey) and one.value is not None:
            group_id = one.key.group_id  # type: ignore[attr-defined]  # All others have one.
            groups.setdefault(group_id, GroupState(group_id)).apply(one.key, one.value)
    assert groups.keys() == {
        one.key.group_id
        for one in last.values()
        if isinstance(one.key, ConsumerGroupMetadataKey) and one.value is not None
    }, "a group that is deleted leaves nothing, and one that is there has an epoch"
    assert not groups.keys() & classic.keys(), "a group is of one protocol"
    offsets = {_place(one.key): one.value for one in last.values() if isinstance(one.key, OffsetCommitKey)}
    return Kept(
        classic,
        {name: vars(state) for name, state in groups.items()},
        {place: value for place, value in offsets.items() if isinstance(value, OffsetCommitValue)},
        _open(written),
    )


def _open(written: list[_LogRecord]) -> set[GroupTopicPartition]:
    found = set()
    for one in written:
        if isinstance(one.key, OffsetCommitKey):
            if one.outcome is OPEN:
                found.add(_place(one.key))
            elif one.value is None:
                found.discard(_place(one.key))
    return found


def _name(key: object) -> tuple[str, str]:
    return type(key).__name__, repr(key)


_place = attrgetter("group", "topic", "partition")


def _records(log: Log) -> Iterator[_LogRecord]:
    """Return all records in order, without aborted ones."""
    batches = batches_of(log)
    for position, batch in enumerate(batches):
        if batch.is_control:
            continue
        outcome: object = True
        if batch.is_transactional:
            mine = (one for one in batches[position:] if one.is_control and one.producer_id == batch.producer_id)
            outcome = next((end.is_commit for end in map(end_marker, mine) if end is not None), OPEN)
        for record in iter_records(batch):
            assert record.key is not None
            key = decode_key(record.key)
            assert key is not None
            if outcome is not False:
                yield _LogRecord(key, None if record.value is None else decode_value(key, record.value), outcome)
