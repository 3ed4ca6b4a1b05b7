"""CreateTopics, versions 2 to 7.

Creates topics. Each topic is created or refused independently. With validate_only, nothing is written.

- v4: -1 as the number of partitions or the replication factor means the broker's default (KIP-464).
- v5: flexible. The response contains the configuration of each created topic (KIP-525).
- v7: the response contains the topic ids.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.api.request.call import Call
from odradek.api.request.log_fields import of_call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, parked
from odradek.api.topics.topic_changes import DelayedTopicChange, find_duplicates
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import ZERO_UUID
from odradek.core.broker.effects import CreateTopics
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.topics.topic_plans import PARTITIONS_PER_REQUEST_MAX, UNSET, TopicSpec
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.schema.api_keys import ApiKey

Plans = dict[str, TopicInfo | Refused]
ConfigLists = dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]]


def handle(call: Call, body: CreateTopicsRequest) -> Slices:
    call.check_controller()
    if (yield from _partitions(call, body)) > PARTITIONS_PER_REQUEST_MAX:
        return (yield from _too_many(body))
    plans = yield from _plans(call, body)
    planned = tuple(plan for plan in plans.values() if isinstance(plan, TopicInfo))
    if body.validate_only or not planned:
        return (yield from _answer(call, plans, {}, is_dry=body.validate_only))
    client_fields = of_call(call, ApiKey.CREATE_TOPICS)
    change = call.broker.changes.request_change(lambda token: CreateTopics(token, planned, client_fields))
    waiting = DelayedTopicChange(change)
    deadline = call.now.steady + max(body.timeout_ms, 0)
    return (yield from parked(waiting, deadline, len(plans), lambda: _answer(call, plans, _refusals(planned, waiting))))


def refuse(call: Call, body: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(topic.name, Refused(code)) for topic in body.topics])


def _too_many(body: CreateTopicsRequest) -> Parts[CreateTopicsResponse]:
    text = f"the request creates more than {PARTITIONS_PER_REQUEST_MAX} partitions"
    refused = Refused(ErrorCode.POLICY_VIOLATION, text)
    results = []
    for topic in body.topics:
        results.append(_refused(topic.name, refused))
        yield
    return CreateTopicsResponse(topics=results)


def _partitions(call: Call, body: CreateTopicsRequest) -> Parts[int]:
    default, total = call.broker.planner.partitions_default, 0
    for number, topic in enumerate(body.topics, 1):
        if _may_create(call, topic.name):
            count = len(topic.assignments) or topic.num_partitions
            total += default if count == UNSET else max(count, 0)
        if not number % CHEAP:
            yield
    return total


def _plans(call: Call, body: CreateTopicsRequest) -> Parts[Plans]:
    duplicates = yield from find_duplicates(topic.name for topic in body.topics)
    plans: Plans = {}
    for topic in body.topics:
        try:
            if topic.name in duplicates:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            plans[topic.name] = _plan(call, topic)
        except Refused as refused:
            plans[topic.name] = refused
        yield
    return plans


def _may_create(call: Call, name: str) -> bool:
    is_for_all = call.may(Operation.CREATE, ResourceType.CLUSTER)
    return is_for_all or call.may(Operation.CREATE, ResourceType.TOPIC, name)


def _plan(call: Call, topic: CreatableTopic) -> TopicInfo:
    planner, view = call.broker.planner, call.broker.view
    if not _may_create(call, topic.name):
        text = f"{call.principal} is not authorized to create the topic"
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
    name = planner.check_name(topic.name, view)
    overrides = {config.name: config.value for config in topic.configs}
    call.broker.configs.check_topic(overrides)
    spec = TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {name: value for name, value in overrides.items() if value is not None},
    )
    return planner.planned(name, spec, view)


def _refusals(planned: tuple[TopicInfo, ...], waiting: DelayedTopicChange) -> dict[str, Refused]:
    refusals = ((topic.name, waiting.refusal(topic.name)) for topic in planned)
    return {name: refusal for name, refusal in refusals if refusal is not None}


def _answer(
    call: Call, plans: Plans, late: Mapping[str, Refused], *, is_dry: bool = False
) -> Parts[CreateTopicsResponse]:
    results = []
    config_lists: ConfigLists = {}  # Topics with the same configuration share one list.
    for name, plan in plans.items():
        outcome = late.get(name, plan)
        if isinstance(outcome, Refused):
            results.append(_refused(name, outcome))
        elif not call.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, outcome.name):
            results.append(_created_without_configs(outcome, is_dry))
        else:
            results.append(_created(outcome, _configs(call, outcome, config_lists), is_dry))
        yield
    return CreateTopicsResponse(topics=results)


def _refused(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=ZERO_UUID, error_code=refused.code, error_message=refused.detail or None, configs=[]
    )


def _configs(call: Call, topic: TopicInfo, config_lists: ConfigLists) -> list[CreatableTopicConfigs]:
    key = frozenset(topic.configs.items())
    if key not in config_lists:
        config_lists[key] = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in call.broker.configs.for_topic(topic.configs).describe()
        ]
    return config_lists[key]


def _created(topic: TopicInfo, configs: list[CreatableTopicConfigs], is_dry: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        name=topic.name,
        topic_id=ZERO_UUID if is_dry else topic.id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )


def _created_without_configs(topic: TopicInfo, is_dry: bool) -> CreatableTopicResult:
    """Return the result for a client that may not see the topic's configuration."""
    return CreatableTopicResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        name=topic.name,
        topic_id=ZERO_UUID if is_dry else topic.id,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        configs=[],
    )
