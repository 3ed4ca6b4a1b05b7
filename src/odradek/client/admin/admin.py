"""Changes of topics: creation, deletion and added partitions.

These requests go to the controller; the queries of describe.py go to any broker. Every function takes several resources
and either returns results for all of them or raises the first error with the broker's message. The broker decides which
of the other changes take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER
from odradek.base.uuids import ZERO_UUID
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import (
    ClusterDescription,
    ConfigEntry,
    check,
    describe_cluster,
    describe_topic_configs,
    describe_topics,
)
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, ConnectionLost, ErrorResponse, Unsupported
from odradek.client.connection.retry import RetryDeadline
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

T = TypeVar("T")

BROKER_DEFAULT = -1  # The broker's configured default, as number of partitions or replicas (KIP-464, Kafka 2.4).
CREATE_TOPICS_WITH_DEFAULTS = 4
DELETE_TOPICS_WITH_IDS = 6
MAY_BE_OURS = "it exists; an earlier response was lost, so this request may have created it"
CONTROLLER_MOVED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})

__all__ = [
    "BROKER_DEFAULT",
    "ClusterDescription",
    "ConfigEntry",
    "CreatedTopic",
    "NewTopic",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_cluster",
    "describe_topic_configs",
    "describe_topics",
]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; an assignment (partition to brokers) determines its partitions and replicas."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; numbers are -1 if the broker does not return them (before Kafka 2.4)."""

    name: str
    partitions: int
    replication_factor: int


def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, timeout_ms: int | None = None, validate_only: bool = False
) -> list[CreatedTopic]:
    """Create topics and return them with their actual sizes.

    Raise ErrorResponse: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, ...
    """
    creatable_topics = [creatable(topic) for topic in topics]
    request = CreateTopicsRequest(
        topics=creatable_topics,
        timeout_ms=cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms,
        validate_only=validate_only,
    )

    def send_create_topics(controller: Connection, is_repeated: bool) -> list[CreatedTopic]:
        refuse_defaults(controller, creatable_topics)
        response = controller.call(request, CreateTopicsResponse)
        for topic in response.topics:
            repeated = is_repeated and topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            check(topic.error_code, f"topic {topic.name}", MAY_BE_OURS if repeated else topic.error_message)
        return [CreatedTopic(topic.name, topic.num_partitions, topic.replication_factor) for topic in response.topics]

    return call_controller(cluster, send_create_topics)


def refuse_defaults(controller: Connection, topics: Iterable[CreatableTopic]) -> None:
    """Raise Unsupported if an older broker requires numbers for which newer brokers have defaults."""
    if controller.version(CreateTopicsRequest) >= CREATE_TOPICS_WITH_DEFAULTS:
        return
    for topic in topics:
        if not topic.assignments and BROKER_DEFAULT in (topic.num_partitions, topic.replication_factor):
            missing = f"specify the number of partitions and the replication factor of {topic.name}"
            raise Unsupported(f"{controller.where} is older than Kafka 2.4: {missing}")


def creatable(topic: NewTopic) -> CreatableTopic:
    is_assigned = bool(topic.assignment)
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if is_assigned else topic.partitions,
        replication_factor=BROKER_DEFAULT if is_assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignment.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def delete_topics(cluster: Cluster, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
    """Delete topics; raise ErrorResponse: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, ..."""
    topic_names = list(names)
    timeout_ms = cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms

    def send_delete_topics(controller: Connection, is_repeated: bool) -> None:
        if controller.version(DeleteTopicsRequest) >= DELETE_TOPICS_WITH_IDS:
            topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in topic_names]
            request = DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)
        else:
            request = DeleteTopicsRequest(topic_names=topic_names, timeout_ms=timeout_ms)
        for result in controller.call(request, DeleteTopicsResponse).responses:
            if is_repeated and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # The first attempt deleted it, or it never existed.
            check(result.error_code, f"topic {result.name}", result.error_message)

    call_controller(cluster, send_delete_topics)
    cluster.metadata.forget(topic_names)


def create_partitions(cluster: Cluster, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
    """Increase topics to these numbers of partitions.

    Raise ErrorResponse: INVALID_PARTITIONS for a number below the current one.
    """
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=cluster.config.request_timeout_ms,
        validate_only=validate_only,
    )

    def send_create_partitions(controller: Connection, is_repeated: bool) -> None:
        for result in controller.call(request, CreatePartitionsResponse).results:
            repeated = is_repeated and result.error_code == ErrorCode.INVALID_PARTITIONS
            check(result.error_code, f"topic {result.name}", MAY_BE_OURS if repeated else result.error_message)

    call_controller(cluster, send_create_partitions)
    cluster.metadata.forget(counts)


def call_controller(cluster: Cluster, send: Callable[[Connection, bool], T]) -> T:
    """Send a request to the controller, and to the next one after a move or failure, until api_timeout_ms.

    The second argument of `send` is true if an earlier answer was lost, so that the change may already be done.
    """
    deadline = RetryDeadline(cluster.config)
    is_repeated = False
    while True:
        try:
            return send(cluster.controller(), is_repeated)
        except ClientError as error:
            cluster.metadata.controller = NO_BROKER  # Look up the controller again after any error.
            cluster.use_another_broker()
            is_repeated = is_repeated or isinstance(error, ConnectionLost)
            if isinstance(error, ErrorResponse) and error.code not in CONTROLLER_MOVED:
                raise  # UNKNOWN_TOPIC_OR_PARTITION may be temporary for a fetch, but not for a deletion.
            deadline.wait_or_raise(error)
