"""Copy of a cluster's metadata from one tree to another while no broker runs on either.

Session-bound nodes and notifications are omitted, because a starting broker reads everything. Versions restart,
except for two significant ones: the number of broker ids assigned, and whether there ever was a topic. /cluster/id is
written last. So a partly written tree is not a cluster yet, and an interrupted copy can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import (
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Stat,
    Tree,
    ensure_paths,
    parent_of,
)

# A ZooKeeper may be shared with other programs. Excludes /migration, a migration to KRaft that has begun on the
# source.
ROOTS = (
    "/brokers",
    layout.CONTROLLER_EPOCH,
    layout.CONFIG,
    "/admin",
    layout.ISR_CHANGES,
    layout.LOG_DIR_EVENTS,
    layout.PRODUCER_ID_BLOCK,
    layout.FEATURE,
    layout.ACL,
    layout.ACL_CHANGES,
    "/kafka-acl-extended",
    layout.PREFIXED_ACL_CHANGES,
    "/delegation_token",
    layout.CONSUMERS,
)
NOTIFICATIONS = frozenset(
    {
        layout.CONFIG_CHANGES,
        layout.ISR_CHANGES,
        layout.LOG_DIR_EVENTS,
        layout.ACL_CHANGES,
        layout.PREFIXED_ACL_CHANGES,
        layout.DELEGATION_TOKEN_CHANGES,
    }
)
BATCH_NODES, BATCH_BYTES = 500, 200_000  # Limits of one multi; ZooKeeper accepts packets up to 1 MiB.


class NotCopied(Exception):
    """An error with one sentence for the user."""


class CopyResult(NamedTuple):
    """The copied nodes, bytes of their data, and topics among them."""

    nodes: int
    size: int
    topics: int


class Node(NamedTuple):
    """A node to be copied."""

    path: str
    data: bytes
    stat: Stat


def copy_metadata(source: Tree, target: Tree, *, source_name: str, target_name: str) -> CopyResult:
    """Copy everything; the names appear in messages. Raises NotCopied and the errors of the trees."""
    if source.exists(layout.CLUSTER_ID) is None:
        raise NotCopied(f"{source_name} contains no cluster")
    if target.exists(layout.CLUSTER_ID) is not None:
        raise _is_taken(target_name)
    for tree, name in ((source, source_name), (target, target_name)):
        _check_idle(tree, name)
    copied = _copy(source, target)
    _copy_counts(source, target)
    _check_same(source, target, source_name)
    for tree, name in ((source, source_name), (target, target_name)):
        _check_idle(tree, name)
    ensure_paths(target, [parent_of(layout.CLUSTER_ID)])
    try:
        target.create(layout.CLUSTER_ID, source.get(layout.CLUSTER_ID)[0])
    except NodeExists:  # Of two concurrent copies, only the first one succeeds.
        raise _is_taken(target_name) from None
    return copied


def _is_taken(name: str) -> NotCopied:
    return NotCopied(f"{name} already contains a cluster: use an empty one")


def _check_idle(tree: Tree, name: str) -> None:
    """Raise NotCopied if a broker is running there, because its changes would be lost or mixed in."""
    try:
        brokers = tree.children(layout.BROKER_IDS)
    except NoNode:
        return
    if brokers:
        raise NotCopied(f"broker {brokers[0]} is using the metadata in {name}: stop it first")


def nodes(tree: Tree) -> Iterator[Node]:
    """Yield the nodes to copy, parents first."""
    waiting = [root for root in reversed(ROOTS) if tree.exists(root) is not None]
    while waiting:
        path = waiting.pop()
        data, stat = tree.get(path)
        if stat.ephemeral_owner:
            continue
        yield Node(path, data, stat)
        if stat.num_children and path not in NOTIFICATIONS:
            waiting += (f"{path}/{name}" for name in reversed(tree.children(path)))


def _copy(source: Tree, target: Tree) -> CopyResult:
    batch: list[Node] = []
    count = size = topics = batch_size = 0
    for node in nodes(source):
        if batch and (len(batch) == BATCH_NODES or batch_size + len(node.data) > BATCH_BYTES):
            _write(target, batch)
            batch, batch_size = [], 0
        batch.append(node)
        batch_size += len(node.data)
        count += 1
        size += len(node.data)
        topics += parent_of(node.path) == layout.TOPICS
    _write(target, batch)
    return CopyResult(count, size, topics)


def _write(target: Tree, batch: list[Node]) -> None:
    try:
        target.multi([Create(node.path, node.data) for node in batch])
    except MultiFailed as failed:
        if not isinstance(failed.error, NodeExists):
            raise failed.error from failed
        for node in batch:  # An earlier copy was interrupted, or another program has begun a cluster there.
            try:
                target.create(node.path, node.data)
            except NodeExists:
                target.set(node.path, node.data)


def _copy_counts(source: Tree, target: Tree) -> None:
    assigned = source.exists(layout.BROKER_SEQUENCE)
    if assigned is not None:
        ensure_paths(target, [layout.BROKER_SEQUENCE])
        while target.get(layout.BROKER_SEQUENCE)[1].version < assigned.version:
            target.set(layout.BROKER_SEQUENCE, b"")
    topics = source.exists(layout.TOPICS)
    if topics is not None and topics.cversion and not target.get(layout.TOPICS)[1].cversion:
        placeholder = f"{layout.TOPICS}/passing"
        target.multi([Create(placeholder), Delete(placeholder)])


def _check_same(source: Tree, target: Tree, source_name: str) -> None:
    """Raise NotCopied if the two differ, after a concurrent change of the source or target."""
    expected = {node.path: node.data for node in nodes(source)}
    found = {node.path: node.data for node in nodes(target)}
    for path in sorted(expected.keys() | found.keys()):
        if expected.get(path) != found.get(path):
            raise NotCopied(f"{path} differs from {source_name}: it existed before, or another client writes to it")
