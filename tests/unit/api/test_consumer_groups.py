"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: checks, their order, and responses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from odradek.api.request.repeated_names import REPEATS_MAX
from odradek.base.errors import ErrorCode
from odradek.base.uuids import from_text
from odradek.core.groups.consumer.heartbeating import SUBSCRIBED_TOPICS_MAX
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from support.consumer_group import Consumers, owned

TIMES_MAX = REPEATS_MAX + 1

INVALID, UNSUPPORTED_ASSIGNOR = ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_ASSIGNOR
JOINS: dict[str, object] = {"rebalance_timeout_ms": 1000, "topic_partitions": [], "subscribed_topic_names": ["t"]}


@pytest.fixture
def broker(tmp_path: Path) -> Consumers:
    made = Consumers(tmp_path)
    made.create("t", 2)
    return made


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        ("", 0, JOINS, INVALID),
        (" ", 0, JOINS, INVALID),
        ("a", 0, JOINS | {"group_id": ""}, INVALID),
        ("a", 0, JOINS | {"instance_id": ""}, INVALID),
        ("a", 0, JOINS | {"rack_id": " "}, INVALID),
        ("a", 0, JOINS | {"rebalance_timeout_ms": -1}, INVALID),
        ("a", 0, JOINS | {"topic_partitions": None}, INVALID),
        ("a", 0, JOINS | {"topic_partitions": owned(from_text("AAAAAAAAAAAAAAAAAAAAAQ"), 0)}, INVALID),
        ("a", 0, JOINS | {"subscribed_topic_names": None}, INVALID),
        ("a", 0, JOINS | {"subscribed_topic_names": [*map(str, range(SUBSCRIBED_TOPICS_MAX + 1))]}, INVALID),
        ("a", -2, {}, INVALID),
        ("a", -3, {}, INVALID),
        ("a", 0, JOINS | {"server_assignor": "sticky"}, UNSUPPORTED_ASSIGNOR),
        ("a", 0, JOINS | {"server_assignor": ""}, UNSUPPORTED_ASSIGNOR),
        ("a", 7, {"server_assignor": "sticky"}, UNSUPPORTED_ASSIGNOR),
        ("a", 0, JOINS | {"subscribed_topic_regex": "(t"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("a", 1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("a", -1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("a", -2, {"instance_id": "i"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_refused_heartbeat_creates_no_group(
    broker: Consumers, member_id: str, epoch: int, fields: dict[str, object], code: ErrorCode
) -> None:
    answer = broker.beat(member_id, epoch, **fields)  # type: ignore[arg-type]
    assert answer.error_code == code
    assert answer.error_message
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
    assert answer.assignment is None
    assert broker.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_regex_subscriptions_are_refused_without_re2(broker: Consumers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    refused = broker.join("a", subscribed_topic_regex="t.*")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message is not None
    assert "the broker lacks the extra regex: re2 is not installed: " in refused.error_message
    joined = broker.join("b", "t")
    assert joined.assignment is not None
    assert broker.named(joined.assignment.topic_partitions) == {"t": [0, 1]}


def test_version_0_join_returns_a_member_id(broker: Consumers) -> None:
    joined = broker.join("", "t", version=0)
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id is not None
    assert len(from_text(joined.member_id)) == 16
    assert broker.beat(joined.member_id, joined.member_epoch, version=0).error_code == ErrorCode.NONE
    assert broker.beat("", 2, version=0).error_code == INVALID
    assert broker.beat("", -1, version=0).error_code == INVALID


def test_join_response_has_epoch_and_assignment(broker: Consumers) -> None:
    joined = broker.join("a", "t")
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("a", 2, 5000)
    assert joined.assignment is not None
    assert broker.named(joined.assignment.topic_partitions) == {"t": [0, 1]}


def test_full_heartbeat_returns_the_full_assignment(broker: Consumers) -> None:
    topic = broker.broker.view.topics["t"].id  # type: ignore[index]
    broker.join("a", "t")
    assert broker.beat("a", 2).assignment is None
    assert broker.beat("a", 2, topic_partitions=owned(topic, 0, 1)).assignment is None
    full = JOINS | {"topic_partitions": owned(topic, 0, 1)}
    assignment = broker.beat("a", 2, **full).assignment  # type: ignore[arg-type]
    assert assignment is not None
    assert broker.named(assignment.topic_partitions) == {"t": [0, 1]}


def test_owned_topic_may_be_repeated_in_a_heartbeat(broker: Consumers) -> None:
    topic = broker.broker.view.topics["t"].id  # type: ignore[index]
    broker.join("a", "t")
    broker.join("b", "t")
    assert broker.beat("a", 2, topic_partitions=owned(topic, 0) + owned(topic, 1)).member_epoch == 2, "gives up one"
    assert broker.beat("a", 2, topic_partitions=owned(topic) + owned(topic, 0)).member_epoch == 3


def test_leave_response_has_no_assignment(broker: Consumers) -> None:
    broker.join("a", "t")
    left = broker.beat("a", -1)
    assert (left.error_code, left.member_id, left.member_epoch, left.heartbeat_interval_ms) == (0, "a", -1, 0)
    assert left.assignment is None
    assert broker.describe().group_state == "Empty"


def test_disabled_consumer_protocol_is_refused(tmp_path: Path) -> None:
    broker = Consumers(tmp_path, group_coordinator_rebalance_protocols="classic")
    assert broker.join("a", "t").error_code == ErrorCode.UNSUPPORTED_VERSION


def test_assignors_can_be_configured_by_class_name(tmp_path: Path) -> None:
    classes = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    broker = Consumers(tmp_path, group_consumer_assignors=classes)
    assert broker.join("a", "t", server_assignor="uniform").error_code == UNSUPPORTED_ASSIGNOR
    assert broker.join("a", "t", server_assignor="range").error_code == ErrorCode.NONE
    assert broker.describe().assignor_name == "range"


def test_describe_returns_the_group_and_its_members(broker: Consumers) -> None:
    broker.join("a", "t", instance_id="i", rack_id="r", subscribed_topic_regex="t.*")
    group = broker.describe()
    assert (group.error_code, group.error_message) == (0, None)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "i", "r", 2)
    assert (member.client_id, member.client_host) == ("tests", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([], "t.*")
    (part,) = member.assignment.topic_partitions
    assert (part.topic_name, part.partitions) == ("t", [0, 1])
    assert member.assignment == member.target_assignment
    assert member.member_type == 1
    assert broker.describe(version=0).members[0].member_type == -1


def test_describe_has_an_error_code_per_group(broker: Consumers) -> None:
    broker.join("a", "t")
    request = ConsumerGroupDescribeRequest(group_ids=["", "g", "x"], include_authorized_operations=True)
    groups = broker.request(request, 1, ConsumerGroupDescribeResponse).groups
    codes = [ErrorCode.INVALID_GROUP_ID, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [group.error_code for group in groups] == codes
    assert [group.authorized_operations for group in groups] == [-(1 << 31), 3400, -(1 << 31)]


def test_describe_limits_repetitions_of_a_group(broker: Consumers) -> None:
    broker.join("a", "t")
    for count, code in ((TIMES_MAX, ErrorCode.NONE), (TIMES_MAX + 1, INVALID)):
        request = ConsumerGroupDescribeRequest(group_ids=["g"] * count, include_authorized_operations=False)
        groups = broker.request(request, 1, ConsumerGroupDescribeResponse).groups
        assert [group.error_code for group in groups] == [code] * count


def test_groups_are_listed_with_their_states(broker: Consumers) -> None:
    broker.join("a", "t")
    broker.join("b", "t")
    request = ListGroupsRequest(states_filter=["reconciling"], types_filter=["Consumer"])
    (listed,) = broker.request(request, 5, ListGroupsResponse).groups
    assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    assert (listed.group_state, listed.group_type) == ("Reconciling", "consumer")


def test_coordinator_with_a_failed_disk_returns_not_coordinator(broker: Consumers) -> None:
    broker.join("a", "t")
    for partition in broker.broker.partitions.values():
        partition.take_offline()
    assert broker.beat("a", 2).error_code == ErrorCode.NOT_COORDINATOR
    assert broker.describe().error_code == ErrorCode.NOT_COORDINATOR
