"""DescribeConfigs, versions 1 to 4.

Returns the configuration of topics and brokers, with the source of each value and the values that would apply without
it.

- v1: synonyms (KIP-226).
- v3: types and documentation (KIP-569).
- v4: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.configs.config_resources import ResourceType
from odradek.api.request.call import Call
from odradek.api.request.repeated_names import REPEATS_MAX
from odradek.api.request.sliced_response import Parts, pauses
from odradek.base.errors import ErrorCode, Refused
from odradek.core.configs.definition import ConfigEntry
from odradek.core.kernel import access, topic_names
from odradek.core.kernel.access import Operation
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

CONFIGS_PER_PART = 4


def handle(call: Call, body: DescribeConfigsRequest) -> Parts[DescribeConfigsResponse]:
    return _answer(call, body)


def _answer(call: Call, body: DescribeConfigsRequest) -> Parts[DescribeConfigsResponse]:
    results = []
    named: set[tuple[int, str]] = set()
    call.free_later(named)
    repeats = 0
    for resource in body.resources:
        name = (resource.resource_type, resource.resource_name)
        repeats += name in named
        named.add(name)
        if repeats > REPEATS_MAX:
            refused = Refused(ErrorCode.INVALID_REQUEST, "the request repeats too many resources")
            results.append(_refused(resource, refused))
        else:
            result = _result(call, body, resource)
            results.append(result)
            yield from pauses(len(result.configs) // CONFIGS_PER_PART)
        yield
    return DescribeConfigsResponse(results=results)


def refuse(call: Call, body: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_refused(resource, Refused(code)) for resource in body.resources])


def _result(call: Call, body: DescribeConfigsRequest, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    try:
        entries = _entries(call, resource)
    except Refused as refused:
        return _refused(resource, refused)
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_describe(entry, body.include_synonyms, body.include_documentation) for entry in entries],
    )


def _refused(resource: DescribeConfigsResource, refused: Refused) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=refused.code,
        error_message=refused.detail or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _entries(call: Call, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    # An empty list means all keys, as null does.
    names = resource.configuration_keys or None
    if resource.resource_type == ResourceType.TOPIC:
        call.check(Operation.DESCRIBE_CONFIGS, access.ResourceType.TOPIC, resource.resource_name)
        return _topic_entries(call, resource.resource_name, names)
    if resource.resource_type == ResourceType.BROKER:
        call.check(Operation.DESCRIBE_CONFIGS, access.ResourceType.CLUSTER)
        return _broker_entries(call, resource.resource_name, names)
    raise Refused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}")


def _topic_entries(call: Call, name: str, names: list[str] | None) -> Iterable[ConfigEntry]:
    topic = call.broker.view.topics.get(topic_names.checked(name))
    if topic is None:
        text = "This server does not host this topic-partition."
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return call.broker.configs.for_topic(topic.configs).describe(names)


def _broker_entries(call: Call, name: str, names: list[str] | None) -> Iterable[ConfigEntry]:
    if name == "":
        return call.broker.configs.describe_for_all(names)
    if name != str(call.broker.id):
        text = f"Unexpected broker id, expected {call.broker.id} or empty string, but received {name}"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    return call.broker.configs.describe(names)


def _describe(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type_code,
        documentation=entry.documentation if documentation else None,
    )
