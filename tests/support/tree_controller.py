"""Contents of the metadata tree written by brokers."""

from __future__ import annotations

from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import NoNode, Tree


def controller_in(tree: Tree) -> int:
    """Return the controller's id, or -1 if there is none."""
    try:
        return layout.decode_controller(tree.get(layout.CONTROLLER)[0]).broker
    except NoNode:
        return -1
