"""IncrementalAlterConfigs, versions 0 and 1.

Sets or deletes single configuration keys, and appends to or subtracts from lists (KIP-339).
"""

from __future__ import annotations

from odradek.api.configs.config_changes import Key, altered, told_as
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
    return altered(
        call,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        body.resources,
        keys=_keys,
        told=_told,
        answer=_answer,
        is_dry=body.validate_only,
    )


def refuse(call: Call, body: IncrementalAlterConfigsRequest, code: ErrorCode) -> IncrementalAlterConfigsResponse:
    return _answer([_told(resource, Refused(code)) for resource in body.resources])


_told = told_as(AlterConfigsResourceResponse)


def _keys(resource: AlterConfigsResource) -> list[Key]:
    return [(one.name, one.config_operation, one.value) for one in resource.configs]


def _answer(responses: list[AlterConfigsResourceResponse]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=responses)
