"""FindCoordinator, versions 0 to 6.

Returns the broker that coordinates a group (key type 0) or a transactional id (key type 1). The first request creates
the internal topic that stores the coordinator's state.

- v4: several keys per request (KIP-699).
- v6: share groups (key type 2), which Odradek does not support.

Difference from Apache Kafka: while the internal topic is being created, the response waits for it. Kafka returns
COORDINATOR_NOT_AVAILABLE, and the client has to retry.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, parked
from odradek.api.topics.topic_changes import DelayedTopicChange
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, SECOND_MS
from odradek.core.coordinators.state_topics import partition_for
from odradek.core.kernel.access import DENIED, Operation, ResourceType
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.schema.schema import maker

_coordinator = maker(Coordinator)

MANY_KEYS_SINCE = 4
GROUP, TRANSACTION = 0, 1
CREATION_MS_MAX = 5 * SECOND_MS
_RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}


def handle(call: Call, body: FindCoordinatorRequest) -> Slices:
    topic = _TOPICS.get(body.key_type)
    if topic is None or not (yield from _may_describe_any(call, body)):
        return (yield from _answer(call, body))
    try:
        change = call.broker.changes.state_topic(topic)
    except Refused as refused:
        return (yield from _answer(call, body, refused.detail))
    if change is None:
        return (yield from _answer(call, body))
    deadline, count = call.now.steady + CREATION_MS_MAX, len(_keys(call, body))
    return (yield from parked(DelayedTopicChange(change), deadline, count, lambda: _answer(call, body)))


def refuse(call: Call, body: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    return _response(call, [_no_coordinator(key, code) for key in _keys(call, body)])


def _keys(call: Call, body: FindCoordinatorRequest) -> list[str]:
    return body.coordinator_keys if call.version >= MANY_KEYS_SINCE else [body.key]


def _may_describe(call: Call, key_type: int, key: str) -> bool:
    resource = _RESOURCES.get(key_type)
    return resource is None or call.may(Operation.DESCRIBE, resource, key)


def _may_describe_any(call: Call, body: FindCoordinatorRequest) -> Parts[bool]:
    for number, key in enumerate(_keys(call, body)):
        if _may_describe(call, body.key_type, key):
            return True
        if number % CHEAP == CHEAP - 1:
            yield
    return False


def _answer(call: Call, body: FindCoordinatorRequest, detail: str = "") -> Parts[FindCoordinatorResponse]:
    """Answer for each key; `detail` explains why the state topic can't be created."""
    found = []
    for key in _keys(call, body):
        found.append(_find(call, body.key_type, key, detail))
        yield
    return _response(call, found)


def _response(call: Call, found: list[Coordinator]) -> FindCoordinatorResponse:
    if call.version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (coordinator,) = found
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find(call: Call, key_type: int, key: str, detail: str) -> Coordinator:
    topic = _TOPICS.get(key_type)
    if topic is None:
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "Unknown key type")
    if not _may_describe(call, key_type, key):
        return _no_coordinator(key, DENIED[_RESOURCES[key_type]])
    known = call.broker.view.topics.get(topic)
    if known is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
    leader = known.partitions[partition_for(key, len(known.partitions))].leader
    broker = call.broker.view.brokers.get(leader)
    endpoint = None if broker is None else call.endpoint_of(broker)
    if endpoint is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _coordinator(
        key=key,
        node_id=leader,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="" if call.version >= MANY_KEYS_SINCE else "NONE",
    )


def _no_coordinator(key: str, code: ErrorCode, detail: str = "") -> Coordinator:
    return Coordinator(key=key, node_id=NO_BROKER, host="", port=-1, error_code=code, error_message=detail or code.name)
