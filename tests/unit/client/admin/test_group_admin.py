"""Groups listed, described and deleted, with brokers of all versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.client.admin.group_admin import GroupDescription, delete_groups, describe_groups, list_groups
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse, Unsupported
from odradek.client.consumer.group_messages import encode_share, protocols
from odradek.wire.messages import consumer_group_describe as modern
from odradek.wire.messages import describe_groups as classic
from odradek.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = pytest.mark.waits


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        ScriptedCoordinator(scripted)
        yield scripted


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    with Cluster(ClientConfig(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000)) as connected:
        yield connected


def at(topic: str, index: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), index)


def lists(broker: ScriptedBroker, *errors: ErrorCode) -> None:
    groups = [
        ListedGroup(group_id="b", protocol_type="consumer", group_state="Stable", group_type="consumer"),
        ListedGroup(group_id="a", protocol_type="connect", group_state="Empty", group_type="classic"),
    ]
    waiting = list(errors)

    def answer(request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        code = waiting.pop(0) if waiting else 0
        return ListGroupsResponse(error_code=code, groups=[] if code else groups)

    broker.on(ListGroupsRequest, answer)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_groups_are_listed_in_every_version(broker: ScriptedBroker, cluster: Cluster, version: int) -> None:
    lists(broker, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.versions[ApiKey.LIST_GROUPS] = (0, version)
    first, second = list_groups(cluster)
    assert (first.group, second.group, first.coordinator) == ("a", "b", 1)
    assert first.state == ("Empty" if version >= 4 else "")
    assert second.type == ("consumer" if version >= 5 else "classic")
    if version < 4:
        with pytest.raises(Unsupported, match=r"older than Kafka 2\.6"):
            list_groups(cluster, states=["Stable"])
    else:
        list_groups(cluster, states=["Stable"], types=["consumer"])
        assert broker.seen[-1].states_filter == ["Stable"]
        assert broker.seen[-1].types_filter == (["consumer"] if version >= 5 else [])


def test_group_types_are_filtered_by_the_client(broker: ScriptedBroker, cluster: Cluster) -> None:
    lists(broker)
    assert [each.group for each in list_groups(cluster, types=["Consumer"])] == ["b"]


def a_member() -> classic.DescribedGroupMember:
    return classic.DescribedGroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/10.0.0.1",
        member_metadata=bytes(protocols(["t", "s"])[0].metadata),
        member_assignment=encode_share([at("t", 1), at("t", 0)]),
    )


def a_group(
    *,
    code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
    state: str = "Stable",
    protocol: str = "consumer",
    members: Sequence[classic.DescribedGroupMember] | None = None,
    rebalances: Sequence[classic.DescribedRebalance] = (),
) -> classic.DescribedGroup:
    return classic.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id="g",
        group_state=state,
        protocol_type=protocol,
        protocol_data="range",
        members=[a_member()] if members is None else list(members),
        rebalances=list(rebalances),
    )


def describes_classic(broker: ScriptedBroker, group: classic.DescribedGroup) -> None:
    broker.on(classic.DescribeGroupsRequest, lambda request, version: classic.DescribeGroupsResponse(groups=[group]))


def has_no_consumer_group(broker: ScriptedBroker, code: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> None:
    def answer(request: modern.ConsumerGroupDescribeRequest, version: int) -> modern.ConsumerGroupDescribeResponse:
        groups = [
            modern.DescribedGroup(
                error_code=code,
                error_message="it said so",
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group in request.group_ids
        ]
        return modern.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    broker.on(modern.ConsumerGroupDescribeRequest, answer)


@pytest.mark.parametrize("has_modern", [False, True])
@pytest.mark.parametrize("version", [0, 3, 4, 5, 6])
def test_classic_group_is_described(broker: ScriptedBroker, cluster: Cluster, version: int, has_modern: bool) -> None:
    has_no_consumer_group(broker)
    describes_classic(broker, a_group())
    broker.versions[ApiKey.DESCRIBE_GROUPS] = (0, version)
    if not has_modern:
        del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    group = describe_groups(cluster, ["g"])["g"]
    assert isinstance(group, GroupDescription)
    assert (group.type, group.state, group.assignor, group.coordinator.port) == (
        "classic",
        "Stable",
        "range",
        broker.port,
    )
    (member,) = group.members
    assert (member.member_id, member.client_id, member.host) == ("m", "c", "10.0.0.1")
    assert member.instance_id == ("i" if version >= 4 else None)
    assert member.assignment == (at("t", 0), at("t", 1))
    assert member.topics == ("s", "t")
    assert group.is_active


def test_metadata_of_other_protocol_types_is_not_decoded(broker: ScriptedBroker, cluster: Cluster) -> None:
    has_no_consumer_group(broker)
    describes_classic(broker, a_group(protocol="connect"))
    group = describe_groups(cluster, ["g"])["g"]
    assert isinstance(group, GroupDescription)
    assert (group.members[0].assignment, group.members[0].topics) == (None, None)


def test_undecodable_member_metadata_is_accepted(broker: ScriptedBroker, cluster: Cluster) -> None:
    has_no_consumer_group(broker)
    member = classic.DescribedGroupMember(
        member_id="m", client_id="c", client_host="h", member_metadata=b"\xff", member_assignment=b"\x00\x00\x7f"
    )
    describes_classic(broker, a_group(members=[member]))
    group = describe_groups(cluster, ["g"])["g"]
    assert isinstance(group, GroupDescription)
    assert (group.members[0].assignment, group.members[0].topics) == (None, None)


@pytest.mark.parametrize(
    "described",
    [
        a_group(state="Dead", protocol="", members=[]),
        a_group(code=ErrorCode.GROUP_ID_NOT_FOUND, message="Group g not found.", state="Dead", members=[]),
    ],
)
def test_missing_group_is_reported(broker: ScriptedBroker, cluster: Cluster, described: classic.DescribedGroup) -> None:
    """Before version 6 its state is Dead."""
    has_no_consumer_group(broker)
    describes_classic(broker, described)
    outcome = describe_groups(cluster, ["g"])["g"]
    assert str(outcome) == "group g: the group does not exist (GROUP_ID_NOT_FOUND)"


def test_rebalance_reasons_are_described_if_available(broker: ScriptedBroker, cluster: Cluster) -> None:
    has_no_consumer_group(broker)
    last = classic.DescribedRebalance(at_ms=1_000, generation=7, reason="member m left")
    describes_classic(broker, a_group(rebalances=[last]))
    group = describe_groups(cluster, ["g"])["g"]
    assert isinstance(group, GroupDescription)
    assert group.rebalances == ((1_000, 7, "member m left"),)
    assert all(request.include_rebalances for request in broker.seen[-2:])


def test_consumer_protocol_group_is_described(broker: ScriptedBroker, cluster: Cluster) -> None:
    def part(index: int) -> modern.Assignment:
        topic = modern.TopicPartitions(topic_id=ZERO_UUID, topic_name="t", partitions=[index])
        return modern.Assignment(topic_partitions=[topic])

    def answer(request: modern.ConsumerGroupDescribeRequest, version: int) -> modern.ConsumerGroupDescribeResponse:
        member = modern.Member(
            member_id="m",
            member_epoch=3,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex="t.*",
            assignment=part(0),
            target_assignment=part(1),
            member_type=1,
        )
        group = modern.DescribedGroup(
            error_code=0,
            group_id="g",
            group_state="Reconciling",
            group_epoch=4,
            assignment_epoch=3,
            assignor_name="uniform",
            members=[member],
        )
        return modern.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[group])

    broker.on(modern.ConsumerGroupDescribeRequest, answer)
    group = describe_groups(cluster, ["g"])["g"]
    assert isinstance(group, GroupDescription)
    assert (group.type, group.state, group.epoch, group.assignment_epoch) == ("consumer", "Reconciling", 4, 3)
    (member,) = group.members
    assert (member.assignment, member.target) == ((at("t", 0),), (at("t", 1),))
    assert (member.epoch, member.pattern, member.is_classic) == (3, "t.*", False)


def test_consumer_protocol_error_is_returned(broker: ScriptedBroker, cluster: Cluster) -> None:
    has_no_consumer_group(broker, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    outcome = describe_groups(cluster, ["g"])["g"]
    assert isinstance(outcome, ErrorResponse)
    assert outcome.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_groups_are_deleted_individually(broker: ScriptedBroker, cluster: Cluster) -> None:
    outcomes = {"busy": ErrorCode.NON_EMPTY_GROUP, "gone": ErrorCode.GROUP_ID_NOT_FOUND, "empty": ErrorCode.NONE}

    def answer(request: DeleteGroupsRequest, version: int) -> DeleteGroupsResponse:
        results = [DeletableGroupResult(group_id=name, error_code=outcomes[name]) for name in request.groups_names]
        return DeleteGroupsResponse(throttle_time_ms=0, results=results)

    broker.on(DeleteGroupsRequest, answer)
    found = delete_groups(cluster, outcomes)
    assert found["empty"] is None
    assert "stop its consumers first" in str(found["busy"])
    assert "the group does not exist" in str(found["gone"])
