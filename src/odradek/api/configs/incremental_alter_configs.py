"""IncrementalAlterConfigs, versions 0 and 1.

Sets or deletes single configuration keys, and appends to or subtracts from lists (KIP-339).
"""

from __future__ import annotations

from odradek.api.configs.config_changes import Key, apply_changes, response_maker
from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.base.errors import ErrorCode, Refused
from odradek.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.wire.schema.api_keys import ApiKey


def handle(call: Call, body: IncrementalAlterConfigsRequest) -> Slices:
    return apply_changes(
        call,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        body.resources,
        keys=_keys,
        resource_response=_resource_response,
        answer=_answer,
        is_dry=body.validate_only,
    )


def refuse(call: Call, body: IncrementalAlterConfigsRequest, code: ErrorCode) -> IncrementalAlterConfigsResponse:
    return _answer([_resource_response(resource, Refused(code)) for resource in body.resources])


_resource_response = response_maker(AlterConfigsResourceResponse)


def _keys(resource: AlterConfigsResource) -> list[Key]:
    return [(config.name, config.config_operation, config.value) for config in resource.configs]


def _answer(responses: list[AlterConfigsResourceResponse]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=responses)
