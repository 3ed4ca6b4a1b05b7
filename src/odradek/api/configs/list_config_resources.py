"""ListConfigResources, versions 0 and 1.

Lists the topics, brokers and other resources that have a configuration. The default configuration of all brokers is not
listed.

- v0: lists only client metrics, of which Odradek has none.
- v1: lists resources of the requested types, or of all types if the request names none (KIP-1142).
"""

from __future__ import annotations

from odradek.api.configs.config_resources import ResourceType
from odradek.api.request.call import Call
from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.core.kernel import access
from odradek.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES = frozenset(ResourceType)


def handle(call: Call, body: ListConfigResourcesRequest) -> Parts[ListConfigResourcesResponse]:
    return _answer(call, body)


def refuse(call: Call, body: ListConfigResourcesRequest, code: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


def _answer(call: Call, body: ListConfigResourcesRequest) -> Parts[ListConfigResourcesResponse]:
    try:
        call.check(access.Operation.DESCRIBE_CONFIGS, access.ResourceType.CLUSTER)
    except Refused as refused:
        return refuse(call, body, refused.code)
    types = {ResourceType.CLIENT_METRICS} if call.version == 0 else set(body.resource_types) or _TYPES
    if not types <= _TYPES:
        return refuse(call, body, ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker) for broker in call.broker.view.brokers]
    names = {ResourceType.BROKER: brokers, ResourceType.BROKER_LOGGER: brokers}
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in names
        for name in names[kind]
        if kind in types
    ]
    for number, name in enumerate(list(call.broker.view.topics) if ResourceType.TOPIC in types else (), 1):
        found.append(ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC))
        if not number % CHEAP:
            yield
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=found)
