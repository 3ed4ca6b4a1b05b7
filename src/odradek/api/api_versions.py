"""ApiVersions, versions 0 to 5.

The first request of nearly every client.  v3: flexible request and answer, but the answer keeps the old header, since
the client can't know yet what we speak (KIP-511).  A version that is not known here is answered as v0 with
UNSUPPORTED_VERSION and the versions of this API, so that the client can come again with one of them.  v5: the
client says which cluster and broker it believes to talk to (KIP-1242).
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
FROM_ZERO_SINCE = 4  # Before, a feature could not be told whose first level is 0 (KIP-1022).
CLUSTER_NAMED_SINCE = 5
NO_FEATURES_EPOCH = -1


def handle(call: Call, body: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_NAMED_SINCE:
        names = (body.client_software_name, body.client_software_version)
        if not all(map(SOFTWARE.fullmatch, names)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        call.peer.software = " ".join(names)
    code = _check_meant(call, body) if call.version >= CLUSTER_NAMED_SINCE else ErrorCode.NONE
    if code:
        return ApiVersionsResponse(error_code=code, api_keys=[])
    protocol = call.broker.protocol
    # What clients go by: from level 2 of transaction.version on, each transaction has an epoch of its own (KIP-890).
    features = protocol.features
    supported = features if call.version >= FROM_ZERO_SINCE else {}
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=list(table_of(protocol, in_cluster=call.broker.controller_asks is not None).advertised),
        supported_features=[
            SupportedFeatureKey(name=one, min_version=0, max_version=top) for one, top in supported.items()
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
    """The answer to a version we do not know, to be encoded as version 0."""
    known = BY_KEY[ApiKey.API_VERSIONS].advertisement
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])


def _check_meant(call: Call, body: ApiVersionsRequest) -> ErrorCode:
    """Return what is wrong with the cluster and broker that the client names: both or neither, and these."""
    if body.cluster_id is None and body.node_id == -1:
        return ErrorCode.NONE
    if body.cluster_id is None or body.node_id == -1:
        return ErrorCode.INVALID_REQUEST
    is_this = (body.cluster_id, body.node_id) == (call.broker.view.cluster_id, call.broker.id)
    return ErrorCode.NONE if is_this else ErrorCode.REBOOTSTRAP_REQUIRED
