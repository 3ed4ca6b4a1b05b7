"""Authorized operations as a bit field (KIP-430): bit n is the operation with code n.

Without access control everything that applies to a resource is allowed, and said to be.
"""

from __future__ import annotations

from odradek.core.access import Operation

NOT_ASKED = -(1 << 31)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_GROUP = _bits(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_CLUSTER = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def topic(asked: bool) -> int:
    return _TOPIC if asked else NOT_ASKED


def cluster(asked: bool) -> int:
    return _CLUSTER if asked else NOT_ASKED


def group(asked: bool) -> int:
    return _GROUP if asked else NOT_ASKED
