"""DescribeCluster: the brokers, the controller and the caller's authorized operations (KIP-700).

Flexible from v0. v1: endpoint_type, brokers or controllers (KIP-919). v2: fenced brokers (KIP-1073).
"""

from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import AUTHORIZED_OPERATIONS_OMITTED, Bool, Int8, Int16, Int32, Str
from odradek.wire.schema.schema import field, message, since, struct


@message(api_key=ApiKey.DESCRIBE_CLUSTER, kind="request", versions=(0, 2), flexible_from=0)
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: Str
    port: Int32
    rack: Str | None = field(default=None)
    is_fenced: Bool = since(2, default=False)


@message(api_key=ApiKey.DESCRIBE_CLUSTER, kind="response", versions=(0, 2), flexible_from=0)
class DescribeClusterResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: Str | None = field(default=None)
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: Str
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)
