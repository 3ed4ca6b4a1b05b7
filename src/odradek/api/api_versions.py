"""ApiVersions, versions 0 to 5.

Returns the APIs and versions that this broker supports, and its features. Nearly every client sends it first. A request
in an unsupported version is answered as version 0, with UNSUPPORTED_VERSION and the supported versions of ApiVersions,
so that the client can retry.

- v3: the request and response bodies are flexible. The response keeps the old header, because the client does not yet
  know which versions the broker supports (KIP-511).
- v4: a feature may have 0 as its lowest level (KIP-1022).
- v5: the client names the cluster and the broker that it expects (KIP-1242). If they do not match this broker, the
  error is REBOOTSTRAP_REQUIRED.
"""

from __future__ import annotations

import re

from odradek.api.request.call import Call
from odradek.api.table import BY_KEY, table_of
from odradek.base.errors import ErrorCode
from odradek.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.wire.schema.api_keys import ApiKey

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_NAMED_SINCE = 3
FROM_ZERO_SINCE = 4  # Earlier versions cannot express a feature whose lowest level is 0 (KIP-1022).
CLUSTER_NAMED_SINCE = 5
NO_FEATURES_EPOCH = -1


def handle(call: Call, body: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_NAMED_SINCE:
        names = (body.client_software_name, body.client_software_version)
        if not all(map(SOFTWARE.fullmatch, names)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        call.peer.software = " ".join(names)
    code = _check_target(call, body) if call.version >= CLUSTER_NAMED_SINCE else ErrorCode.NONE
    if code:
        return ApiVersionsResponse(error_code=code, api_keys=[])
    protocol = call.broker.protocol
    # Clients rely on this: from transaction.version 2, each transaction has an epoch of its own (KIP-890).
    features = protocol.features
    supported = features if call.version >= FROM_ZERO_SINCE else {}
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=list(table_of(protocol, in_cluster=call.broker.controller_queries is not None).advertised),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=0, max_version=max_level)
            for name, max_level in supported.items()
        ],
        finalized_features_epoch=0 if features else NO_FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.items()
        ],
    )


def refuse(call: Call, body: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code, api_keys=[])


def unknown_version() -> ApiVersionsResponse:
    """Return the response to an unsupported version, to be encoded as version 0."""
    known = BY_KEY[ApiKey.API_VERSIONS].advertisement
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])


def _check_target(call: Call, body: ApiVersionsRequest) -> ErrorCode:
    """Return the error for the cluster and broker that the client names, NONE if they are right.

    The client names both or neither, and they must be this cluster and this broker.
    """
    if body.cluster_id is None and body.node_id == -1:
        return ErrorCode.NONE
    if body.cluster_id is None or body.node_id == -1:
        return ErrorCode.INVALID_REQUEST
    is_this = (body.cluster_id, body.node_id) == (call.broker.view.cluster_id, call.broker.id)
    return ErrorCode.NONE if is_this else ErrorCode.REBOOTSTRAP_REQUIRED
