"""Conformance tests for all implementations of Tree; ZooKeeper defines the expected behaviour."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from odradek.coordination.chroot import Chroot
from odradek.coordination.tree import (
    NODE_BYTES_MAX,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    Stat,
    Tree,
    TreeFailed,
    WatchEvent,
    ensure_paths,
)
from unit.coordination.trees import increment

if TYPE_CHECKING:
    from unit.coordination.conftest import Seen, Store

pytestmark = pytest.mark.slow

CREATED, DELETED = EventKind.CREATED, EventKind.DELETED
DATA_CHANGED, CHILDREN_CHANGED = EventKind.DATA_CHANGED, EventKind.CHILDREN_CHANGED


def stat_of(tree: Tree, path: str) -> Stat:
    stat = tree.exists(path)
    assert stat is not None
    return stat


# Nodes.


def test_create_sets_data_and_stat(tree: Tree) -> None:
    assert tree.create("/a", b"one") == "/a"
    data, stat = tree.get("/a")
    assert data == b"one"
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert stat.ctime == stat.mtime > 1_600_000_000_000
    assert (stat.version, stat.cversion, stat.aversion) == (0, 0, 0)
    assert (stat.ephemeral_owner, stat.data_length, stat.num_children) == (0, 3, 0)
    assert stat_of(tree, "/a") == stat


def test_node_without_data_has_empty_data(tree: Tree) -> None:
    tree.create("/a")
    assert tree.get("/a")[0] == b""
    assert tree.set("/a", b"").data_length == 0


def test_set_increments_and_checks_the_version(tree: Tree) -> None:
    tree.create("/a", b"one")
    before = stat_of(tree, "/a")
    stat = tree.set("/a", b"three", 0)
    assert (stat.version, stat.data_length) == (1, 5)
    assert stat.mzxid > stat.czxid == before.czxid
    assert stat.pzxid == before.pzxid
    assert tree.get("/a") == (b"three", stat)
    with pytest.raises(BadVersion):
        tree.set("/a", b"", 0)
    assert tree.set("/a", b"any", -1).version == 2


def test_changes_of_children_update_the_parents_stat(tree: Tree) -> None:
    tree.create("/a")
    one = tree.create("/a/b")
    first = stat_of(tree, "/a")
    assert (first.cversion, first.num_children, first.version) == (1, 1, 0)
    assert first.pzxid == stat_of(tree, one).czxid
    assert first.mzxid == first.czxid
    tree.create("/a/c")
    tree.delete("/a/b")
    after = stat_of(tree, "/a")
    assert (after.cversion, after.num_children) == (3, 1)
    assert after.pzxid > first.pzxid
    pzxid = after.pzxid
    tree.set("/a/c", b"x")  # A change inside a child does not affect its parent.
    assert stat_of(tree, "/a").pzxid == pzxid


def test_delete_checks_children_and_version(tree: Tree) -> None:
    tree.create("/a")
    tree.create("/a/b")
    with pytest.raises(NotEmpty):
        tree.delete("/a")
    with pytest.raises(BadVersion):
        tree.delete("/a/b", 7)
    with pytest.raises(BadVersion):  # The version is checked first.
        tree.delete("/a", 7)
    tree.delete("/a/b", 0)
    tree.delete("/a")
    assert tree.exists("/a") is None


def test_children_are_sorted_names(tree: Tree) -> None:
    for path in ("/p", "/p/b", "/p/a", "/p/a/x", "/p/ä", "/p-q"):
        tree.create(path)
    assert tree.children("/p") == ["a", "b", "ä"]
    assert tree.children("/p/b") == []
    assert "p" in tree.children("/")


def test_get_all_reads_many_nodes(store: Store, tree: Tree, seen: Seen) -> None:
    """More nodes than fit into one pipelined read, also below a chroot."""
    tree.multi([Create("/many"), *(Create(f"/many/{number}", b"%d" % number) for number in range(0, 1200, 2))])
    for shown, root in ((tree, "/many"), (Chroot(store.open(), "/many"), "")):
        paths = [f"{root}/{number}" for number in range(1200)]
        found = shown.get_all(paths)
        assert [None if node is None else node[0] for node in found] == [
            None if number % 2 else b"%d" % number for number in range(1200)
        ]
        assert found[4] == shown.get(paths[4])
    assert tree.get_all([]) == []
    with pytest.raises(BadArguments):
        tree.get_all(["/many/2", "many"])
    tree.get_all(["/many/2", "/many/3", "/many/4"], lambda path: seen)
    tree.set("/many/4", b"other")
    assert seen.take() == [WatchEvent(DATA_CHANGED, "/many/4")]
    tree.create("/many/3")
    assert seen.nothing(tree), "who was not there is not watched"


def test_operations_on_a_missing_node_raise_no_node(tree: Tree) -> None:
    for attempt in (
        lambda: tree.get("/no"),
        lambda: tree.set("/no", b""),
        lambda: tree.delete("/no"),
        lambda: tree.children("/no"),
        lambda: tree.create("/no/a"),
        lambda: tree.create("/no/a", sequential=True),
        lambda: tree.delete("/no/a"),
    ):
        with pytest.raises(NoNode):
            attempt()
    assert tree.exists("/no") is None
    assert tree.exists("/no/a") is None


def test_create_of_an_existing_node_raises_node_exists(tree: Tree) -> None:
    tree.create("/a", b"kept")
    with pytest.raises(NodeExists):
        tree.create("/a", b"lost")
    with pytest.raises(NodeExists):
        tree.create("/a", ephemeral=True)
    assert tree.get("/a")[0] == b"kept"


def test_root_exists_and_cannot_be_deleted(tree: Tree) -> None:
    with pytest.raises(NodeExists):
        tree.create("/")
    with pytest.raises(BadArguments):
        tree.delete("/")
    assert stat_of(tree, "/").ephemeral_owner == 0
    assert tree.set("/", b"data").data_length == 4


BAD_PATHS = ["", "a", "a/b", "/a/", "//", "/a//b", "/a/../b", "/.", "/a/.", "/..", "/a\0", "/\x1f", "/\x7f", "/\x85"]
BAD_PATHS += ["/\ud800", "/\uf8ff", "/\ufff0", "/\U0001f600", "/" + "x" * 20_000]


@pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
def test_invalid_paths_are_refused(tree: Tree, path: str) -> None:
    attempts = [
        lambda: tree.create(path),
        lambda: tree.get(path),
        lambda: tree.set(path, b""),
        lambda: tree.delete(path),
        lambda: tree.exists(path),
        lambda: tree.children(path),
    ]
    for attempt in attempts:
        with pytest.raises(BadArguments):
            attempt()
    with pytest.raises(MultiFailed) as failed:
        tree.multi([Check("/"), Create(path)])
    assert (failed.value.index, type(failed.value.error)) == (1, BadArguments)


@pytest.mark.parametrize("path", ["/a.b", "/...", "/a..", "/ ", "/%2F", "/<default>", "/日本", "/\u00a0", "/\uf900"])
def test_unusual_valid_paths_are_accepted(tree: Tree, path: str) -> None:
    assert tree.create(path, b"x") == path
    assert tree.get(path)[0] == b"x"
    assert path[1:] in tree.children("/")


def test_node_data_is_limited_in_size(tree: Tree) -> None:
    data = bytes(NODE_BYTES_MAX)
    tree.create("/large", data)
    assert tree.get("/large")[0] == data
    tree.set("/large", data)
    with pytest.raises(BadArguments):
        tree.set("/large", data + b"x")
    with pytest.raises(BadArguments):
        tree.create("/larger", data + b"x")


# Sequential and ephemeral nodes.


def test_sequence_number_counts_all_children_ever_created(tree: Tree) -> None:
    tree.create("/s")
    assert tree.create("/s/x-", b"d", sequential=True) == "/s/x-0000000000"
    tree.create("/s/other")
    assert tree.create("/s/x-", sequential=True) == "/s/x-0000000002"
    tree.delete("/s/x-0000000000")
    tree.delete("/s/other")
    assert tree.create("/s/y", sequential=True) == "/s/y0000000003"
    assert tree.create("/s/", sequential=True) == "/s/0000000004"
    assert tree.get("/s/x-0000000002")[0] == b""


def test_sequential_node_in_the_root_may_have_an_empty_prefix(tree: Tree) -> None:
    made = tree.create("/", sequential=True)
    assert len(made) == 11
    assert int(made[1:]) < 100


def test_create_of_an_existing_sequential_name_raises_node_exists(tree: Tree) -> None:
    tree.create("/s")
    tree.create("/s/x0000000001")
    with pytest.raises(NodeExists):
        tree.create("/s/x", sequential=True)


def test_closing_a_session_deletes_its_ephemeral_nodes(store: Store, tree: Tree) -> None:
    other = store.open()
    assert other.session_id != tree.session_id
    tree.create("/p")
    other.create("/p/e", b"x", ephemeral=True)
    assert other.create("/p/s", ephemeral=True, sequential=True) == "/p/s0000000001"
    other.create("/p/stays")
    assert stat_of(tree, "/p/e").ephemeral_owner == other.session_id
    before = stat_of(tree, "/p")
    other.close()
    other.close()
    assert tree.children("/p") == ["stays"]
    after = stat_of(tree, "/p")
    assert (after.cversion, after.num_children) == (before.cversion + 2, 1)
    assert after.pzxid > before.pzxid


def test_ephemeral_nodes_have_no_children(tree: Tree) -> None:
    tree.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        tree.create("/e/a")
    with pytest.raises(NoChildrenForEphemerals):
        tree.create("/e/a", sequential=True, ephemeral=True)


def test_another_session_may_change_and_delete_ephemeral_nodes(store: Store, tree: Tree) -> None:
    other = store.open()
    tree.create("/e", ephemeral=True)
    assert other.set("/e", b"x").ephemeral_owner == tree.session_id
    other.delete("/e")
    assert tree.exists("/e") is None


def test_operations_on_a_closed_tree_fail(store: Store) -> None:
    tree = store.open()
    tree.close()
    with pytest.raises(TreeFailed):
        tree.get("/")
    with pytest.raises(TreeFailed):
        tree.create("/a")


# Many changes as one.


def test_multi_applies_all_operations_as_one_change(tree: Tree) -> None:
    tree.create("/old")
    tree.create("/gone")
    results = tree.multi(
        [
            Create("/m", b"1"),
            Create("/m/c-", b"2", sequential=True),
            Create("/m/e", ephemeral=True),
            SetData("/old", b"new", 0),
            SetData("/m", b"again", 0),
            Check("/m", 1),
            Delete("/gone", 0),
        ]
    )
    assert results[:3] == ["/m", "/m/c-0000000000", "/m/e"]
    assert results[5:] == [None, None]
    old, made = stat_of(tree, "/old"), stat_of(tree, "/m")
    assert results[3] == old
    assert isinstance(results[4], Stat)
    assert (results[4].version, results[4].num_children) == (1, 2)
    assert old.mzxid == made.czxid == made.mzxid == made.pzxid == stat_of(tree, "/m/e").czxid
    assert stat_of(tree, "/m/e").ephemeral_owner == tree.session_id
    assert tree.exists("/gone") is None


FAILING: list[tuple[Operation, type[TreeFailed]]] = [
    (Create("/there"), NodeExists),
    (Create("/no/a"), NoNode),
    (Create("/e/a"), NoChildrenForEphemerals),
    (SetData("/there", b"", 7), BadVersion),
    (SetData("/no", b""), NoNode),
    (Delete("/there", 7), BadVersion),
    (Delete("/no"), NoNode),
    (Delete("/full"), NotEmpty),
    (Check("/there", 7), BadVersion),
    (Check("/no"), NoNode),
]


@pytest.mark.parametrize(("operation", "error"), FAILING, ids=str)
def test_failed_multi_changes_nothing(tree: Tree, operation: Operation, error: type[TreeFailed]) -> None:
    for path in ("/there", "/full", "/full/child"):
        tree.create(path)
    tree.create("/e", ephemeral=True)
    before = {path: tree.get(path) for path in ("/", "/there", "/full", "/e")}
    with pytest.raises(MultiFailed) as failed:
        tree.multi([Create("/new"), SetData("/there", b"changed"), operation, Create("/never"), Delete("/no")])
    assert failed.value.index == 2
    assert type(failed.value.error) is error
    assert {path: tree.get(path) for path in before} == before
    assert tree.exists("/new") is None


def test_empty_multi_succeeds(tree: Tree) -> None:
    assert tree.multi([]) == []


def test_multi_of_checks_only_succeeds(tree: Tree) -> None:
    tree.create("/a")
    assert tree.multi([Check("/a"), Check("/a", 0)]) == [None, None]


def test_ensure_paths_creates_missing_nodes(tree: Tree) -> None:
    tree.create("/brokers")
    ensure_paths(tree, ["/brokers/ids", "/config/topics", "/config", "/admin/delete_topics", "/"])
    ensure_paths(tree, ["/brokers/ids", "/config/topics"])
    assert [tree.children(path) for path in ("/brokers", "/config", "/admin")] == [
        ["ids"],
        ["topics"],
        ["delete_topics"],
    ]
    with pytest.raises(BadArguments):
        ensure_paths(tree, ["/a//b"])


# Watches.


def test_data_watch_fires_once(tree: Tree, seen: Seen) -> None:
    tree.create("/a")
    tree.get("/a", seen)
    tree.create("/a/child")
    assert seen.nothing(tree)
    tree.set("/a", b"1")
    tree.set("/a", b"2")
    assert seen.take() == [WatchEvent(DATA_CHANGED, "/a")]
    assert seen.nothing(tree), "once"
    tree.get("/a/child", seen)
    tree.delete("/a/child")
    assert seen.take() == [WatchEvent(DELETED, "/a/child")]


def test_existence_watch_fires_once(tree: Tree, seen: Seen) -> None:
    assert tree.exists("/a", seen) is None
    tree.create("/a")
    assert seen.take() == [WatchEvent(CREATED, "/a")]
    tree.exists("/a", seen)
    tree.set("/a", b"")
    assert seen.take() == [WatchEvent(DATA_CHANGED, "/a")]
    tree.exists("/a", seen)
    tree.delete("/a")
    assert seen.take() == [WatchEvent(DELETED, "/a")]
    assert seen.nothing(tree)


def test_children_watch_fires_once(tree: Tree, seen: Seen) -> None:
    tree.create("/a")
    tree.children("/a", seen)
    tree.set("/a", b"")
    assert seen.nothing(tree)
    tree.create("/a/b")
    assert seen.take() == [WatchEvent(CHILDREN_CHANGED, "/a")]
    tree.children("/a", seen)
    tree.set("/a/b", b"")
    tree.create("/a/b/c")
    tree.delete("/a/b/c")
    assert seen.nothing(tree)
    tree.delete("/a/b")
    assert seen.take() == [WatchEvent(CHILDREN_CHANGED, "/a")]
    tree.children("/a", seen)
    tree.delete("/a")
    assert seen.take() == [WatchEvent(DELETED, "/a")]


def test_failed_read_of_a_missing_node_sets_no_watch(tree: Tree, seen: Seen) -> None:
    with pytest.raises(NoNode):
        tree.get("/a", seen)
    with pytest.raises(NoNode):
        tree.children("/a", seen)
    tree.create("/a")
    tree.create("/a/b")
    assert seen.nothing(tree)


def test_watch_set_twice_fires_once(tree: Tree, seen: Seen) -> None:
    tree.create("/a")
    tree.get("/a", seen)
    tree.get("/a", seen)
    tree.exists("/a", seen)
    tree.set("/a", b"")
    assert seen.take() == [WatchEvent(DATA_CHANGED, "/a")]
    assert seen.nothing(tree)


def test_failed_change_fires_no_watch(tree: Tree, seen: Seen) -> None:
    tree.create("/a")
    tree.get("/a", seen)
    tree.children("/a", seen)
    with pytest.raises(MultiFailed):
        tree.multi([SetData("/a", b"x"), Create("/a/b"), Check("/a", 9)])
    assert seen.nothing(tree)


def test_watches_of_a_multi_fire_in_operation_order(tree: Tree, seen: Seen) -> None:
    for path in ("/a", "/b", "/c"):
        tree.create(path)
        tree.get(path, seen)
    tree.children("/c", seen)
    tree.multi([SetData("/b", b""), Create("/c/d"), Delete("/a"), SetData("/c", b"")])
    assert seen.take(4) == [
        WatchEvent(DATA_CHANGED, "/b"),
        WatchEvent(CHILDREN_CHANGED, "/c"),
        WatchEvent(DELETED, "/a"),
        WatchEvent(DATA_CHANGED, "/c"),
    ]


def test_changes_by_another_session_fire_watches(store: Store, tree: Tree, seen: Seen) -> None:
    other = store.open()
    tree.create("/p")
    for name in "abc":
        tree.create(f"/p/{name}")
        tree.get(f"/p/{name}", seen)
    tree.children("/p", seen)
    tree.exists("/p/new", seen)
    other.set("/p/b", b"")
    other.delete("/p/a")
    other.create("/p/new")
    other.set("/p/c", b"")
    assert seen.take(5) == [
        WatchEvent(DATA_CHANGED, "/p/b"),
        WatchEvent(DELETED, "/p/a"),
        WatchEvent(CHILDREN_CHANGED, "/p"),
        WatchEvent(CREATED, "/p/new"),
        WatchEvent(DATA_CHANGED, "/p/c"),
    ]


def test_deletion_of_ephemeral_nodes_fires_watches(store: Store, tree: Tree, seen: Seen) -> None:
    other = store.open()
    tree.create("/ids")
    other.create("/ids/1", ephemeral=True)
    tree.exists("/ids/1", seen)
    tree.children("/ids", seen)
    other.close()
    assert seen.take(2) == [WatchEvent(DELETED, "/ids/1"), WatchEvent(CHILDREN_CHANGED, "/ids")]


def test_closing_session_receives_no_watch_events(store: Store, tree: Tree, seen: Seen) -> None:
    closing = store.open()
    closing.create("/e", ephemeral=True)
    closing.exists("/e", seen)
    closing.children("/", seen)
    closing.close()
    assert tree.exists("/e") is None
    assert seen.nothing(tree)


def test_a_watch_may_use_the_tree(store: Store, tree: Tree, seen: Seen) -> None:
    tree.create("/a", b"0")

    def follow(event: WatchEvent) -> None:
        data, _ = tree.get("/a", follow)
        seen(WatchEvent(event.kind, data.decode()))

    tree.get("/a", follow)
    other = store.open()
    for i in range(1, 4):
        other.set("/a", b"%d" % i)
        assert seen.take()[0].path == str(i)


def test_failing_watch_does_not_affect_others(tree: Tree, seen: Seen) -> None:
    def fail(event: WatchEvent) -> None:
        raise RuntimeError("this watch is broken")

    tree.create("/a")
    tree.create("/b")
    tree.get("/a", fail)
    tree.get("/b", seen)
    tree.set("/a", b"")
    tree.set("/b", b"")
    assert seen.take() == [WatchEvent(DATA_CHANGED, "/b")]


# A part as a tree of its own.


def test_chroot_prefixes_all_paths(tree: Tree, seen: Seen) -> None:
    part = Chroot(tree, "/part/of/it")
    with pytest.raises(NoNode):
        part.create("/a")
    ensure_paths(tree, ["/part/of/it"])
    assert part.create("/a", b"x") == "/a"
    assert part.create("/a/s", sequential=True) == "/a/s0000000000"
    assert part.create("/", sequential=True) == "/0000000001"
    part.delete("/0000000001")
    assert tree.get("/part/of/it/a")[0] == b"x"
    assert part.children("/") == ["a"]
    assert part.get("/")[1] == tree.get("/part/of/it")[1]
    assert part.multi([Create("/b"), SetData("/a", b"y", 0), Check("/a")])[0] == "/b"
    with pytest.raises(BadArguments):
        part.delete("/")
    with pytest.raises(BadArguments):
        part.get("a")
    part.children("/", seen)
    part.get("/b", seen)
    part.get("/b", seen)
    tree.delete("/part/of/it/b")
    assert seen.take(2) == [WatchEvent(DELETED, "/b"), WatchEvent(CHILDREN_CHANGED, "/")]
    assert seen.nothing(tree)


# More than one at once.


def test_updates_by_several_threads_are_not_lost(store: Store, tree: Tree) -> None:
    if store.address == "sim":
        pytest.skip("Simulated processes have no threads.")
    tree.create("/n", b"0")
    other = store.open()
    threads = [
        threading.Thread(target=lambda owner=owner: [increment(owner, "/n") for _ in range(20)])
        for owner in (tree, tree, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data, stat = tree.get("/n")
    assert (int(data), stat.version) == (60, 60)


@pytest.mark.waits
def test_updates_by_several_processes_are_not_lost(store: Store, tree: Tree) -> None:
    tree.create("/n", b"0")
    processes = [store.process("count", "/n", "40") for _ in range(2)]
    for _ in range(40):
        increment(tree, "/n")
    for process in processes:
        assert process.wait(60) == 0
    data, stat = tree.get("/n")
    assert (int(data), stat.version) == (120, 120)


@pytest.mark.waits
def test_ephemeral_nodes_of_a_killed_process_are_deleted(store: Store, tree: Tree, seen: Seen) -> None:
    process = store.process("hold", "/held", timeout_ms=400)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    assert tree.exists("/held", seen) is not None
    process.kill()
    process.wait()
    assert seen.take() == [WatchEvent(DELETED, "/held")]
    assert tree.exists("/held") is None
