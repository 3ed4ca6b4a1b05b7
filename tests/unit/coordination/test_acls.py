"""Detection of ACLs in all implementations of Tree: nodes of resources count, nodes of resource types do not."""

from __future__ import annotations

import pytest

from odradek.coordination import tree_layout as layout
from odradek.coordination.acls import first_acl
from odradek.coordination.tree import Tree, ensure_paths

# Nodes created at startup by an authorizer of Kafka 3.9.
TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
STARTED = [f"{root}/{name}" for root in (layout.ACL, layout.PREFIXED_ACL) for name in TYPES]


def test_nodes_of_resource_types_are_not_acls(tree: Tree) -> None:
    assert first_acl(tree) is None
    ensure_paths(tree, [*STARTED, layout.ACL_CHANGES, layout.PREFIXED_ACL_CHANGES])
    assert first_acl(tree) is None


@pytest.mark.parametrize(
    "path",
    [
        layout.acl("Topic", "flights"),
        layout.acl("Cluster", "kafka-cluster"),
        layout.acl("Group", "fl", prefixed=True),
        "/kafka-acl-extended/match/Topic/fl*",  # Not used by any version of Kafka so far.
    ],
)
@pytest.mark.parametrize("has_types", [True, False])
def test_acls_of_any_resource_are_found(tree: Tree, path: str, has_types: bool) -> None:
    ensure_paths(tree, [*(STARTED if has_types else ()), path])
    assert first_acl(tree) == path
    tree.delete(path)
    assert first_acl(tree) is None
