"""StopReplica, versions 0 to 4.

Stops replicas of a broker, and deletes them if requested. The controller sends this request to brokers; Odradek
implements both sides. An authorization error is also returned for each partition, a stale epoch only for the whole
request, as in Apache Kafka.

- v1: partitions are grouped by topic.
- v3: leader epochs, and a deletion flag for each partition. In earlier versions, one flag covers all partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.api.cluster.controller_checks import no_error, valid_partitions
from odradek.api.request.call import Call
from odradek.api.request.inter_broker import authorized_queries, await_result, by_length, to_broker
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, whole
from odradek.api.request.topic_states import Errors, by_topic, errors_by_partition
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_EPOCH, LeaderEpoch, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import ControlRequest, StopReplicas
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from odradek.wire.schema.schema import maker

# The controller's value, which this module converts to a message and back: core/controller/broker_request_batch.py.
GROUPED_FROM, WITH_EPOCHS_FROM = 1, 3
STALE = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)

_error = maker(StopReplicaPartitionError)


def handle(call: Call, body: StopReplicaRequest) -> Slices:
    queries = authorized_queries(call)
    stops = yield from parse(body)
    call.free_later(stops)
    sent, all_refused = [], []
    for stop in stops:
        valid, refused = yield from valid_partitions(stop.partitions, {}, no_error)
        sent.append(to_broker(call, body, stop._replace(partitions=valid)))
        all_refused.append(refused)
    promises = [queries.control_requests.submit(request) for request in sent]
    partition_errors = []
    for stop, refused, promise in zip(stops, all_refused, promises, strict=True):
        failed = {**(yield from await_result(promise, call)), **refused}
        for number, partition in enumerate(stop.partitions, 1):
            code = failed.get(partition, ErrorCode.NONE)
            partition_errors.append(
                _error(topic_name=partition.topic, partition_index=partition.partition, error_code=code)
            )
            if not number % CHEAP:
                yield PAUSE
    return by_length(
        StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=partition_errors), len(partition_errors)
    )


def refuse(call: Call, body: StopReplicaRequest, code: ErrorCode) -> StopReplicaResponse:
    named = () if code in STALE else _named(body)
    refused = [
        _error(topic_name=partition.topic, partition_index=partition.partition, error_code=code) for partition in named
    ]
    return StopReplicaResponse(error_code=code, partition_errors=refused)


def _named(body: StopReplicaRequest) -> Iterator[TopicPartition]:
    return (partition for partition, _, _ in _requested_partitions(body))


def to_message(sent: ControlRequest, stop: StopReplicas, version: int) -> StopReplicaRequest:
    """Return the StopReplica message in a version."""
    request = StopReplicaRequest(
        controller_id=sent.controller,
        controller_epoch=sent.controller_epoch,
        broker_epoch=sent.broker_epoch,
        delete_partitions=stop.deletes and version < WITH_EPOCHS_FROM,
    )
    if version >= WITH_EPOCHS_FROM:
        states = {
            partition: StopReplicaPartitionState(
                partition_index=partition.partition, leader_epoch=epoch, delete_partition=stop.deletes
            )
            for partition, epoch in stop.partitions.items()
        }
        request.topic_states = [
            StopReplicaTopicState(topic_name=name, partition_states=states_of_topic)
            for name, states_of_topic in by_topic(states).items()
        ]
    elif version >= GROUPED_FROM:
        indexes = by_topic({partition: partition.partition for partition in stop.partitions})
        request.topics = [
            StopReplicaTopicV1(name=name, partition_indexes=indexes_of_topic)
            for name, indexes_of_topic in indexes.items()
        ]
    else:
        request.ungrouped_partitions = [
            StopReplicaPartitionV0(topic_name=partition.topic, partition_index=partition.partition)
            for partition in stop.partitions
        ]
    return request


def from_message(request: StopReplicaRequest) -> tuple[StopReplicas, ...]:
    """Return the parsed request in one step, without slices."""
    return whole(parse(request))


def parse(request: StopReplicaRequest) -> Parts[tuple[StopReplicas, ...]]:
    """Return the controller's request: deletions after all others, and epoch -1 if the request has none.

    A request without partitions becomes one StopReplicas without partitions, which closes nothing.
    """
    found: dict[bool, dict[TopicPartition, LeaderEpoch]] = {False: {}, True: {}}
    for number, (partition, epoch, deletes) in enumerate(_requested_partitions(request), 1):
        found[deletes][partition] = epoch
        if not number % CHEAP:
            yield
    stops = tuple(StopReplicas(partitions, deletes) for deletes, partitions in found.items() if partitions)
    return stops or (StopReplicas({}, deletes=False),)


def _requested_partitions(request: StopReplicaRequest) -> Iterator[tuple[TopicPartition, LeaderEpoch, bool]]:
    """Yield the partitions of any form of the request, each with its leader epoch and its deletion flag."""
    deletes = request.delete_partitions
    for old in request.ungrouped_partitions:
        yield TopicPartition(TopicName(old.topic_name), old.partition_index), NO_EPOCH, deletes
    for topic in request.topics:
        name = TopicName(topic.name)
        for index in topic.partition_indexes:
            yield TopicPartition(name, index), NO_EPOCH, deletes
    for states in request.topic_states:
        name = TopicName(states.topic_name)
        for state in states.partition_states:
            yield TopicPartition(name, state.partition_index), LeaderEpoch(state.leader_epoch), state.delete_partition


def errors(response: StopReplicaResponse) -> Errors:
    """Return the partitions for which the broker failed."""
    return errors_by_partition((error.topic_name, error) for error in response.partition_errors)
