"""The ACLs that Kafka's authorizer keeps in the tree: a node for each resource, below its type.

/kafka-acl/Topic/flights, and /kafka-acl-extended/prefixed/Topic/fl for all topics whose names begin so (KIP-290).
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree, children_if_there

_EXTENDED = layout.PREFIXED_ACL.rpartition("/")[0]


def first_acl(tree: Tree) -> str | None:
    """Returns the path of a resource that has ACLs; None if none has.

    Types alone are no ACLs: an authorizer makes their nodes when it starts, and a resource's goes with its last ACL.
    """
    for types in _roots(tree):
        for resource_type in children_if_there(tree, types):
            path = f"{types}/{resource_type}"
            for name in children_if_there(tree, path):
                return f"{path}/{name}"
    return None


def _roots(tree: Tree) -> Iterator[str]:
    """Yields what has the types below it: a way to name resources that is newer than prefixes may be there, too."""
    yield layout.ACL
    for pattern in children_if_there(tree, _EXTENDED):
        yield f"{_EXTENDED}/{pattern}"
