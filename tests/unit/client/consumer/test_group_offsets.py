"""Offsets of groups, in every version, and errors of the coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.consumer.group_offsets import Committed, commit_offsets, delete_offsets, fetch_offsets
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = pytest.mark.waits

T0, T1, U0 = (TopicPartition(TopicName(topic), index) for topic, index in (("t", 0), ("t", 1), ("u", 0)))


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        yield scripted


@pytest.fixture
def coordinator(broker: ScriptedBroker) -> ScriptedCoordinator:
    return ScriptedCoordinator(broker)


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    with Cluster(ClientConfig(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000)) as connected:
        yield connected


@pytest.mark.parametrize("version", [1, 2, 5, 6, 7, 9, 10])
def test_committed_offsets_are_fetched(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster, version: int
) -> None:
    broker.versions[ApiKey.OFFSET_COMMIT] = (0, version)
    broker.versions[ApiKey.OFFSET_FETCH] = (0, version)
    commit_offsets(cluster, "g", {T0: Committed(5), U0: Committed(7, 2, "note")})
    (commit,) = coordinator.seen(OffsetCommitRequest)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (-1, ""), "from outside"
    assert commit.topics[1].partitions[0].committed_metadata == "note"
    found = fetch_offsets(cluster, {"g": [T0, T1, U0]}, require_stable=True)
    assert {each: at.offset for each, at in found["g"].items()} == {T0: 5, U0: 7}, "T1 was never committed"
    assert coordinator.seen(OffsetFetchRequest)[0].require_stable == (version >= 7)
    if version >= 2:
        assert fetch_offsets(cluster, {"g": None})["g"].keys() == {T0, U0}


def test_many_groups_use_one_request(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    coordinator.committed["t", 0] = 1
    found = fetch_offsets(cluster, {"a": None, "b": [T0], "c": [T1]})
    assert {group: list(those) for group, those in found.items()} == {"a": [T0], "b": [T0], "c": []}
    assert len(coordinator.seen(OffsetFetchRequest)) == 1


def test_commit_without_offsets_sends_no_request(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    commit_offsets(cluster, "g", {})
    assert coordinator.seen() == []


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT])
def test_transient_errors_are_retried(coordinator: ScriptedCoordinator, cluster: Cluster, code: ErrorCode) -> None:
    coordinator.errors[OffsetFetchRequest] = [code] * 3
    coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    commit_offsets(cluster, "g", {T0: Committed(5)})
    assert fetch_offsets(cluster, {"g": None})["g"] == {T0: Committed(5)}


def test_permanent_error_contains_partition_and_group(coordinator: ScriptedCoordinator, cluster: Cluster) -> None:
    coordinator.errors[OffsetCommitRequest] = [ErrorCode.UNKNOWN_MEMBER_ID]
    coordinator.errors[OffsetFetchRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(ErrorResponse, match=r"commit of t-0 in group g: .*\(UNKNOWN_MEMBER_ID\)"):
        commit_offsets(cluster, "g", {T0: Committed(5)})
    with pytest.raises(ErrorResponse, match="group g: not authorized"):
        fetch_offsets(cluster, {"g": None})


def test_offsets_without_subscribers_are_deleted(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    def answer(request: OffsetDeleteRequest, version: int) -> OffsetDeleteResponse:
        topics = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name == "u" else ErrorCode.NONE,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)

    broker.on(OffsetDeleteRequest, answer)
    outcomes = delete_offsets(cluster, "g", [T0, T1, U0])
    assert (outcomes[T0], outcomes[T1]) == (None, None)
    assert "members of the group subscribe to this topic" in str(outcomes[U0])


def test_offset_deletion_for_a_missing_group_is_refused(broker: ScriptedBroker, cluster: Cluster) -> None:
    ScriptedCoordinator(broker)
    broker.on(
        OffsetDeleteRequest,
        lambda request, version: OffsetDeleteResponse(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND, throttle_time_ms=0, topics=[]
        ),
    )
    with pytest.raises(ErrorResponse, match="the group does not exist"):
        delete_offsets(cluster, "g", [T0])
