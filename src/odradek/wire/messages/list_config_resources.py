"""ListConfigResources: the names of resources with configurations (KIP-1142).

KIP-714 introduced it as ListClientMetricsResources. v0: client metrics only. v1: any resource type.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct

CLIENT_METRICS = 16


@message(api_key=ApiKey.LIST_CONFIG_RESOURCES, kind="request", versions=(0, 1), flexible_from=0)
class ListConfigResourcesRequest:
    resource_types: list[Int8] = since(1, default_factory=list)


@struct
class ConfigResource:
    resource_name: Str
    resource_type: Int8 = since(1, default=CLIENT_METRICS, ignorable=True)


@message(api_key=ApiKey.LIST_CONFIG_RESOURCES, kind="response", versions=(0, 1), flexible_from=0)
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    config_resources: list[ConfigResource]
