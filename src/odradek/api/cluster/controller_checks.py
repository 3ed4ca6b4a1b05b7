"""Checks of a controller's request, made before any part of it is applied.

A partition whose name or numbers no broker could use is answered with its own error; the other partitions are applied.
Apache Kafka's controllers send some states that look invalid: while a reassignment ends, the ISR still has members
outside the new replicas. Such states are accepted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import PARTITIONS_PER_TOPIC_MAX
from odradek.base.units import NO_BROKER, BrokerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.broker_request_batch import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    AssignedState,
    PartitionMetadata,
    TopicIds,
)
from odradek.core.kernel import topic_names
from odradek.core.kernel.cluster_view import RECOVERED, RECOVERING, BrokerInfo, Endpoint

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

PORT_MAX = 65_535
_HOST = re.compile(r"[^\s/\x00-\x1f\x7f]{1,255}")


def valid_partitions(
    partitions: Mapping[TopicPartition, T], ids: TopicIds, error_of: Callable[[T], ErrorCode]
) -> Parts[tuple[dict[TopicPartition, T], dict[TopicPartition, ErrorCode]]]:
    """Return the valid partitions, and the error of each invalid one; log a warning if there are any."""
    topics = yield from _topic_errors(partitions, ids)
    valid: dict[TopicPartition, T] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for number, (partition, value) in enumerate(partitions.items(), 1):
        code = topics.get(partition.topic) or _index_error(partition.partition) or error_of(value)
        if code:
            refused[partition] = code
        else:
            valid[partition] = value
        if not number % CHEAP:
            yield
    if refused:
        name, code = next(iter(refused.items()))
        text = "rejected %d of %d invalid partitions in a controller request, the first is %.300r-%d: %s"
        _LOG.warning(text, len(refused), len(partitions), name.topic, name.partition, code.name)
    return valid, refused


def _topic_errors(partitions: Iterable[TopicPartition], ids: TopicIds) -> Parts[dict[TopicName, ErrorCode]]:
    """Return the errors of topics: for an invalid name, or for an id that another topic has."""
    codes: dict[TopicName, ErrorCode] = {}
    owners: dict[Uuid, TopicName] = {}
    for number, partition in enumerate(partitions, 1):
        name = partition.topic
        if name not in codes:
            topic_id = ids.get(name, ZERO_UUID)
            is_shared = topic_id != ZERO_UUID and owners.setdefault(topic_id, name) != name
            codes[name] = _name_error(name) or (ErrorCode.INVALID_REQUEST if is_shared else ErrorCode.NONE)
        if not number % CHEAP:
            yield
    return codes


def _name_error(name: TopicName) -> ErrorCode:
    try:
        topic_names.checked(name)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


def _index_error(index: int) -> ErrorCode:
    return ErrorCode.NONE if 0 <= index < PARTITIONS_PER_TOPIC_MAX else ErrorCode.INVALID_REQUEST


def assigned_error(assigned: AssignedState) -> ErrorCode:
    """Return why a replica can't take the state of a LeaderAndIsr; NONE if it can."""
    state = assigned.state
    has_leader = state.leader in state.isr or state.leader == NO_BROKER
    epochs = min(state.leader_epoch, state.partition_epoch, state.controller_epoch)
    lists = (state.isr, assigned.replicas, assigned.adding, assigned.removing)
    is_valid = has_leader and epochs >= 0 and state.recovery in (RECOVERED, RECOVERING) and all(map(_are_ids, lists))
    return ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST


def metadata_error(metadata: PartitionMetadata) -> ErrorCode:
    """Return why clients can't use a partition's metadata; NONE if they can."""
    state = metadata.state
    is_led = state.leader >= LEADER_DURING_DELETE and state.leader_epoch >= EPOCH_DURING_DELETE
    lists = (state.isr, metadata.replicas, metadata.offline)
    return ErrorCode.NONE if is_led and all(map(_are_ids, lists)) else ErrorCode.INVALID_REQUEST


def no_error(_: object) -> ErrorCode:
    """Return NONE, for partitions whose request has only a name, or no value that must be valid."""
    return ErrorCode.NONE


def _are_ids(brokers: tuple[BrokerId, ...]) -> bool:
    """Return whether these are broker ids without repetition."""
    return not brokers or (min(brokers) >= 0 and len({*brokers}) == len(brokers))


def valid_brokers(brokers: Iterable[BrokerInfo]) -> Parts[tuple[BrokerInfo, ...]]:
    """Return the brokers that clients can use, each once; log a warning if there are others."""
    valid: dict[BrokerId, BrokerInfo] = {}
    invalid: list[BrokerInfo] = []
    for number, broker in enumerate(brokers, 1):
        if broker.id in valid or not _is_valid(broker):
            invalid.append(broker)
        else:
            valid[broker.id] = broker
        if not number % CHEAP:
            yield
    if invalid:
        text = "ignored %d invalid brokers in a controller request, the first is %.300r"
        _LOG.warning(text, len(invalid), invalid[0])
    return tuple(valid.values())


def _is_valid(broker: BrokerInfo) -> bool:
    listeners = {endpoint.listener for endpoint in broker.endpoints}
    are_distinct = len(listeners) == len(broker.endpoints)
    return broker.id >= 0 and are_distinct and all(map(_can_be_reached, broker.endpoints))


def _can_be_reached(endpoint: Endpoint) -> bool:
    return 0 < endpoint.port <= PORT_MAX and _HOST.fullmatch(endpoint.host) is not None
