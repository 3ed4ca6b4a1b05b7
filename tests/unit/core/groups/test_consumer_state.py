"""What is kept of a group: as records that make it again, and that make it forgotten; and what happens if the log can't
be written."""

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
from odradek.core.groups.consumer.consumer_member import Current, Held, MemberState, Said
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
    """A group in which something of everything is kept."""
    made = Consumers(tmp_path)
    topic = made.create("t", 6)
    made.join("a", "t", instance_id="i", rack_id="r", server_assignor="range")
    made.join("b", "t", "later")
    made.join("c", subscribed_topic_regex="t|u")
    made.beat("a", 2)
    made.beat("a", 2, topic_partitions=owned(topic, 0, 1))
    made.beat("c", 4)
    return made


def written(broker: Consumers) -> list[tuple[type, bool]]:
    """The kinds of records in the log, and whether they are tombstones."""
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


def again(listed: list[StateRecord]) -> GroupState:
    """Through bytes, as from a log."""
    state = GroupState(GROUP)
    for record in listed:
        data, body = encode(record.key, record.value, 0)
        decoded = decode_key(data)
        assert decoded is not None
        state.apply(decoded, None if body is None else decode_value(decoded, body))
    return state


def test_all_records_make_the_same_group(broker: Consumers) -> None:
    kept = broker.group().kept
    assert {member.current.state for member in kept.members.values()} >= {MemberState.STABLE}
    assert kept.regexes and kept.owners and kept.static and kept.targets
    assert vars(again(records_of(broker.group().kept))) == vars(kept)


def test_they_do_so_in_any_order(broker: Consumers) -> None:
    """Compaction leaves each key's last record where it stands."""
    listed, expected = records_of(broker.group().kept), vars(broker.group().kept)
    for seed in range(50):
        assert vars(again(Random(seed).sample(listed, len(listed)))) == expected


def test_they_do_so_on_top_of_the_group_itself(broker: Consumers) -> None:
    """A log of which only a part was compacted says again what it said before."""
    group, before = broker.group(), again(records_of(broker.group().kept))
    group.shard.write(records_of(group.kept), broker.now)
    assert vars(broker.group().kept) == vars(before)
    broker.kill()
    assert vars(broker.group().kept) == vars(before)


def test_tombstones_leave_nothing(broker: Consumers) -> None:
    group = broker.group()
    tombstones = group.tombstones()
    state = again([*records_of(group.kept), *tombstones])
    empty = GroupState(GROUP)
    empty.epoch, empty.metadata_hash = state.epoch, state.metadata_hash
    assert vars(state) == vars(empty)
    assert isinstance(tombstones[-1].key, ConsumerGroupMetadataKey)
    group.shard.write(tombstones, broker.now)
    assert GROUP not in group.shard.groups
    assert len(broker.broker.timers) == 0
    broker.kill()
    assert broker.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_tombstones_of_what_is_not_there_mean_nothing() -> None:
    state = GroupState(GROUP)
    for record in (*records.no_member(GROUP, "a"), records.regex(GROUP, "x", None, 0)):
        state.apply(record.key, record.value)
    assert vars(state) == vars(GroupState(GROUP))


def test_one_change_is_one_batch_with_only_what_changed(broker: Consumers) -> None:
    before = len(written(broker))
    broker.beat("a", 4)
    assert len(written(broker)) == before
    broker.beat("b", -1)
    kinds = [kind.__name__.removeprefix("ConsumerGroup") for kind, _ in written(broker)[before:]]
    assert kinds == [
        "CurrentMemberAssignmentKey",
        "TargetAssignmentMemberKey",
        "MemberMetadataKey",
        "MetadataKey",
    ]


def test_epochs_of_partitions_that_were_not_written_are_the_members() -> None:
    """By brokers before 4.3; and where there are not as many as partitions."""
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
        assert Current.of(value) == Current(7, 6, MemberState.UNREVOKED, expected)


def test_who_owns_a_partition_is_the_last_to_say_so() -> None:
    """In a log of which parts were compacted, what one member gave up may be missing."""
    state = GroupState(GROUP)

    def has(member_id: str, *partitions: int) -> None:
        current = Current(2, 1, MemberState.STABLE, {T: dict.fromkeys(partitions, 2)})
        state.apply(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id), current.value())

    has("a", 0, 1)
    has("b", 1)
    has("a", 0)
    assert state.owners == {(T, 0): "a", (T, 1): "b"}


def test_an_instance_id_that_a_member_has_no_more_is_nobodys(broker: Consumers) -> None:
    """As after a restart from a log of which only the member's last record is left."""
    assert broker.join("a", "t", instance_id="j").error_code == ErrorCode.NONE
    assert broker.group().kept.static == {"j": "a"}
    assert vars(again(records_of(broker.group().kept))) == vars(broker.group().kept)


def test_what_members_are_subscribed_to_follows_them(broker: Consumers) -> None:
    kept = broker.group().kept
    assert kept.subscriptions == {
        (frozenset({"t"}), ""): 1,
        (frozenset({"t", "later"}), ""): 1,
        (frozenset(), "t|u"): 1,
    }
    assert kept.patterns == ["t|u"]
    state = GroupState(GROUP)
    for record in records_of(broker.group().kept):
        # Kafka may have written of such a member, and not yet what it matches.
        if not isinstance(record.key, ConsumerGroupRegularExpressionKey):
            state.apply(record.key, record.value)
    assert state.patterns == ["t|u"]
    broker.beat("c", 4, subscribed_topic_names=["t"], subscribed_topic_regex="")
    kept = broker.group().kept
    assert kept.subscriptions == {(frozenset({"t"}), ""): 2, (frozenset({"t", "later"}), ""): 1}
    assert not kept.patterns and not kept.regexes


def test_a_member_may_be_known_before_what_it_said() -> None:
    """In a log of which parts were compacted its last words may come after where it is."""
    state = GroupState(GROUP)
    current = records.current(GROUP, "a", Current(2, 1))
    said = records.said(GROUP, "a", Said(topics=frozenset({"t"})))
    state.apply(current.key, current.value)
    assert not state.topics()
    state.apply(said.key, said.value)
    assert state.subscriptions == {(frozenset({"t"}), ""): 1}
    state.apply(said.key, None)
    assert vars(state) == vars(GroupState(GROUP))


def test_partition_metadata_of_older_brokers_is_removed(broker: Consumers) -> None:
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    group = broker.group()
    group.shard.write([StateRecord(key, ConsumerGroupPartitionMetadataValue(topics=[]))], broker.now)
    broker.join("d", "t")
    assert (ConsumerGroupPartitionMetadataKey, True) in written(broker)
    assert not group.kept.has_partition_metadata


def test_what_can_not_be_written_has_not_happened(broker: Consumers) -> None:
    group, before = broker.group(), broker.group().kept
    broker.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].take_offline()
    for answer in (broker.join("d", "t"), broker.beat("a", -1), broker.beat("b", 3, subscribed_topic_names=[])):
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert group.kept is before
    assert set(before.members) == {"a", "b", "c"}


def test_what_is_refused_while_it_is_written_has_not_happened(
    broker: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_member_that_can_not_be_removed_now_is_tried_again(
    broker: Consumers, caplog: pytest.LogCaptureFixture
) -> None:
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
