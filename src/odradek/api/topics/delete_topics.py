"""DeleteTopics, versions 1 to 6.

Deletes topics.

- v4: flexible.
- v5: an error message for each error (KIP-599).
- v6: topics by name or by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.api.request.call import Call
from odradek.api.request.log_fields import of_call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, parked
from odradek.api.topics.topic_changes import DelayedTopicChange
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.effects import DeleteTopics
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.schema.api_keys import ApiKey

DISABLED_SINCE = 3
BY_STATE_SINCE = 6


class _TopicToDelete(NamedTuple):
    """A topic as the client names it: by name or by id."""

    name: str | None
    id: Uuid

    @property
    def is_clear(self) -> bool:
        return (self.name is None) != (self.id == ZERO_UUID)


Found = list[tuple[_TopicToDelete, TopicInfo | Refused]]


def handle(call: Call, body: DeleteTopicsRequest) -> Slices:
    call.check_controller()
    if not call.broker.configs.bool("delete.topic.enable"):
        is_known = call.version >= DISABLED_SINCE
        raise Refused(ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST)
    found = yield from _find_topics(call, _requested_topics(call, body))
    to_delete: dict[TopicName, Uuid] = {}
    call.free_later((found, to_delete))
    for number, (_, topic) in enumerate(found, 1):
        if isinstance(topic, TopicInfo):
            to_delete[topic.name] = topic.id
        if not number % CHEAP:
            yield PAUSE
    if not to_delete:
        return (yield from _answer(found, {}))
    client_fields = of_call(call, ApiKey.DELETE_TOPICS)
    change = call.broker.changes.request_change(lambda token: DeleteTopics(token, to_delete, client_fields))
    waiting = DelayedTopicChange(change)
    deadline = call.now.steady + max(body.timeout_ms, 0)

    def answer() -> Parts[DeleteTopicsResponse]:
        return _answer(found, {name: waiting.refusal(name) for name in to_delete})

    return (yield from parked(waiting, deadline, len(found), answer))


def refuse(call: Call, body: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_result(requested, Refused(code)) for requested in _requested_topics(call, body)]
    )


def _requested_topics(call: Call, body: DeleteTopicsRequest) -> Iterator[_TopicToDelete]:
    if call.version < BY_STATE_SINCE:
        return (_TopicToDelete(name, ZERO_UUID) for name in body.topic_names)
    return (_TopicToDelete(topic.name, Uuid(topic.topic_id)) for topic in body.topics)


def _find_topics(call: Call, requested: Iterable[_TopicToDelete]) -> Parts[Found]:
    """Return each topic once, last one first, with its metadata or the reason why it is not deleted.

    A topic that is named by both its name and its id is named twice.
    """
    duplicate = Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    unclear = Refused(ErrorCode.INVALID_REQUEST, "specify either the topic name or the topic id")
    found: dict[_TopicToDelete, TopicInfo | Refused] = {}
    named: Counter[TopicName] = Counter()
    results: Found = []
    for requested_topic in requested:
        if requested_topic.is_clear:
            found[requested_topic] = duplicate if requested_topic in found else _find(call, requested_topic)
        else:
            results.append((requested_topic, unclear))
        yield
    results.reverse()
    for number, topic in enumerate(found.values(), 1):
        if isinstance(topic, TopicInfo):
            named[topic.name] += 1
        if not number % CHEAP:
            yield
    while found:  # Freed one by one, because freeing all of them at the end takes long.
        requested_topic, topic = found.popitem()
        if isinstance(topic, Refused):
            is_hidden = topic.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results.append((_with_name(call, requested_topic) if is_hidden else requested_topic, topic))
        elif named[topic.name] == 1:
            results.append((requested_topic, topic))
        elif requested_topic.name is not None:
            results.append((_TopicToDelete(topic.name, topic.id), duplicate))
        yield
    return results


def _find(call: Call, requested: _TopicToDelete) -> TopicInfo | Refused:
    name = call.broker.view.names.get(requested.id) if requested.name is None else TopicName(requested.name)
    if name is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if not _may_delete(call, name):
        return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{call.principal} is not authorized to delete the topic")
    text = "This server does not host this topic-partition."
    return call.broker.view.topics.get(name) or Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _may_delete(call: Call, name: str) -> bool:
    is_for_all = call.may(Operation.DELETE, ResourceType.CLUSTER)
    return is_for_all or call.may(Operation.DELETE, ResourceType.TOPIC, name)


def _with_name(call: Call, requested: _TopicToDelete) -> _TopicToDelete:
    """Add the topic's name if the client named it by id and may describe it."""
    name = call.broker.view.names.get(requested.id)
    if requested.name is not None or name is None or not call.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return requested
    return _TopicToDelete(name, requested.id)


def _answer(found: Found, refusals: Mapping[TopicName, Refused | None]) -> Parts[DeleteTopicsResponse]:
    results = []
    while found:
        requested, topic = found.pop()
        if isinstance(topic, Refused):
            results.append(_result(requested, topic))
        else:
            results.append(_result(_TopicToDelete(topic.name, topic.id), refusals.get(topic.name)))
        yield
    return DeleteTopicsResponse(responses=results)


def _result(requested: _TopicToDelete, refused: Refused | None) -> DeletableTopicResult:
    code, text = (ErrorCode.NONE, None) if refused is None else (refused.code, refused.detail or None)
    return DeletableTopicResult(name=requested.name, topic_id=requested.id, error_code=code, error_message=text)
