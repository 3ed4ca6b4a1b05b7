"""AlterConfigs, versions 0 to 2.

Replaces the whole configuration of topics or brokers. A key that the request does not name is reset to its default.
Deprecated since KIP-339, because two clients undo each other's changes; IncrementalAlterConfigs changes single keys.
"""

from __future__ import annotations

from odradek.api.configs.config_changes import Key, apply_changes, response_maker
from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.base.errors import ErrorCode, Refused
from odradek.core.configs.edits import Operation
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from odradek.wire.schema.api_keys import ApiKey


def handle(call: Call, body: AlterConfigsRequest) -> Slices:
    return apply_changes(
        call,
        ApiKey.ALTER_CONFIGS,
        body.resources,
        keys=_keys,
        resource_response=_resource_response,
        answer=_answer,
        is_dry=body.validate_only,
        replaces_all=True,
    )


def refuse(call: Call, body: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    return _answer([_resource_response(resource, Refused(code)) for resource in body.resources])


_resource_response = response_maker(AlterConfigsResourceResponse)


def _keys(resource: AlterConfigsResource) -> list[Key]:
    return [(config.name, Operation.SET, config.value) for config in resource.configs]


def _answer(responses: list[AlterConfigsResourceResponse]) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=responses)
