"""Authorized operations as a bit field (KIP-430): bit n is the operation with code n.

The field has the operations that apply to the resource's type and that the request's principal may perform on it.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.core.kernel.access import CLUSTER_NAME, EVERYTHING, SEES_ALL, Operation, ResourceType

NOT_REQUESTED = -(1 << 31)
NOTHING = 0

_SUPPORTED = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
_ALL = {resource: sum(1 << operation for operation in operations) for resource, operations in _SUPPORTED.items()}


def topic(call: Call, name: str) -> int:
    return _bits(call, ResourceType.TOPIC, name)


def group(call: Call, group_id: str) -> int:
    return _bits(call, ResourceType.GROUP, group_id)


def cluster(call: Call, is_requested: bool) -> int:
    """Return the bits of the cluster; NOTHING if the client may not describe it."""
    if not is_requested:
        return NOT_REQUESTED
    is_seen = call.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    return _bits(call, ResourceType.CLUSTER, CLUSTER_NAME) if is_seen else NOTHING


def _bits(call: Call, resource: ResourceType, name: str) -> int:
    # Metadata calls this for each of all topics.
    if call.rights is EVERYTHING or (resource is not ResourceType.CLUSTER and call.rights in SEES_ALL):
        return _ALL[resource]
    return sum(1 << operation for operation in _SUPPORTED[resource] if call.may(operation, resource, name))
