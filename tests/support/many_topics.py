"""Requests about many topics or partitions at once, each without an error in its response."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.raw_client import RawClient

TIMEOUT_MS = 120_000


def delete_topics(client: RawClient, names: Sequence[str]) -> None:
    topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    answer = client.request(DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 6, DeleteTopicsResponse)
    assert [topic.error_code for topic in answer.responses] == [0] * len(names)


def grow_topic(client: RawClient, name: str, partitions: int) -> None:
    topics = [CreatePartitionsTopic(name=name, count=partitions, assignments=None)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)
    (result,) = client.request(request, 3, CreatePartitionsResponse).results
    assert result.error_code == 0


def partition_counts(client: RawClient) -> dict[str | None, int]:
    """Return the number of partitions of all topics in the broker's metadata."""
    answer = client.request(MetadataRequest(topics=None), 12, MetadataResponse)
    return {topic.name: len(topic.partitions) for topic in answer.topics}
