"""CreatePartitions, versions 0 to 3.

Adds partitions to topics (KIP-195). The number of partitions cannot be reduced.

- v2: flexible.
- v3: may be throttled; the layout is the same (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.api.request.call import Call
from odradek.api.request.log_fields import of_call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import Parts, parked
from odradek.api.topics.topic_changes import DelayedTopicChange, find_duplicates
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.broker.effects import CreatePartitions, NewPartitions
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.wire.schema.api_keys import ApiKey

Plans = dict[TopicName, NewPartitions | Refused]


def handle(call: Call, body: CreatePartitionsRequest) -> Slices:
    call.check_controller()
    plans, growth = yield from _plans(call, body)
    if body.validate_only or not growth:
        return (yield from _answer(plans, lambda name: None))
    client_fields = of_call(call, ApiKey.CREATE_PARTITIONS)
    change = call.broker.changes.request_change(lambda token: CreatePartitions(token, growth, client_fields))
    waiting = DelayedTopicChange(change)
    deadline = call.now.steady + max(body.timeout_ms, 0)
    return (yield from parked(waiting, deadline, len(plans), lambda: _answer(plans, waiting.refusal)))


def refuse(call: Call, body: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_result(topic.name, Refused(code)) for topic in body.topics])


def _plans(call: Call, body: CreatePartitionsRequest) -> Parts[tuple[Plans, dict[TopicName, NewPartitions]]]:
    """Return the growth or the refusal of each topic, and all growths as a separate mapping."""
    duplicates = yield from find_duplicates(topic.name for topic in body.topics)
    plans: Plans = {}
    growth: dict[TopicName, NewPartitions] = {}
    for topic in body.topics:
        name = TopicName(topic.name)
        try:
            if name in duplicates:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            plans[name] = growth[name] = _plan(call, topic)
        except Refused as refused:
            plans[name] = refused
        yield
    return plans, growth


def _plan(call: Call, topic: CreatePartitionsTopic) -> NewPartitions:
    call.check(Operation.ALTER, ResourceType.TOPIC, topic.name)
    known = call.broker.view.topics.get(TopicName(topic.name))
    if known is None:
        text = "This server does not host this topic-partition."
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    assignments = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    added = call.broker.planner.more_partitions(known, topic.count, assignments, call.broker.view)
    return NewPartitions(len(known.partitions), added)


def _answer(plans: Plans, refusal: Callable[[TopicName], Refused | None]) -> Parts[CreatePartitionsResponse]:
    results = []
    for name, plan in plans.items():
        results.append(_result(name, plan if isinstance(plan, Refused) else refusal(name)))
        yield
    return CreatePartitionsResponse(results=results)


def _result(name: str, refused: Refused | None) -> CreatePartitionsTopicResult:
    code, text = (ErrorCode.NONE, None) if refused is None else (refused.code, refused.detail or None)
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=text)
