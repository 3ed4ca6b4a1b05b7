"""What a principal may do: operations on resources, with the codes of the protocol, and who answers for them.

Access control itself is not here yet: everybody may do everything (`EVERYTHING`).  What asks is complete: each API asks
before it does anything, resource by resource, so that of two topics in a request one may be refused.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode


class ResourceType(IntEnum):
    """The codes of ACL bindings on the wire."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """The codes of ACL bindings on the wire; bit n of an authorized-operations field is the operation with code n."""

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
# What a request is told that may not do something to a resource of the type.
DENIED: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Principal(NamedTuple):
    """Who a connection is, as ACLs name him: `User:ANONYMOUS`, `User:CN=client one,O=Example`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER = "User"  # The one type of principals that Kafka makes itself.
ANONYMOUS = Principal(USER, "ANONYMOUS")


class Rights(Protocol):
    """What one principal may do from one host, under one version of the rules."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if the operation is allowed on that resource; as in Apache Kafka, READ, WRITE, DELETE and ALTER imply
        DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
        """

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        """True if the operation is allowed on at least one resource of the type, whether or not it exists."""


class Everything:
    """The rights of everybody where there is no access control."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        return True


EVERYTHING: Rights = Everything()


class NoClusterAction(Everything):
    """The rights of clients where brokers have a listener of their own: all but what brokers do among themselves."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return operation is not Operation.CLUSTER_ACTION


NO_CLUSTER_ACTION: Rights = NoClusterAction()
SEES_ALL = (EVERYTHING, NO_CLUSTER_ACTION)  # Rights that hold for all topics alike.
