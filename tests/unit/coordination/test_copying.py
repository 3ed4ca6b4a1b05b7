"""Copies of cluster metadata from tree to tree: complete, without temporary nodes, and all or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.coordination import id_claims
from odradek.coordination import tree_layout as layout
from odradek.coordination.copying import BATCH_BYTES, NotCopied, copy_metadata, nodes
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Tree, Unavailable, ensure_paths


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqliteTree]:
    with SqliteTree(tmp_path / "source.sqlite", durable=False) as tree:
        layout.ensure_startup_paths(tree)
        id_claims.cluster_id(tree, "AAAAAAAAAAAAAAAAAAAAAQ")
        yield tree


def copy_tree(source: Tree, target: Tree) -> None:
    copy_metadata(source, target, source_name="there", target_name="here")


def refusal_of(source: Tree, target: Tree) -> str:
    with pytest.raises(NotCopied) as failure:
        copy_tree(source, target)
    return str(failure.value)


def content(tree: Tree) -> dict[str, bytes]:
    return {node.path: node.data for node in nodes(tree)}


@pytest.mark.slow
def test_persistent_nodes_are_copied(source: SqliteTree, tree: Tree) -> None:
    draw = random.Random(1)
    for number in range(1200):
        source.create(f"/brokers/topics/t{number}", draw.randbytes(draw.choice([0, 100, 3000])))
    source.create("/brokers/topics/large", draw.randbytes(3 * BATCH_BYTES))
    source.create("/config/topics/ä<default>", b"{}")
    source.create("/brokers/topics/large/partitions", b"")
    source.create(layout.CONTROLLER_EPOCH, b"7")
    copy_tree(source, tree)
    assert content(tree) == content(source) and len(content(tree)) > 1200
    assert id_claims.cluster_id(tree, "other") == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_ephemeral_and_temporary_nodes_are_not_copied(source: SqliteTree, tree: Tree) -> None:
    source.create(layout.CONTROLLER, b"{}", ephemeral=True)
    source.create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", b"{}", sequential=True)
    ensure_paths(source, [f"{layout.ISR_CHANGES}/isr_change_0000000003", "/migration", "/zookeeper/of/somebody/else"])
    copy_tree(source, tree)
    for path in (layout.CONTROLLER, "/migration", "/zookeeper/of"):
        assert tree.exists(path) is None
    assert tree.children(layout.CONFIG_CHANGES) == tree.children(layout.ISR_CHANGES) == []


def test_ids_assigned_before_the_copy_are_not_reused(source: SqliteTree, tree: Tree) -> None:
    given = [id_claims.broker_id(source, 1000) for _ in range(3)]
    block = id_claims.producer_ids(source, given[0])
    copy_tree(source, tree)
    assert id_claims.broker_id(tree, 1000) == given[-1] + 1
    assert id_claims.producer_ids(tree, given[0]).first == block.last + 1


def test_child_version_of_the_topics_node_is_copied(source: SqliteTree, tree: Tree) -> None:
    """Otherwise a broker would adopt logs of deleted topics."""
    source.create("/brokers/topics/t")
    source.delete("/brokers/topics/t")
    copy_tree(source, tree)
    assert tree.get(layout.TOPICS)[1].cversion > 0 and tree.children(layout.TOPICS) == []


def test_metadata_can_be_copied_back(source: SqliteTree, tree: Tree, tmp_path: Path) -> None:
    source.create("/brokers/topics/t", b"x")
    id_claims.broker_id(source, 1000)
    copy_tree(source, tree)
    with SqliteTree(tmp_path / "back.sqlite", durable=False) as back:
        copy_tree(tree, back)
        assert content(back) == content(source)
        assert id_claims.broker_id(back, 1000) == id_claims.broker_id(source, 1000)


def test_copy_is_refused_while_a_broker_runs(source: SqliteTree, tree: Tree) -> None:
    source.create("/brokers/ids/3", b"{}", ephemeral=True)
    assert refusal_of(source, tree) == "broker 3 is using the metadata in there: stop it first"
    assert tree.exists("/brokers") is None
    source.delete("/brokers/ids/3")
    layout.ensure_startup_paths(tree)
    tree.create("/brokers/ids/4", b"{}", ephemeral=True)
    assert refusal_of(source, tree) == "broker 4 is using the metadata in here: stop it first"


def test_copy_to_an_existing_cluster_is_refused(source: SqliteTree, tree: Tree) -> None:
    id_claims.cluster_id(tree, "BBBBBBBBBBBBBBBBBBBBBQ")
    assert refusal_of(source, tree) == "here already contains a cluster: use an empty one"
    assert refusal_of(tree, tree) == "here already contains a cluster: use an empty one"


def test_copy_from_a_tree_without_a_cluster_is_refused(tree: Tree, source: SqliteTree) -> None:
    assert refusal_of(tree, source) == "there contains no cluster"


class Overtaken:
    """A tree in which another process creates a cluster just before this one."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def create(self, path: str, data: bytes = b"") -> str:
        assert path == layout.CLUSTER_ID
        self._tree.create(path, b"theirs")
        return self._tree.create(path, data)


def test_concurrent_creation_of_a_cluster_is_detected(source: SqliteTree, tree: Tree) -> None:
    assert refusal_of(source, Overtaken(tree)) == "here already contains a cluster: use an empty one"  # type: ignore[arg-type]
    assert tree.get(layout.CLUSTER_ID)[0] == b"theirs"


class Interrupted:
    """A tree that becomes unreachable after a number of changes."""

    def __init__(self, tree: Tree, left: int) -> None:
        self._tree = tree
        self._left = left

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self._tree, name)
        if name in ("multi", "create", "set"):
            self._left -= 1
            if self._left < 0:
                raise Unavailable(detail="gone")
        return found


@pytest.mark.slow
@pytest.mark.share(6)
@pytest.mark.parametrize("calls", range(6))
def test_interrupted_copy_can_be_repeated(source: SqliteTree, tree: Tree, calls: int) -> None:
    """The target is no cluster until the copy is complete; a second copy updates the nodes of the first."""
    for number in range(1200):
        source.create(f"/brokers/topics/t{number}", b"first")
    id_claims.broker_id(source, 1000)
    with pytest.raises(Unavailable):
        copy_tree(source, Interrupted(tree, calls))  # type: ignore[arg-type]
    assert tree.exists(layout.CLUSTER_ID) is None
    source.set("/brokers/topics/t1", b"second")
    copy_tree(source, tree)
    assert content(tree) == content(source)


def test_copy_over_different_nodes_is_refused(source: SqliteTree, tree: Tree) -> None:
    ensure_paths(tree, ["/brokers/topics/old"])
    assert refusal_of(source, tree).startswith("/brokers/topics/old differs from there")
    assert tree.exists(layout.CLUSTER_ID) is None
