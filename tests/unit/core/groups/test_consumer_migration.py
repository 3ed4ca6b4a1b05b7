"""Migration between the classic and the consumer protocol: obstacles, and invalid data of members."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.record.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from odradek.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.consumer_group import GROUP, Consumers

Protocols = dict[str, bytes]
GARBAGE = [b"", b"\0", b"\xff\xff", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\1t"]
SUBSCRIPTION = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 1)


class Classic:
    """A classic member without an instance id."""

    def __init__(self, broker: Consumers, protocols: Protocols | None = None, kind: str = "consumer") -> None:
        self.broker = broker
        self.protocols = protocols or {"range": SUBSCRIPTION}
        self.kind = kind
        self.id = ""
        self.generation = -1

    def join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=self.id,
            protocol_type=self.kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()],
        )
        answer = self.broker.request(request, 9, JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            return self.join()
        self.generation = answer.generation_id
        return answer

    def sync(self, assignment: bytes = b"") -> SyncGroupResponse:
        mine = SyncGroupRequestAssignment(member_id=self.id, assignment=assignment)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type=self.kind,
            protocol_name=next(iter(self.protocols)),
            assignments=[mine] if assignment else [],
        )
        return self.broker.request(request, 5, SyncGroupResponse)

    def heartbeat(self, generation: int | None = None) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation if generation is None else generation, member_id=self.id
        )
        return self.broker.request(request, 4, HeartbeatResponse).error_code


@pytest.fixture
def broker(tmp_path: Path) -> Consumers:
    made = Consumers(tmp_path, group_initial_rebalance_delay_ms="0")
    made.create("t", 2)
    return made


def assigned(*partitions: int, topic: str = "t", user_data: bytes | None = None) -> bytes:
    listed = [TopicPartition(topic=topic, partitions=list(partitions))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=listed, user_data=user_data), 1)


def describe_classic(broker: Consumers) -> DescribedGroup:
    (group,) = broker.request(DescribeGroupsRequest(groups=[GROUP]), 6, DescribeGroupsResponse).groups
    return group


@pytest.mark.parametrize(
    "assignment", [assigned(0, user_data=b"mine"), *(garbage for garbage in GARBAGE if garbage)], ids=repr
)
def test_classic_assignment_with_user_data_prevents_the_upgrade(broker: Consumers, assignment: bytes) -> None:
    old = Classic(broker)
    old.join()
    old.sync(assignment)
    joined = broker.join("n", "t")
    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert joined.error_message
    assert old.heartbeat() == ErrorCode.NONE
    assert describe_classic(broker).group_state == "Stable"


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_unreadable_classic_subscription_prevents_the_upgrade(broker: Consumers, garbage: bytes) -> None:
    old = Classic(broker, {"range": garbage})
    old.join()
    old.sync(assigned(0))
    assert broker.join("n", "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert old.heartbeat() == ErrorCode.NONE


def test_group_of_another_type_is_not_upgraded(broker: Consumers) -> None:
    old = Classic(broker, {"v1": b"x"}, kind="connect")
    old.join()
    old.sync(b"x")
    assert broker.join("n", "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert old.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize(
    ("policy", "is_upgraded"), [("Upgrade", True), ("bidirectional", True), ("DOWNGRADE", False), ("disabled", False)]
)
def test_migration_policy_decides_on_upgrade_and_downgrade(tmp_path: Path, policy: str, is_upgraded: bool) -> None:
    settings = {"group_initial_rebalance_delay_ms": "0", "group_consumer_migration_policy": policy}
    broker = Consumers(tmp_path, **settings)
    broker.create("t", 2)
    old = Classic(broker)
    old.join()
    old.sync(assigned(0, 1))
    joined = broker.join("n", "t").error_code
    assert joined == (ErrorCode.NONE if is_upgraded else ErrorCode.GROUP_ID_NOT_FOUND)
    if is_upgraded:
        broker.beat("n", -1)
        is_classic = broker.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert is_classic == (policy == "bidirectional")


def test_group_too_large_for_the_other_protocol_is_not_downgraded(tmp_path: Path) -> None:
    settings = {"group_initial_rebalance_delay_ms": "0", "group_max_size": "1", "group_consumer_max_size": "3"}
    broker = Consumers(tmp_path, **settings)
    broker.create("t", 2)
    members = [Classic(broker), Classic(broker)]
    assert broker.join("n", "t").error_code == ErrorCode.NONE
    for member in members:
        assert member.join().error_code == ErrorCode.NONE
        assert member.sync().error_code == ErrorCode.NONE
    broker.beat("n", -1)
    assert {one.member_id for one in broker.describe().members} == {member.id for member in members}


def test_next_assignment_corrects_partitions_that_do_not_exist(broker: Consumers) -> None:
    """A classic leader may assign partitions and topics that do not exist."""
    old = Classic(broker)
    old.join()
    old.sync(assigned(0, 1, 7))
    assert broker.join("n", "t").error_code == ErrorCode.NONE
    targets = {
        index
        for one in broker.describe().members
        for part in one.target_assignment.topic_partitions
        for index in part.partitions
    }
    assert targets == {0, 1}


def test_classic_assignment_of_a_deleted_topic_is_dropped(broker: Consumers) -> None:
    old = Classic(broker)
    old.join()
    old.sync(assigned(0, topic="gone"))
    assert broker.join("n", "t").error_code == ErrorCode.NONE
    assert {len(one.assignment.topic_partitions) for one in broker.describe().members} == {0, 1}


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_classic_member_with_an_unreadable_subscription_is_refused(broker: Consumers, garbage: bytes) -> None:
    broker.join("n", "t")
    answer = Classic(broker, {"range": garbage}).join()
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(broker.describe().members) == 1


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_only_the_first_protocol_of_a_classic_member_is_read(broker: Consumers, garbage: bytes) -> None:
    """After a downgrade the group may therefore use a protocol with an unreadable subscription."""
    broker.join("n", "t")
    first = Classic(broker, {"range": SUBSCRIPTION, "odd": garbage})
    second = Classic(broker, {"odd": garbage, "range": SUBSCRIPTION})
    assert first.join().error_code == ErrorCode.NONE
    assert second.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    third = Classic(broker, {"odd": SUBSCRIPTION})
    assert third.join().error_code == ErrorCode.NONE
    broker.beat("n", -1)
    group = describe_classic(broker)
    assert (group.group_state, len(group.members)) == ("PreparingRebalance", 2)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_assignment_has_the_version_of_the_subscription(broker: Consumers, version: int) -> None:
    data = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), min(version, 3))
    broker.join("n")
    old = Classic(broker, {"range": version.to_bytes(2, "big") + data[2:]})
    assert old.join().error_code == ErrorCode.NONE
    answer = bytes(old.sync().assignment)
    assert int.from_bytes(answer[:2], "big") == min(version, 3)
    assert decode_assignment(answer).assigned_partitions == [TopicPartition(topic="t", partitions=[0, 1])]


def test_classic_members_of_an_upgraded_group_are_checked(broker: Consumers) -> None:
    broker.join("n", "t")
    old = Classic(broker)
    assert old.join().error_code == ErrorCode.NONE
    assert old.heartbeat(generation=9) == ErrorCode.ILLEGAL_GENERATION
    old.protocols = {"other": SUBSCRIPTION}
    assert old.sync().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert old.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    old.id = "n"
    assert old.heartbeat(generation=2) == ErrorCode.UNKNOWN_MEMBER_ID  # The member uses the other protocol.
    old.id = "x"
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert old.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_members_of_either_protocol(broker: Consumers) -> None:
    broker.join("n", "t")
    broker.join("s", "t", instance_id="i")
    old = Classic(broker)
    old.join()
    removed = [
        MemberIdentity(member_id="n"),
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id="x", group_instance_id="i"),
        MemberIdentity(member_id="x"),
    ]
    answer = broker.request(LeaveGroupRequest(group_id=GROUP, members=removed), 5, LeaveGroupResponse)
    assert [one.error_code for one in answer.members] == [0, 0, 25, 82, 25]
    assert [member.member_id for member in describe_classic(broker).members] == [old.id]
