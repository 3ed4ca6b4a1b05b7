"""DescribeConfigs: the configuration of topics and brokers, with the source of each value.

v1: config_source and synonyms instead of is_default (KIP-226). v2: throttled after the answer (KIP-219). v3: types and
documentation (KIP-569). v4: flexible.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct


@struct
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: Str
    configuration_keys: list[Str] | None


@message(api_key=ApiKey.DESCRIBE_CONFIGS, kind="request", versions=(0, 4), flexible_from=4)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = since(1, default=False)
    include_documentation: Bool = since(3, default=False)


@struct
class DescribeConfigsSynonym:
    name: Str
    value: Str | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    name: Str
    value: Str | None
    read_only: Bool
    is_default: Bool = field(default=False, until=0)
    config_source: Int8 = since(1, default=-1, ignorable=True)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym] = since(1, default_factory=list, ignorable=True)
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: Str | None = since(3, default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: Int16
    error_message: Str | None
    resource_type: Int8
    resource_name: Str
    configs: list[DescribeConfigsResourceResult]


@message(api_key=ApiKey.DESCRIBE_CONFIGS, kind="response", versions=(0, 4), flexible_from=4)
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult]
