"""Exclusive claims of cluster, broker and producer ids, and of the controller, by conditional changes.

The controller's claim is returned as operations, because a lone broker registers with the same change.
"""

from __future__ import annotations

from odradek.base.units import INT64_MAX, BrokerId, TimestampMs
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Tree,
    ensure_paths,
    parent_of,
)
from odradek.coordination.znodes import (
    ProducerIdBlock,
    decode_cluster_id,
    decode_producer_ids,
    encode_cluster_id,
    encode_producer_ids,
)

PRODUCER_IDS_PER_BLOCK = 1000


def cluster_id(tree: Tree, proposed: str) -> str:
    """Return the cluster's id; if there is none, set the proposed one, and the first proposal wins."""
    try:
        return decode_cluster_id(tree.get(layout.CLUSTER_ID)[0])
    except NoNode:
        pass
    ensure_paths(tree, [parent_of(layout.CLUSTER_ID)])
    try:
        tree.create(layout.CLUSTER_ID, encode_cluster_id(proposed))
    except NodeExists:
        return decode_cluster_id(tree.get(layout.CLUSTER_ID)[0])
    return proposed


def broker_id(tree: Tree, reserved_max: int) -> BrokerId:
    """Return a new id above `reserved_max` (reserved.broker.max.id), counted by a znode's version."""
    try:
        stat = tree.set(layout.BROKER_SEQUENCE, b"")
    except NoNode:
        ensure_paths(tree, [layout.BROKER_SEQUENCE])
        stat = tree.set(layout.BROKER_SEQUENCE, b"")
    return BrokerId(reserved_max + stat.version)


def controller(tree: Tree, broker: BrokerId, now: TimestampMs) -> list[Operation]:
    """Return the operations that make a broker the controller of the next epoch, unless another is first.

    /controller_epoch must exist.
    """
    data, stat = tree.get(layout.CONTROLLER_EPOCH)
    epoch = (layout.decode_controller_epoch(data) if data else 0) + 1
    return [
        Create(layout.CONTROLLER, layout.encode_controller(layout.Controller(broker, now)), ephemeral=True),
        SetData(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch), stat.version),
    ]


def producer_ids(tree: Tree, broker: BrokerId, at_least: int = 0) -> ProducerIdBlock:
    """Return a block of producer ids for this broker only, none below `at_least`.

    Raises OverflowError if none are left, and the errors of the tree.
    """
    while True:
        try:
            data, stat = tree.get(layout.PRODUCER_ID_BLOCK)
        except NoNode:
            ensure_paths(tree, [layout.PRODUCER_ID_BLOCK])
            continue
        free = decode_producer_ids(data).last + 1 if data else 0
        first = max(free, -(-at_least // PRODUCER_IDS_PER_BLOCK) * PRODUCER_IDS_PER_BLOCK)
        last = first + PRODUCER_IDS_PER_BLOCK - 1
        if last > INT64_MAX:
            raise OverflowError("All producer ids are exhausted.")
        block = ProducerIdBlock(broker, first, last)
        try:
            tree.set(layout.PRODUCER_ID_BLOCK, encode_producer_ids(block), stat.version)
        except BadVersion:
            continue
        return block
