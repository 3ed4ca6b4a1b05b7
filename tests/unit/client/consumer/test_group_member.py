"""One member with a coordinator that returns errors."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse, KafkaUnavailable, Unsupported
from odradek.client.consumer.group_member import GroupMember
from odradek.client.consumer.group_messages import decode_partitions
from odradek.client.consumer.group_offsets import Committed
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = [pytest.mark.slow, pytest.mark.waits]

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        scripted.topics["t"] = 2
        yield scripted


@pytest.fixture
def coordinator(broker: ScriptedBroker) -> ScriptedCoordinator:
    return ScriptedCoordinator(broker)


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    config = ClientConfig(broker.address, retry_backoff_ms=1, retry_backoff_max_ms=5, api_timeout_ms=500)
    with Cluster(config) as connected:
        yield connected


def member_of(cluster: Cluster, *, instance_id: str | None = None, heartbeat_ms: int = 0) -> GroupMember:
    """Return a member whose heartbeats are always due unless the test sets an interval."""
    return GroupMember(cluster, "g", ["t"], instance_id=instance_id, heartbeat_interval_ms=heartbeat_ms)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5, 6, 9])
def test_member_joins_and_leaves_in_every_version(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster, version: int
) -> None:
    broker.versions[ApiKey.JOIN_GROUP] = (0, version)
    for api in (ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP):
        broker.versions[api] = (0, min(version, 5))
    broker.versions[ApiKey.HEARTBEAT] = (0, min(version, 4))
    member = member_of(cluster)
    assert member.keep_alive()
    assert member.assignment == (T0, T1)
    assert (member.member_id, member.generation) == ("member-1", 1)
    assert not member.keep_alive(), "a heartbeat that all is well changes nothing"
    joins = coordinator.seen(JoinGroupRequest)
    assert [request.member_id for request in joins] == (["", "member-1"] if version >= 4 else [""])
    member.leave()
    (left,) = coordinator.seen(LeaveGroupRequest)
    assert left.member_id or left.members[0].member_id == "member-1"
    assert not member.assignment
    assert member.generation == -1


def test_heartbeats_are_sent_when_they_are_due(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    member = member_of(cluster, heartbeat_ms=60_000)
    member.keep_alive()
    assert 50_000 < member.heartbeat_due_ms() <= 60_000
    member.keep_alive()
    assert coordinator.seen(HeartbeatRequest) == []


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_rebalance_is_joined_with_the_same_member_id(
    coordinator: ScriptedCoordinator, cluster: Cluster, code: ErrorCode
) -> None:
    member = member_of(cluster)
    member.keep_alive()
    coordinator.errors[HeartbeatRequest] = [code]
    coordinator.others["other"] = ["t"]
    assert member.keep_alive()
    assert (member.member_id, member.generation, member.assignment) == ("member-1", 2, (T0,))
    assert coordinator.seen(JoinGroupRequest)[-1].member_id == "member-1"
    assert code.name in coordinator.seen(JoinGroupRequest)[-1].reason


def test_unknown_member_rejoins_as_a_new_one(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    member = member_of(cluster)
    member.keep_alive()
    coordinator.errors[HeartbeatRequest] = [ErrorCode.UNKNOWN_MEMBER_ID]
    assert member.keep_alive()
    assert member.member_id == "member-2"
    assert [request.member_id for request in coordinator.seen(JoinGroupRequest)][2:] == ["", "member-2"]


@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize(
    "codes",
    [
        [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3,
        [ErrorCode.NOT_COORDINATOR] * 2,
        [ErrorCode.COORDINATOR_NOT_AVAILABLE],
        [ErrorCode.REBALANCE_IN_PROGRESS] * 3,
        [ErrorCode.UNKNOWN_MEMBER_ID],
        [ErrorCode.ILLEGAL_GENERATION],
        [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS],
    ],
)
def test_joining_is_retried_on_transient_errors(
    coordinator: ScriptedCoordinator, cluster: Cluster, request_type: type, codes: list[ErrorCode]
) -> None:
    coordinator.errors[request_type] = list(codes)
    member = member_of(cluster)
    assert member.keep_alive()
    assert member.assignment == (T0, T1)
    assert coordinator.errors[request_type] == []
    moved = sum(code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE) for code in codes)
    assert len(coordinator.seen(FindCoordinatorRequest)) == 1 + moved


@pytest.mark.parametrize(
    ("request_type", "code"),
    [
        (JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (JoinGroupRequest, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (JoinGroupRequest, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (SyncGroupRequest, ErrorCode.FENCED_INSTANCE_ID),
        (HeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_fatal_error_is_raised(
    coordinator: ScriptedCoordinator, cluster: Cluster, request_type: type, code: ErrorCode
) -> None:
    coordinator.errors[request_type] = [code]
    member = member_of(cluster, instance_id="i")
    with pytest.raises(ErrorResponse, match=rf"group g: .* \({code.name}\)"):
        for _ in range(2):
            member.keep_alive()


def test_heartbeats_resume_after_a_coordinator_outage(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    member = member_of(cluster)
    member.keep_alive()
    answers: list[object] = [HangUp(), HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]

    def answer(request: HeartbeatRequest, version: int) -> object:
        following = answers.pop(0) if answers else HeartbeatResponse(error_code=0)
        if isinstance(following, Exception):
            raise following
        return following

    broker.on(HeartbeatRequest, answer)
    time.sleep(0.6)  # Longer than api_timeout_ms, as when the process is stopped, which alone is not a failure.
    for _ in range(4):
        assert not member.keep_alive(), "nothing is lost yet"
    assert (member.generation, member.assignment) == (1, (T0, T1))


def test_permanent_coordinator_outage_is_raised(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    member = member_of(cluster)
    member.keep_alive()
    broker.__exit__(None, None, None)
    with pytest.raises(KafkaUnavailable):
        for _ in range(1_000):
            member.keep_alive()


def test_leader_assigns_partitions_to_all_members(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    coordinator.others = {"another": ["t"], "elsewhere": ["u"]}
    member = member_of(cluster)
    member.keep_alive()
    (sync,) = coordinator.seen(SyncGroupRequest)
    shares = {each.member_id: decode_partitions(bytes(each.assignment)) for each in sync.assignments}
    assert shares == {"another": (T0,), "elsewhere": (), "member-1": (T1,)}
    assert member.assignment == (T1,)


def test_leader_rejoins_when_a_topic_gains_partitions(broker: ScriptedBroker, coordinator: ScriptedCoordinator) -> None:
    config = ClientConfig(broker.address, retry_backoff_ms=1, api_timeout_ms=500, metadata_max_age_ms=0)
    with Cluster(config) as cluster:
        member = member_of(cluster, heartbeat_ms=60_000)
        member.keep_alive()
        assert not member.keep_alive()
        broker.topics["t"] = 3
        assert member.keep_alive()
    assert [each.partition for each in member.assignment] == [0, 1, 2]
    assert "partition count" in coordinator.seen(JoinGroupRequest)[-1].reason


def test_commits_contain_member_and_generation(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    member = member_of(cluster, instance_id="i")
    member.keep_alive()
    assert member.commit({T0: Committed(5)})
    assert member.commit({}), "nothing to commit, nothing asked"
    (commit,) = coordinator.seen(OffsetCommitRequest)
    assert (commit.member_id, commit.generation_id_or_member_epoch, commit.group_instance_id) == ("member-1", 1, "i")
    assert coordinator.committed == {("t", 0): 5}


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_rejected_commit_returns_false(coordinator: ScriptedCoordinator, cluster: Cluster, code: ErrorCode) -> None:
    member = member_of(cluster)
    member.keep_alive()
    coordinator.errors[OffsetCommitRequest] = [code]
    assert not member.commit({T0: Committed(5)})
    assert not member.commit({T0: Committed(5)}), "nor before it has joined again"
    assert coordinator.committed == {}
    assert len(coordinator.seen(OffsetCommitRequest)) == 1
    assert member.keep_alive(), "it joins again"
    assert member.member_id == ("member-2" if code == ErrorCode.UNKNOWN_MEMBER_ID else "member-1")
    assert member.commit({T0: Committed(5)})


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_commit_is_retried_on_coordinator_errors(
    coordinator: ScriptedCoordinator, cluster: Cluster, code: ErrorCode
) -> None:
    member = member_of(cluster)
    member.keep_alive()
    coordinator.errors[OffsetCommitRequest] = [code] * 2
    assert member.commit({T0: Committed(5)})
    assert coordinator.committed == {("t", 0): 5}


def test_fenced_commit_is_raised(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    member = member_of(cluster, instance_id="i")
    member.keep_alive()
    coordinator.errors[OffsetCommitRequest] = [ErrorCode.FENCED_INSTANCE_ID]
    with pytest.raises(ErrorResponse, match=r"another member with the same group\.instance\.id has joined"):
        member.commit({T0: Committed(5)})


def test_static_members_do_not_leave(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    member = member_of(cluster, instance_id="i")
    member.keep_alive()
    member.leave()
    assert coordinator.seen(LeaveGroupRequest) == []


def test_member_that_never_joined_sends_no_leave(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    member_of(cluster).leave()
    assert coordinator.seen() == []


def test_failure_to_leave_is_ignored(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    member = member_of(cluster)
    member.keep_alive()
    coordinator.errors[LeaveGroupRequest] = [ErrorCode.UNKNOWN_MEMBER_ID]
    member.leave()
    member.keep_alive()
    broker.__exit__(None, None, None)
    started = time.monotonic()
    member.leave()
    assert time.monotonic() - started < 30


def test_static_membership_is_unsupported_by_old_brokers(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    broker.versions[ApiKey.JOIN_GROUP] = (0, 4)
    with pytest.raises(Unsupported, match=r"does not support group\.instance\.id: it is older than Kafka 2\.3"):
        member_of(cluster, instance_id="i").keep_alive()
