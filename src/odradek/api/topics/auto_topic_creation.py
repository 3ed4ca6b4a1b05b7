"""CreateTopics from a broker to the controller, for topics that clients name and that do not exist.

This is Kafka's AutoTopicCreationManager. The controller assigns the replicas.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ErrorCode, Refused, error_code
from odradek.base.units import TopicName
from odradek.core.broker.effects import CreateTopics
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TIMEOUT_MS = 5_000


def to_message(change: CreateTopics) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(
            name=topic.name,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in change.topics
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)


def refusals(response: CreateTopicsResponse) -> Mapping[TopicName, Refused]:
    """Return why topics were not created; an existing or slow topic is treated as created."""
    created_codes = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
    return {
        TopicName(topic.name): Refused(error_code(topic.error_code), topic.error_message or "")
        for topic in response.topics
        if topic.error_code not in created_codes
    }
