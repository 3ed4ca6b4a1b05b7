"""Stored state of a consumer group: records that restore it, tombstones that delete it, and failed writes."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.coordinators.state_log import StateLog, StateRecord
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer.consumer_group_state import GroupState
from odradek.core.groups.consumer.consumer_member import ConsumerMemberMetadata, CurrentAssignment, Held, MemberState
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.record.internal.consumer_group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    TopicPartitions,
)
from odradek.record.internal.internal_codec import decode_key, decode_value, encode
from odradek.record.record_batch import iter_batches
from odradek.record.records import iter_records
from support.consumer_group import GROUP, Consumers, owned
from support.kept import records_of

T = Uuid(b"t" * 16)


@pytest.fixture
def broker(tmp_path: Path) -> Consumers:
    """Return a broker with a group that has every kind of stored state."""
    made = Consumers(tmp_path)
    topic = made.create("t", 6)
    made.join("a", "t", instance_id="i", rack_id="r", server_assignor="range")
    made.join("b", "t", "later")
    made.join("c", subscribed_topic_regex="t|u")
    made.beat("a", 2)
    made.beat("a", 2, topic_partitions=owned(topic, 0, 1))
    made.beat("c", 4)
    return made


def record_kinds(broker: Consumers) -> list[tuple[type, bool]]:
    """Return the kinds of records in the log, and whether they are tombstones."""
    log = broker.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].log
    data = log.read(log.start_offset, 1 << 30, log.end_offset).read()
    kinds = []
    for batch in iter_batches(data):
        for record in iter_records(batch):
            assert record.key is not None
            key = decode_key(record.key)
            assert key is not None
            kinds.append((type(key), record.value is None))
    return kinds


def replay(listed: list[StateRecord]) -> GroupState:
    """Replay records through bytes, as from a log."""
    state = GroupState(GROUP)
    for record in listed:
        data, body = encode(record.key, record.value, 0)
        decoded = decode_key(data)
        assert decoded is not None
        state.apply(decoded, None if body is None else decode_value(decoded, body))
    return state


def test_records_restore_the_group(broker: Consumers) -> None:
    kept = broker.group().kept
    assert {member.current.state for member in kept.members.values()} >= {MemberState.STABLE}
    assert kept.regexes and kept.owners and kept.static and kept.targets
    assert vars(replay(records_of(broker.group().kept))) == vars(kept)


def test_records_in_any_order_restore_the_group(broker: Consumers) -> None:
    """Compaction keeps each key's last record in its place."""
    listed, expected = records_of(broker.group().kept), vars(broker.group().kept)
    for seed in range(50):
        assert vars(replay(Random(seed).sample(listed, len(listed)))) == expected


def test_repeated_records_leave_the_group_unchanged(broker: Consumers) -> None:
    """A partly compacted log repeats earlier records."""
    group, before = broker.group(), replay(records_of(broker.group().kept))
    group.shard.write(records_of(group.kept), broker.now)
    assert vars(broker.group().kept) == vars(before)
    broker.kill()
    assert vars(broker.group().kept) == vars(before)


def test_tombstones_delete_all_group_state(broker: Consumers) -> None:
    group = broker.group()
    tombstones = group.tombstones()
    state = replay([*records_of(group.kept), *tombstones])
    empty = GroupState(GROUP)
    empty.epoch, empty.metadata_hash = state.epoch, state.metadata_hash
    assert vars(state) == vars(empty)
    assert isinstance(tombstones[-1].key, ConsumerGroupMetadataKey)
    group.shard.write(tombstones, broker.now)
    assert GROUP not in group.shard.groups
    assert len(broker.broker.timers) == 0
    broker.kill()
    assert broker.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_tombstones_of_missing_state_are_ignored() -> None:
    state = GroupState(GROUP)
    for record in (*records.no_member(GROUP, "a"), records.regex(GROUP, "x", None, 0)):
        state.apply(record.key, record.value)
    assert vars(state) == vars(GroupState(GROUP))


def test_one_change_is_one_batch_of_only_the_changed_records(broker: Consumers) -> None:
    before = len(record_kinds(broker))
    broker.beat("a", 4)
    assert len(record_kinds(broker)) == before
    broker.beat("b", -1)
    kinds = [kind.__name__.removeprefix("ConsumerGroup") for kind, _ in record_kinds(broker)[before:]]
    assert kinds == [
        "CurrentMemberAssignmentKey",
        "TargetAssignmentMemberKey",
        "MemberMetadataKey",
        "MetadataKey",
    ]


def test_missing_partition_epochs_default_to_the_member_epoch() -> None:
    """Brokers before 4.3 write none; the same applies if their number differs from that of the partitions."""
    for epochs in (None, [1]):
        listed = [TopicPartitions(topic_id=T, partitions=[3, 5], assignment_epochs=epochs)]
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=1,
            assigned_partitions=listed,
            partitions_pending_revocation=[],
        )
        expected: Held = {T: {3: 7, 5: 7}}
        assert CurrentAssignment.of(value) == CurrentAssignment(7, 6, MemberState.UNREVOKED, expected)


def test_partition_owner_is_the_member_of_the_last_record() -> None:
    """In a partly compacted log the record of a revocation may be missing."""
    state = GroupState(GROUP)

    def has(member_id: str, *partitions: int) -> None:
        current = CurrentAssignment(2, 1, MemberState.STABLE, {T: dict.fromkeys(partitions, 2)})
        state.apply(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id), current.value())

    has("a", 0, 1)
    has("b", 1)
    has("a", 0)
    assert state.owners == {(T, 0): "a", (T, 1): "b"}


def test_abandoned_instance_id_has_no_member(broker: Consumers) -> None:
    """The same holds after a restart from a log with only the member's last record."""
    assert broker.join("a", "t", instance_id="j").error_code == ErrorCode.NONE
    assert broker.group().kept.static == {"j": "a"}
    assert vars(replay(records_of(broker.group().kept))) == vars(broker.group().kept)


def test_group_subscriptions_follow_those_of_the_members(broker: Consumers) -> None:
    kept = broker.group().kept
    assert kept.subscriptions == {
        (frozenset({"t"}), ""): 1,
        (frozenset({"t", "later"}), ""): 1,
        (frozenset(), "t|u"): 1,
    }
    assert kept.patterns == ["t|u"]
    state = GroupState(GROUP)
    for record in records_of(broker.group().kept):
        # Kafka may have stored such a member before the matches of its pattern.
        if not isinstance(record.key, ConsumerGroupRegularExpressionKey):
            state.apply(record.key, record.value)
    assert state.patterns == ["t|u"]
    broker.beat("c", 4, subscribed_topic_names=["t"], subscribed_topic_regex="")
    kept = broker.group().kept
    assert kept.subscriptions == {(frozenset({"t"}), ""): 2, (frozenset({"t", "later"}), ""): 1}
    assert not kept.patterns and not kept.regexes


def test_member_assignment_may_precede_its_subscription() -> None:
    """In a partly compacted log the subscription record may follow the assignment record."""
    state = GroupState(GROUP)
    current = records.current(GROUP, "a", CurrentAssignment(2, 1))
    record = records.member_metadata(GROUP, "a", ConsumerMemberMetadata(topics=frozenset({"t"})))
    state.apply(current.key, current.value)
    assert not state.topics()
    state.apply(record.key, record.value)
    assert state.subscriptions == {(frozenset({"t"}), ""): 1}
    state.apply(record.key, None)
    assert vars(state) == vars(GroupState(GROUP))


def test_partition_metadata_of_older_brokers_is_removed(broker: Consumers) -> None:
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    group = broker.group()
    group.shard.write([StateRecord(key, ConsumerGroupPartitionMetadataValue(topics=[]))], broker.now)
    broker.join("d", "t")
    assert (ConsumerGroupPartitionMetadataKey, True) in record_kinds(broker)
    assert not group.kept.has_partition_metadata


def test_change_with_a_failed_write_is_undone(broker: Consumers) -> None:
    group, before = broker.group(), broker.group().kept
    broker.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].take_offline()
    for answer in (broker.join("d", "t"), broker.beat("a", -1), broker.beat("b", 3, subscribed_topic_names=[])):
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert group.kept is before
    assert set(before.members) == {"a", "b", "c"}


def test_change_refused_during_its_write_is_undone(broker: Consumers, monkeypatch: pytest.MonkeyPatch) -> None:
    group, before = broker.group(), records_of(broker.group().kept)

    def refuse(*_: object) -> None:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    with monkeypatch.context() as patched:
        patched.setattr(StateLog, "append", refuse)
        for answer in (broker.join("d", "t"), broker.beat("a", -1), broker.beat("b", 3, subscribed_topic_names=[])):
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert records_of(group.kept) == before
        assert len(broker.broker.timers) == 3
    assert broker.join("d", "t").error_code == ErrorCode.NONE
    assert broker.beat("a", -1).error_code == ErrorCode.NONE
    assert set(group.kept.members) == {"b", "c", "d"}
    assert len(broker.broker.timers) == 3
    kept = vars(group.kept)
    broker.kill()
    assert vars(broker.group().kept) == kept


def test_failed_removal_of_a_member_is_retried(broker: Consumers, caplog: pytest.LogCaptureFixture) -> None:
    group = broker.group()
    broker.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].take_offline()
    with caplog.at_level(logging.WARNING):
        broker.pass_time(45_000)
        broker.pass_time(500)
    assert "failed to fence member" in caplog.text
    assert set(group.kept.members) == {"a", "b", "c"}
    assert len(broker.broker.timers) == 3


def test_heartbeats_set_no_timers(broker: Consumers) -> None:
    before = len(broker.broker.timers._heap)
    for _ in range(100):
        broker.pass_time(10)
        broker.beat("a", 4)
    assert len(broker.broker.timers._heap) == before
