"""CompactPartitions requests, sent to all leaders before the first response is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.log_compaction import Compacted, compact_partitions
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Broker
from odradek.client.connection.client_config import ClientConfig
from odradek.wire.messages.compact_partitions import (
    CompactPartitionsPartitionResult,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopicResult,
)
from support.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.waits

NAMES = [TopicPartition(TopicName("t"), index) for index in range(4)]
LEADERS = (1, 2, 1, 2)


@pytest.fixture
def brokers() -> Iterator[dict[int, ScriptedBroker]]:
    with ExitStack() as stack:
        started = {number: stack.enter_context(ScriptedBroker()) for number in (1, 2)}
        started[1].topics["t"] = len(LEADERS)
        yield started


@pytest.fixture
def cluster(brokers: dict[int, ScriptedBroker]) -> Iterator[Cluster]:
    """Open a client of the cluster that knows both brokers, each leading two of the partitions."""
    with Cluster(ClientConfig(brokers[1].address)) as cluster:
        cluster.learn(NAMES)
        cluster.metadata.brokers[2] = Broker(2, "127.0.0.1", brokers[2].port)
        known = cluster.metadata.topics["t"]
        led = tuple(replace(one, leader=leader) for one, leader in zip(known.partitions, LEADERS, strict=True))
        cluster.metadata.topics["t"] = replace(known, partitions=led)
        yield cluster


def answer_compactions(broker: ScriptedBroker, won: int, refused: dict[int, ErrorCode] | None = None) -> None:
    """Let each requested partition shrink to `won` bytes, except the refused ones."""

    def answer(request: CompactPartitionsRequest, version: int) -> CompactPartitionsResponse:
        topics = [
            CompactPartitionsTopicResult(
                name=topic.name,
                partitions=[
                    CompactPartitionsPartitionResult(
                        partition_index=index, bytes_after=won, error_code=(refused or {}).get(index, ErrorCode.NONE)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return CompactPartitionsResponse(throttle_time_ms=0, topics=topics)

    broker.on(CompactPartitionsRequest, answer)


def requested_partitions(broker: ScriptedBroker) -> list[int]:
    return [index for request in broker.seen for topic in request.topics for index in topic.partitions]


def test_each_leader_gets_its_own_partitions(brokers: dict[int, ScriptedBroker], cluster: Cluster) -> None:
    answer_compactions(brokers[1], 100)
    answer_compactions(brokers[2], 200)
    outcomes = compact_partitions(cluster, NAMES, timeout_ms=1_000)
    assert {number: requested_partitions(one) for number, one in brokers.items()} == {1: [0, 2], 2: [1, 3]}
    found = [one.bytes_after for name in NAMES if isinstance(one := outcomes[name], Compacted)]
    assert found == [100, 200, 100, 200]


def test_former_leader_fails_only_its_partition(brokers: dict[int, ScriptedBroker], cluster: Cluster) -> None:
    answer_compactions(brokers[1], 100)
    answer_compactions(brokers[2], 200, {3: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    outcomes = compact_partitions(cluster, NAMES, timeout_ms=1_000)
    assert [isinstance(outcomes[name], Compacted) for name in NAMES] == [True, True, True, False]
    assert "the leader changed" in str(outcomes[NAMES[3]])
