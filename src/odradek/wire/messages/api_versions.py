"""ApiVersions: the supported APIs and versions of the broker, normally a client's first request.

v1: throttle time. v2: throttled after the answer (KIP-219). v3: flexible; the client's name and version (KIP-511),
features (KIP-584). v4: features may start at version 0 (KIP-1022). v5: the broker and cluster that the client expects.
The answer to an unknown version is UNSUPPORTED_VERSION in v0.
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import Bool, Int16, Int32, Int64, Str
from odradek.wire.schema.schema import message, since, struct


@message(api_key=ApiKey.API_VERSIONS, kind="request", versions=(0, 5), flexible_from=3)
class ApiVersionsRequest:
    client_software_name: Str = since(3, default="", ignorable=True)
    client_software_version: Str = since(3, default="", ignorable=True)
    cluster_id: Str | None = since(5, default=None, ignorable=True)
    node_id: Int32 = since(5, default=-1, ignorable=True)


@struct
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: Str
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    name: Str
    max_version_level: Int16
    min_version_level: Int16


@message(api_key=ApiKey.API_VERSIONS, kind="response", versions=(0, 5), flexible_from=3)
class ApiVersionsResponse:
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = since(3, default_factory=list, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = since(3, default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = since(3, default_factory=list, tag=2, ignorable=True)
    zk_migration_ready: Bool = since(3, default=False, tag=3, ignorable=True)
