"""Permissions of principals: operations on resources, with the protocol's codes.

Access control itself does not exist yet: every principal may do everything (`EVERYTHING`).  The checks are complete:
each API checks every resource before it acts, so a request may be denied one of two topics.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode


class ResourceType(IntEnum):
    """Codes of resource types in ACL bindings on the wire."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """Codes of operations in ACL bindings on the wire.

    Bit n of an authorized-operations field is the operation with code n.
    """

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


CLUSTER_NAME = "kafka-cluster"  # The one resource of type CLUSTER.
# Errors for a denied operation, by type of the resource.
DENIED: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
assert DENIED.keys() == {*ResourceType}, "each type of resource has an error"


class Principal(NamedTuple):
    """Principal of a connection, as ACLs name it: `User:ANONYMOUS`, `User:CN=client one,O=Example`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER = "User"  # The only type of principals that Kafka itself creates.
ANONYMOUS = Principal(USER, "ANONYMOUS")


class Rights(Protocol):
    """Permissions of one principal from one host, under one version of the rules."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Return whether the operation is allowed on that resource.

        As in Apache Kafka, READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
        """

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        """Return whether the operation is allowed on any resource of the type, existing or not."""


class AllRights:
    """Rights of all principals without access control."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        return True


EVERYTHING: Rights = AllRights()


class NoClusterAction(AllRights):
    """Rights of clients if brokers have a listener of their own: everything except inter-broker requests."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return operation is not Operation.CLUSTER_ACTION


NO_CLUSTER_ACTION: Rights = NoClusterAction()
SEES_ALL = (EVERYTHING, NO_CLUSTER_ACTION)  # Rights that hold for all topics alike.
