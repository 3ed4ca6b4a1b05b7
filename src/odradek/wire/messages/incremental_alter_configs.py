"""IncrementalAlterConfigs: changes of single configuration keys of topics and brokers (KIP-339).

Keys can be set, deleted, appended to and subtracted from. v1: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, struct


@struct
class AlterableConfig:
    name: Str
    config_operation: Int8
    value: Str | None


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: Str
    configs: list[AlterableConfig]


@message(api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, kind="request", versions=(0, 1), flexible_from=1)
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: Str | None
    resource_type: Int8
    resource_name: Str


@message(api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, kind="response", versions=(0, 1), flexible_from=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]
