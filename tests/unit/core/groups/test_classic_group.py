"""A classic group as seen by the rest of the broker: commits, expiry of offsets, and stored state."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TimestampMs, TopicName
from odradek.core.coordinators.shards import Shards
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL
from odradek.core.groups.classic import ClassicGroup
from odradek.core.groups.classic.classic_group_records import value_of
from odradek.core.groups.classic.classic_group_states import NEXT, Event, State
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.moment import Moment
from odradek.record.internal.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from odradek.record.internal.internal_codec import encode
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequestProtocol
from odradek.wire.messages.sync_group import SyncGroupRequestAssignment
from support.in_memory import Harness
from support.kept import kept_in_log
from support.members import OLD, coordinator, group_of, join, joining, stable, sync


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return coordinator(tmp_path)


def shard(harness: Harness) -> GroupShard:
    return harness.broker.groups.shard_of("g")


def simple(harness: Harness) -> ClassicGroup:
    group = ClassicGroup("g", shard(harness))
    shard(harness).groups["g"] = group
    return group


def subscribed(*topics: str) -> list[JoinGroupRequestProtocol]:
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 0)
    return [JoinGroupRequestProtocol(name="range", metadata=metadata)]


def commit(
    harness: Harness, group: ClassicGroup, member_id: str, epoch: int, instance_id: str | None = None, **how: bool
) -> ErrorCode:
    try:
        transactional = how.get("transactional", False)
        group.check_commit(member_id, instance_id, epoch, is_transactional=transactional, version=9, now=harness.now)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


# Commits.


def test_group_without_members_accepts_commits_of_any_client(harness: Harness) -> None:
    group = simple(harness)
    for member_id, epoch in (("", -1), ("somebody", -1), ("", -2)):
        assert commit(harness, group, member_id, epoch) == ErrorCode.NONE
        assert commit(harness, group, member_id, epoch, transactional=True) == ErrorCode.NONE
    assert commit(harness, group, "somebody", 0) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("transactional", [False, True])
def test_members_commit_for_their_generation(harness: Harness, transactional: bool) -> None:
    member_id = stable(harness).member_id
    group = group_of(harness)
    for member, epoch, instance_id, code in (
        (member_id, 1, None, ErrorCode.NONE),
        (member_id, 2, None, ErrorCode.ILLEGAL_GENERATION),
        (member_id, 0, None, ErrorCode.ILLEGAL_GENERATION),
        (member_id, -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("somebody", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("somebody", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (member_id, 1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert commit(harness, group, member, epoch, instance_id, transactional=transactional) == code
    # An old transactional producer sends neither member nor generation.
    nameless = ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(harness, group, "", -1, transactional=transactional) == nameless


@pytest.mark.parametrize(("transactional", "code"), [(False, ErrorCode.REBALANCE_IN_PROGRESS), (True, ErrorCode.NONE)])
def test_only_transactional_commits_are_accepted_during_assignment(
    harness: Harness, transactional: bool, code: ErrorCode
) -> None:
    joined = join(harness)
    group = group_of(harness)
    assert commit(harness, group, joined.member_id, 1, transactional=transactional) == code
    sync(harness, joined)
    harness.send(joining(), OLD)
    assert group.phase is State.PREPARING
    assert commit(harness, group, joined.member_id, 1, transactional=transactional) == ErrorCode.NONE


@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_is_a_heartbeat_unless_a_transaction_makes_it(harness: Harness, transactional: bool) -> None:
    joined = stable(harness)
    group = group_of(harness)
    harness.pass_time(9_000)
    assert commit(harness, group, joined.member_id, 1, transactional=transactional) == ErrorCode.NONE
    harness.pass_time(9_000)
    assert group.is_empty == transactional


@pytest.mark.parametrize(("ms", "code"), [(19_999, ErrorCode.NONE), (20_000, ErrorCode.UNKNOWN_MEMBER_ID)])
def test_member_silent_for_two_sessions_during_a_stall_is_removed(harness: Harness, ms: int, code: ErrorCode) -> None:
    """Otherwise a request sent before the member gave up would keep the group waiting for it."""
    joined = stable(harness)
    harness.now = Moment(TimestampMs(harness.now.wall + ms), harness.now.steady + ms)  # No timer has run.
    assert heartbeat_code(harness, joined.member_id) == code
    assert group_of(harness).is_empty == (code != ErrorCode.NONE)


def heartbeat_code(harness: Harness, member_id: str) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    return harness.request(request, 3, HeartbeatResponse).error_code


# Expiry of offsets.


def test_offsets_of_simple_consumers_expire_individually(harness: Harness) -> None:
    group = simple(harness)
    assert group.offsets_expire_after(harness.now) == 0
    assert not group.is_subscribed_to(TopicName("t"))
    group.check_delete()


def test_offsets_expire_after_the_group_has_become_empty(harness: Harness) -> None:
    joined = stable(harness, protocols=subscribed("t"))
    group = group_of(harness)
    assert group.offsets_expire_after(harness.now) == 0, "what nobody subscribes to, by itself"
    join(harness, member_id=joined.member_id)
    assert group.offsets_expire_after(harness.now) is None, "nobody knows what they will subscribe to"
    harness.pass_time(10_000)
    assert group.is_empty
    emptied = harness.now.wall
    harness.pass_time(1)
    assert group.offsets_expire_after(harness.now) == emptied
    harness.kill()
    assert group_of(harness).offsets_expire_after(harness.now) == emptied


def test_group_is_subscribed_to_the_topics_of_its_members(harness: Harness) -> None:
    joined = stable(harness, protocols=subscribed("t", "u"))
    group = group_of(harness)
    assert [group.is_subscribed_to(TopicName(name)) for name in "tuv"] == [True, True, False]
    assert join(harness, member_id=joined.member_id, protocols=subscribed("v")).generation_id == 2
    assert [group.is_subscribed_to(TopicName(name)) for name in "tuv"] == [False, False, True]
    harness.pass_time(10_000)
    assert not group.is_subscribed_to(TopicName("v"))
    join(harness, protocols=subscribed("t"))


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\xff\xff", b"meta"])
def test_unreadable_subscription_covers_every_topic(harness: Harness, metadata: bytes) -> None:
    stable(harness, protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)])
    group = group_of(harness)
    assert group.is_subscribed_to(TopicName("t"))
    assert group.offsets_expire_after(harness.now) is None


def test_group_of_another_protocol_type_has_no_subscriptions(harness: Harness) -> None:
    stable(harness, protocol_type="connect")
    group = group_of(harness)
    assert not group.is_subscribed_to(TopicName("t"))
    assert group.offsets_expire_after(harness.now) is None


def test_a_group_with_members_is_not_deleted(harness: Harness) -> None:
    joined = stable(harness)
    with pytest.raises(Refused) as refused:
        group_of(harness).check_delete()
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    harness.pass_time(10_000)
    group_of(harness).check_delete()
    shard(harness).write(group_of(harness).tombstones(), harness.now)
    assert "g" not in shard(harness).groups
    harness.kill()
    assert "g" not in shard(harness).groups
    assert join(harness, member_id=joined.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Stored state.


def test_group_with_only_offsets_has_no_group_record(harness: Harness) -> None:
    simple(harness)
    assert kept_in_log(shard(harness).log.leading.log).classic == {}


def test_changes_since_the_last_write_are_lost_in_a_crash(harness: Harness) -> None:
    joined = stable(harness)
    harness.send(joining(), OLD)
    group = group_of(harness)
    assert group.phase is State.PREPARING and len(group.members) == 2
    harness.kill()
    assert [member.id for member in group_of(harness).members] == [joined.member_id]
    assert group_of(harness).phase is State.STABLE


def member(member_id: str, **fields: object) -> MemberMetadata:
    values: dict[str, object] = {
        "member_id": member_id,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 60_000,
        "session_timeout": 10_000,
        "subscription": b"s",
        "assignment": b"a",
    }
    return MemberMetadata(**values | fields)  # type: ignore[arg-type]


def value(*members: MemberMetadata, **fields: object) -> GroupMetadataValue:
    values: dict[str, object] = {
        "protocol_type": "consumer",
        "generation": 7,
        "protocol": "range",
        "leader": members[-1].member_id if members else None,
        "members": list(members),
    }
    return GroupMetadataValue(**values | fields)  # type: ignore[arg-type]


def replay(harness: Harness, *values: GroupMetadataValue | None, version: int = 3) -> GroupShard:
    """Return a shard that was loaded from the given records."""
    here: GroupShard = shards(harness)._make(shard(harness).log.leading)
    for one in values:
        key, encoded = encode(GroupMetadataKey(group="g"), one, version)
        here.replay(key, encoded, NON_TRANSACTIONAL)
    here.on_loaded(harness.now)
    return here


def shards(harness: Harness) -> Shards[GroupShard]:
    return harness.broker.groups.shards


@pytest.mark.parametrize("version", range(5))
def test_records_of_every_version_are_read(harness: Harness, version: int) -> None:
    here = replay(harness, value(member("a"), member("b", group_instance_id="i")), version=version)
    group = here.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, group.protocol_name, group.members.leader) == ("Stable", 7, "range", "b")
    first, second = group.members
    assert (first.client_id, first.client_host, first.assignment) == ("c", "/h", b"a")
    assert first.rebalance_timeout_ms == (60_000 if version >= 1 else first.session_timeout_ms)
    assert second.instance_id == ("i" if version >= 3 else None)


def test_last_record_replaces_earlier_ones(harness: Harness) -> None:
    here = replay(harness, value(member("a"), member("b")), value(member("c"), generation=8))
    group = here.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert [one.id for one in group.members] == ["c"] and group.generation == 8
    assert replay(harness, value(member("a")), None).groups == {}
    assert replay(harness, None).groups == {}
    emptied = replay(harness, value(member("a")), value(protocol=None, generation=8)).groups["g"]
    assert emptied.is_empty and emptied.protocol_type == "consumer"


def test_inconsistent_group_record_is_repaired(harness: Harness) -> None:
    twice = value(member("a"), member("a"), member("b", group_instance_id="i"), member("c", group_instance_id="i"))
    twice.leader = "somebody"
    group = replay(harness, twice).groups["g"]
    assert isinstance(group, ClassicGroup)
    assert [one.id for one in group.members] == ["a", "b"] and group.members.leader == "a"


# Written by Apache Kafka 4.3.0: a new group, a group with a static member, and a group after its last leave.
MADE = "0003000000000000ffffffff000001a200e6d80900000000"
STABLE = (
    "00030008636f6e73756d6572000000030006737469636b790026692d37333030633163622d323230612d346666392d396135652d66656532"
    "6431316662336634000001a200e6dfb5000000010026692d37333030633163622d323230612d346666392d396135652d666565326431"
    "316662336634000169000161000a2f3132372e302e302e310000ea600000271000000011000100000001000174ffffffff0000000000"
    "00000133"
)
LEFT = "00030008636f6e73756d657200000004ffffffff000001a200e6e12300000000"


@pytest.mark.parametrize(
    ("written", "state", "generation"), [(MADE, "Empty", 0), (STABLE, "Stable", 3), (LEFT, "Empty", 4)]
)
def test_group_records_match_apache_kafka(harness: Harness, written: str, state: str, generation: int) -> None:
    key, encoded = bytes.fromhex("0002000167"), bytes.fromhex(written)
    here: GroupShard = shards(harness)._make(shard(harness).log.leading)
    here.replay(key, encoded, NON_TRANSACTIONAL)
    group = here.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation) == (state, generation)
    metadata = value_of(group.stored_generation(), group.members, {one.id: one.assignment for one in group.members})
    assert encode(GroupMetadataKey(group="g"), metadata, 3) == (key, encoded)
    assert group.is_subscribed_to(TopicName("t")) == (state == "Stable")


def test_loaded_members_get_a_full_session(harness: Harness) -> None:
    harness.pass_time(50_000)
    here = replay(harness, value(member("a"), member("b", session_timeout=20_000)))
    group = here.groups["g"]
    assert isinstance(group, ClassicGroup)
    harness.pass_time(9_999)
    assert group.state == "Stable"
    harness.pass_time(1)
    assert group.state == "PreparingRebalance" and [one.id for one in group.members] == ["b"]


def test_group_above_the_maximum_size_rebalances_after_a_restart(tmp_path: Path) -> None:
    harness = coordinator(tmp_path, group_max_size="1")
    group = replay(harness, value(member("a"), member("b"))).groups["g"]
    assert group.state == "PreparingRebalance"


def test_failed_write_of_an_assignment_rejects_all_members(harness: Harness) -> None:
    """No member gets an assignment that is not stored."""
    joined = join(harness)
    harness.broker.partitions[shard(harness).log.name].take_offline()
    group = group_of_offline(harness)
    assert sync(harness, joined).error_code == ErrorCode.NOT_COORDINATOR
    assert group.phase is State.DEAD


def group_of_offline(harness: Harness) -> ClassicGroup:
    (here,) = list(harness.broker.groups.shards)
    group = here.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def test_oversized_assignment_is_refused_for_all_members(harness: Harness) -> None:
    joined = join(harness)
    huge = b"x" * (2 << 20)
    answer = sync(
        harness, joined, assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=huge)]
    )
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    group = group_of(harness)
    assert group.phase is State.PREPARING and "failed to write" in group.rebalances[-1].reason
    assert join(harness, member_id=joined.member_id).generation_id == 2
    assert sync(harness, join(harness, member_id=joined.member_id)).error_code == ErrorCode.NONE


def test_failed_write_of_a_static_replacement_changes_nothing(harness: Harness) -> None:
    old = join(harness, 5, group_instance_id="i")
    assert sync(harness, old).error_code == ErrorCode.NONE
    group = group_of(harness)
    large = [JoinGroupRequestProtocol(name="range", metadata=b"x" * (2 << 20))]
    assert join(harness, 5, group_instance_id="i", protocols=large).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [member.id for member in group.members] == [old.member_id] == [group.members.leader]
    assert group.phase is State.STABLE and bytes(sync(harness, old).assignment) == b"all"


# States.


def test_every_state_is_reachable_and_can_end() -> None:
    assert all(events.get(Event.REMOVED) is State.DEAD for events in NEXT.values())
    reached = {state for events in NEXT.values() for state in events.values()}
    assert reached == set(State)
