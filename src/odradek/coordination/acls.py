"""The ACLs of Kafka's authorizer in the tree: one node for each resource, below its type.

/kafka-acl/Topic/flights, and /kafka-acl-extended/prefixed/Topic/fl for all topics with this name prefix (KIP-290).
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree, children_if_there

_EXTENDED = layout.PREFIXED_ACL.rpartition("/")[0]


def first_acl(tree: Tree) -> str | None:
    """Return the path of a resource that has ACLs, or None if there is none.

    Types alone do not count: an authorizer creates their nodes when it starts. A resource's node is deleted with its
    last ACL.
    """
    for types in _roots(tree):
        for resource_type in children_if_there(tree, types):
            path = f"{types}/{resource_type}"
            for name in children_if_there(tree, path):
                return f"{path}/{name}"
    return None


def _roots(tree: Tree) -> Iterator[str]:
    """Yield the parents of the types, including any pattern type newer than prefixes."""
    yield layout.ACL
    for pattern in children_if_there(tree, _EXTENDED):
        yield f"{_EXTENDED}/{pattern}"
