"""Lookup of coordinators that do not exist yet, are loading, or have moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.base.errors import ErrorCode
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.coordinator_lookup import (
    Coordinator,
    KeyType,
    call_coordinator,
    call_coordinators,
    find_coordinators,
)
from odradek.client.cluster.describe import check
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import (
    ClientError,
    ErrorResponse,
    KafkaUnavailable,
    Unsupported,
    response_error,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = pytest.mark.waits

GROUP, TRANSACTION = KeyType.GROUP, KeyType.TRANSACTION


def quick(broker: ScriptedBroker, **settings: int) -> Cluster:
    patience = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "api_timeout_ms": 1_000}
    return Cluster(ClientConfig(broker.address, **(patience | settings)))  # type: ignore[arg-type]  # All ints.


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        yield scripted


def heartbeat(connection: Connection) -> int:
    answer = connection.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse)
    check(answer.error_code, "group g", None)
    return answer.error_code


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_lookup_supports_all_versions(broker: ScriptedBroker, version: int, kind: KeyType) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, version)
    coordinator = ScriptedCoordinator(broker)
    with quick(broker) as cluster:
        assert find_coordinators(cluster, kind, ["a", "b"]) == {"a": 1, "b": 1}
    assert len(coordinator.seen(FindCoordinatorRequest)) == (1 if version >= 4 else 2)
    assert {request.key_type for request in broker.seen} == {kind}


def test_lookup_of_groups_works_before_transactions(broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, 0)
    ScriptedCoordinator(broker)
    with quick(broker) as cluster:
        assert find_coordinators(cluster, GROUP, ["a"]) == {"a": 1}
        with pytest.raises(Unsupported, match=r"does not support transactions: it is older than Kafka 0\.11"):
            find_coordinators(cluster, TRANSACTION, ["a"])


@pytest.mark.parametrize("version", [3, 6])
def test_lookup_error_contains_the_group_name(broker: ScriptedBroker, version: int) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, version)
    coordinator = ScriptedCoordinator(broker)
    coordinator.errors[FindCoordinatorRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with quick(broker) as cluster:
        found = find_coordinators(cluster, GROUP, ["secret"])["secret"]
    assert isinstance(found, ErrorResponse)
    assert str(found) == "group secret: not authorized to access the group (GROUP_AUTHORIZATION_FAILED)"


@pytest.mark.parametrize(
    ("finding", "answering"),
    [
        ([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3, []),
        ([], [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3),
        ([], [ErrorCode.NOT_COORDINATOR]),
        ([ErrorCode.COORDINATOR_NOT_AVAILABLE], [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_transient_errors_are_retried(
    broker: ScriptedBroker, finding: list[ErrorCode], answering: list[ErrorCode], kept: bool
) -> None:
    coordinator = ScriptedCoordinator(broker)
    coordinator.errors[FindCoordinatorRequest], coordinator.errors[HeartbeatRequest] = list(finding), list(answering)
    with quick(broker) as cluster:
        if kept:
            assert Coordinator(cluster, GROUP, "g").call(heartbeat) == 0
        else:
            assert call_coordinator(cluster, GROUP, "g", heartbeat) == 0
    moved = answering.count(ErrorCode.NOT_COORDINATOR)
    least = 1 + len(finding) + moved
    assert len(coordinator.seen(FindCoordinatorRequest)) >= least
    if kept:
        assert len(coordinator.seen(FindCoordinatorRequest)) == least, "asked again only when it has moved"


def test_retriable_coordinator_error_is_raised_at_the_timeout(broker: ScriptedBroker) -> None:
    coordinator = ScriptedCoordinator(broker)
    coordinator.errors[HeartbeatRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
    with quick(broker, api_timeout_ms=50) as cluster:
        with pytest.raises(ErrorResponse, match="still loading its state"):
            Coordinator(cluster, GROUP, "g").call(heartbeat)
        with pytest.raises(ErrorResponse, match="COORDINATOR_LOAD_IN_PROGRESS"):
            call_coordinator(cluster, GROUP, "g", heartbeat)


def test_permanent_error_is_not_retried(broker: ScriptedBroker) -> None:
    coordinator = ScriptedCoordinator(broker)
    coordinator.errors[HeartbeatRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
    with quick(broker) as cluster:
        for send in (Coordinator(cluster, GROUP, "g").call, lambda send: call_coordinator(cluster, GROUP, "g", send)):
            with pytest.raises(ErrorResponse, match="not authorized"):
                send(heartbeat)
    assert len(coordinator.seen(HeartbeatRequest)) == 2


def test_broken_connection_is_reopened(broker: ScriptedBroker) -> None:
    coordinator = ScriptedCoordinator(broker)
    answers: list[object] = [HangUp(), HeartbeatResponse(error_code=0)]

    def answer(request: HeartbeatRequest, version: int) -> object:
        following = answers.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    broker.on(HeartbeatRequest, answer)
    with quick(broker) as cluster:
        assert Coordinator(cluster, GROUP, "g").call(heartbeat) == 0
    assert len(coordinator.seen(FindCoordinatorRequest)) == 2


def test_each_name_has_its_own_outcome(broker: ScriptedBroker) -> None:
    ScriptedCoordinator(broker)
    requests: list[list[str]] = []

    def send(node: int, names: list[str]) -> dict[str, str | ClientError]:
        requests.append(names)
        outcomes: dict[str, str | ClientError] = {name: f"{name} on {node}" for name in names}
        if "gone" in names:
            outcomes["gone"] = response_error(ErrorCode.GROUP_ID_NOT_FOUND, "group gone")
        if len(requests) == 1:
            outcomes["slow"] = response_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "group slow")
            del outcomes["left out"]
        return outcomes

    with quick(broker) as cluster:
        outcomes = call_coordinators(cluster, GROUP, ["a", "gone", "slow", "left out", "a"], send)
    assert list(outcomes) == ["a", "gone", "slow", "left out"]
    assert (outcomes["a"], outcomes["slow"]) == ("a on 1", "slow on 1")
    assert "GROUP_ID_NOT_FOUND" in str(outcomes["gone"])
    assert "UNKNOWN_SERVER_ERROR" in str(outcomes["left out"])
    assert requests == [["a", "gone", "slow", "left out"], ["slow"]], "only what failed for a while is asked again"


def test_unreachable_cluster_is_raised(broker: ScriptedBroker) -> None:
    ScriptedCoordinator(broker)
    with quick(broker, api_timeout_ms=50) as cluster:
        broker.__exit__(None, None, None)
        with pytest.raises(KafkaUnavailable):
            call_coordinator(cluster, GROUP, "g", heartbeat)
        with pytest.raises(KafkaUnavailable):
            Coordinator(cluster, GROUP, "g").call(heartbeat)
