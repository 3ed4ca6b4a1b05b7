"""AlterConfigs: replacement of the whole configuration of topics and brokers.

Configurations that the request does not name are reset to their defaults. v1: throttled after the answer (KIP-219). v2:
flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, struct


@struct
class AlterableConfig:
    name: Str
    value: Str | None


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: Str
    configs: list[AlterableConfig]


@message(api_key=ApiKey.ALTER_CONFIGS, kind="request", versions=(0, 2), flexible_from=2)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: Str | None
    resource_type: Int8
    resource_name: Str


@message(api_key=ApiKey.ALTER_CONFIGS, kind="response", versions=(0, 2), flexible_from=2)
class AlterConfigsResponse:
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]
