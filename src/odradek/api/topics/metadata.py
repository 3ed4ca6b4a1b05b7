"""Metadata, versions 0 to 13.

Returns the brokers of the cluster, and the topics with the leaders of their partitions.

- v1: null topics mean all topics, an empty list means none.
- v4: the client may forbid automatic topic creation.
- v8: authorized operations on request (KIP-430).
- v9: flexible.
- v10: topic ids. From v12, the client may name a topic by its id alone (KIP-516).
- v13: an error for the whole response (KIP-1102).

Differences from Apache Kafka:

- If a request creates a topic automatically, the response waits until the topic exists. Kafka returns an error, and the
  client has to retry.
- A broker that has just started answers after it has received metadata from its controller. Otherwise clients would
  consider topics deleted.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence

from odradek.api.request import authorized_operations as authorized
from odradek.api.request.call import Call
from odradek.api.request.log_fields import of_call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, in_order, nothing, parked
from odradek.api.topics.topic_changes import DelayedTopicChange
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.effects import CreateTopics
from odradek.core.broker.metadata_update import METADATA_UPDATED
from odradek.core.coordinators import state_topics
from odradek.core.kernel import topic_names
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS, PartitionInfo, TopicInfo
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.topics.topic_plans import PARTITIONS_PER_REQUEST_MAX, TopicSpec
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.schema.api_keys import ApiKey

NULL_MEANS_ALL_SINCE = 1
BY_ID_SINCE = 12
CREATION_MS_MAX = 5 * SECOND_MS
CONTROLLER_MS_MAX = 10 * SECOND_MS


def handle(call: Call, body: MetadataRequest) -> Slices:
    if call.broker.view.controller == NO_BROKER:
        yield ParkedRequest(_DelayedMetadata(), call.now.steady + CONTROLLER_MS_MAX, nothing)
    if call.version < BY_ID_SINCE:
        for number, topic in enumerate(body.topics or (), 1):
            if topic.name is None or topic.topic_id != ZERO_UUID:
                raise Refused(ErrorCode.INVALID_REQUEST, f"version {call.version} does not support topic ids")
            if not number % CHEAP:
                yield PAUSE
    missing = yield from _to_create(call, body)
    if not missing:
        return (yield from _answer(call, body))
    client_fields = of_call(call, ApiKey.METADATA)
    change = call.broker.changes.request_change(
        lambda token: CreateTopics(token, tuple(missing), client_fields, is_auto_created=True)
    )
    count = len(body.topics) if body.topics is not None else len(call.broker.view.topics)
    deadline = call.now.steady + CREATION_MS_MAX
    return (yield from parked(DelayedTopicChange(change), deadline, count, lambda: _answer(call, body)))


def refuse(call: Call, body: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    answers = [_unknown(call, topic, code) for topic in body.topics or ()]
    return MetadataResponse(brokers=[], topics=answers, error_code=code)


class _DelayedMetadata:
    """The condition that a controller has sent its metadata."""

    keys = (METADATA_UPDATED,)

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return True


def _to_create(call: Call, body: MetadataRequest) -> Parts[list[TopicInfo]]:
    broker = call.broker
    if not _may_create(call, body):
        return []
    names = (topic.name for topic in body.topics or () if topic.name is not None and topic.topic_id == ZERO_UUID)
    planned: list[TopicInfo] = []
    room = PARTITIONS_PER_REQUEST_MAX
    for name in (yield from in_order(name for name in names if name not in broker.view.topics)):
        yield
        try:
            _check_create(call, name)
            spec = state_topics.spec(TopicName(name), broker.configs)
            topic = broker.planner.new_topic(spec, broker.view)
        except Refused:
            continue  # The answer has the reason, topic by topic.
        room -= len(topic.partitions)
        if room < 0:
            break  # The other topics are created when the client retries.
        planned.append(topic)
    return planned


def _check_create(call: Call, name: str) -> None:
    """Raise Refused(TOPIC_AUTHORIZATION_FAILED) if the client may not describe or create the topic."""
    call.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
    if not call.may(Operation.CREATE, ResourceType.CLUSTER):
        call.check(Operation.CREATE, ResourceType.TOPIC, name)


def _may_create(call: Call, body: MetadataRequest) -> bool:
    return body.allow_auto_topic_creation and call.broker.configs.bool("auto.create.topics.enable")


def _answer(call: Call, body: MetadataRequest) -> Parts[MetadataResponse]:
    view = call.broker.view
    topics = yield from _topics(call, body)
    return MetadataResponse(
        brokers=_brokers(call),
        cluster_id=view.cluster_id,
        controller_id=view.controller,
        topics=topics,
        cluster_authorized_operations=authorized.cluster(call, body.include_cluster_authorized_operations),
    )


def _brokers(call: Call) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker, endpoint in call.reachable_brokers()
    ]


def _topics(call: Call, body: MetadataRequest) -> Parts[list[MetadataResponseTopic]]:
    view = call.broker.view
    answers: list[MetadataResponseTopic] = []
    with_operations = body.include_topic_authorized_operations
    may_create = _may_create(call, body)
    if body.topics is None or (call.version < NULL_MEANS_ALL_SINCE and not body.topics):
        for known in list(view.topics.values()):
            if _may_describe(call, known.name):
                answers.append((yield from _describe(call, known, with_operations)))
            yield
        return answers
    distinct = yield from _distinct(body.topics)
    call.free_later(distinct)
    for topic in distinct.values():
        answers.append((yield from _requested_topic(call, topic, may_create, with_operations)))
        yield
    return answers


def _may_describe(call: Call, name: str) -> bool:
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _distinct(topics: Sequence[MetadataRequestTopic]) -> Parts[dict[tuple[Uuid, str | None], MetadataRequestTopic]]:
    distinct: dict[tuple[Uuid, str | None], MetadataRequestTopic] = {}
    for number, topic in enumerate(topics, 1):
        distinct[Uuid(topic.topic_id), topic.name] = topic
        if not number % CHEAP:
            yield
    return distinct


def _requested_topic(
    call: Call, requested: MetadataRequestTopic, may_create: bool, with_operations: bool
) -> Parts[MetadataResponseTopic]:
    view = call.broker.view
    operations = authorized.NOT_REQUESTED
    try:
        by_id = requested.topic_id != ZERO_UUID
        text = call.broker.topic_name(Uuid(requested.topic_id)) if by_id else TopicName(requested.name or "")
        call.check(Operation.DESCRIBE, ResourceType.TOPIC, text)
        known = view.topics.get(text)
        if known is not None:
            return (yield from _describe(call, known, with_operations))
        if text in view.unreadable:
            return _unknown(call, requested, ErrorCode.LEADER_NOT_AVAILABLE)
        if may_create:
            _check_create(call, text)
        operations = authorized.topic(call, text) if with_operations else operations
        name = topic_names.checked(text)
        if may_create and name != topic_names.METADATA_TOPIC:
            call.broker.planner.new_topic(TopicSpec(name), view)  # Raises the reason why the topic was not created.
        return _unknown(call, requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations)
    except Refused as refused:
        return _unknown(call, requested, refused.code, operations)


def _unknown(
    call: Call, requested: MetadataRequestTopic, code: ErrorCode, operations: int = authorized.NOT_REQUESTED
) -> MetadataResponseTopic:
    # A name may be null in the response only if it may be null in the request.
    name: str | None = requested.name or ""
    if call.version >= BY_ID_SINCE and (requested.name is None or requested.topic_id != ZERO_UUID):
        name = None
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=requested.topic_id,
        is_internal=name in INTERNAL_TOPICS and _may_describe(call, name),
        partitions=[],
        topic_authorized_operations=operations,
    )


def _describe(call: Call, topic: TopicInfo, with_operations: bool) -> Parts[MetadataResponseTopic]:
    partitions = yield from _partitions(call, topic)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=authorized.topic(call, topic.name) if with_operations else authorized.NOT_REQUESTED,
    )


def _partitions(call: Call, topic: TopicInfo) -> Parts[list[MetadataResponsePartition]]:
    alive = call.broker.view.brokers
    errors: dict[BrokerId, ErrorCode] = {}  # A cache: few brokers lead many partitions.
    answers = []
    for index, info in enumerate(topic.partitions):
        leader, replicas = info.leader, info.replicas
        if not replicas:
            continue  # The controller has not sent this partition yet.
        error = errors.get(leader)
        if error is None:
            error = errors[leader] = leader_error(call, leader)
        answers.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=NO_BROKER if error else leader,
                leader_epoch=info.leader_epoch,
                replica_nodes=list(replicas),
                isr_nodes=list(info.isr),
                offline_replicas=offline(info, alive),
            )
        )
        yield
    return answers


def offline(info: PartitionInfo, alive: Container[BrokerId]) -> list[int]:
    """Return the unavailable replicas."""
    return [replica for replica in info.replicas if replica in info.offline or replica not in alive]


def leader_error(call: Call, leader: BrokerId) -> ErrorCode:
    """Return why the leader can't be named to this client, or NONE."""
    broker = call.broker.view.brokers.get(leader)
    if broker is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if call.endpoint_of(broker) is None:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.NONE
