"""DescribeCluster, versions 0 to 2.

Returns the brokers, the controller and the cluster id (KIP-700).

- v1: brokers or controllers (KIP-919); Odradek supports only brokers.
- v2: fenced brokers on request (KIP-1073); without KRaft there are none.
"""

from __future__ import annotations

from odradek.api.request import authorized_operations as authorized
from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(call: Call, body: DescribeClusterRequest) -> DescribeClusterResponse:
    if body.endpoint_type != BROKERS:
        return _wrong_endpoint(body)
    view = call.broker.view
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=view.cluster_id,
        controller_id=view.controller,
        brokers=_brokers(call),
        cluster_authorized_operations=authorized.cluster(call, body.include_cluster_authorized_operations),
    )


def refuse(call: Call, body: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, cluster_id="", brokers=[])


def _wrong_endpoint(body: DescribeClusterRequest) -> DescribeClusterResponse:
    if body.endpoint_type == CONTROLLERS:
        code, text = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "the request was sent to a broker, not a controller"
    else:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {body.endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=text, cluster_id="", brokers=[])


def _brokers(call: Call) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker, endpoint in call.reachable_brokers()
    ]
