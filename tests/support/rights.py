"""Permissions as a list of allowed operations, like ACLs with literal names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from odradek.core.kernel.access import CLUSTER_NAME, Operation, ResourceType

_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Rule(NamedTuple):
    operation: Operation
    resource: ResourceType
    name: str


def on(resource: ResourceType, *names: str, may: Collection[Operation]) -> Iterator[Rule]:
    return (Rule(operation, resource, name) for name in names for operation in may)


def on_cluster(*operations: Operation) -> Iterator[Rule]:
    return on(ResourceType.CLUSTER, CLUSTER_NAME, may=operations)


class Granted:
    """The operations that these rules allow, and no others."""

    def __init__(self, rules: Collection[Rule] = ()) -> None:
        self._rules = frozenset(rules)

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        operations = (operation, *_IMPLIED_BY.get(operation, ()))
        return any(Rule(one, resource, name) in self._rules for one in operations)

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        return any(rule[:2] == (operation, resource) for rule in self._rules)
