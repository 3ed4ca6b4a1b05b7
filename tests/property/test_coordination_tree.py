"""Operations on the embedded tree compared with a few dicts: results, errors, stats, and the order of watches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import (
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
    Result,
    SetData,
    Stat,
    TreeFailed,
    WatchEvent,
    parent_of,
)


@dataclass
class Node:
    data: bytes
    czxid: int
    owner: int | None
    mzxid: int = 0
    pzxid: int = 0
    version: int = 0
    creates: int = 0
    deletes: int = 0


@dataclass
class Model:
    """An oracle: slow, plain, and written from ZooKeeper's documentation."""

    nodes: dict[str, Node] = field(default_factory=lambda: {"/": Node(b"", 0, None)})
    zxid: int = 0
    watches: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    events: dict[int, list[WatchEvent]] = field(default_factory=lambda: {0: [], 1: []})

    def names(self, path: str) -> list[str]:
        return sorted(other.rpartition("/")[2] for other in self.nodes if other != "/" and parent_of(other) == path)

    def stat(self, path: str) -> tuple[object, ...] | None:
        node = self.nodes.get(path)
        if node is None:
            return None
        children = len(self.names(path))
        changes = node.creates + node.deletes
        return (node.czxid, node.mzxid, node.version, changes, node.owner, len(node.data), children, node.pzxid)

    def multi(self, session: int, operations: list[Operation]) -> list[object]:
        before = {path: Node(**vars(node)) for path, node in self.nodes.items()}
        changes: list[tuple[EventKind, str]] = []
        results: list[object] = []
        for index, operation in enumerate(operations):
            try:
                results.append(self.apply(session, operation, changes))
            except TreeFailed as error:
                self.nodes = before
                raise MultiFailed(index, error) from error
        self.commit(changes)
        return results

    def apply(self, session: int, operation: Operation, changes: list[tuple[EventKind, str]]) -> object:
        if isinstance(operation, Create):
            return self.create(session, operation, changes)
        if operation.path not in self.nodes:
            if operation.path == "/":
                raise BadArguments
            raise NoNode
        node = self.nodes[operation.path]
        if isinstance(operation, Delete) and operation.path == "/":
            raise BadArguments
        if operation.version not in (-1, node.version):
            raise BadVersion
        if isinstance(operation, SetData):
            node.data, node.version, node.mzxid = operation.data, node.version + 1, self.zxid + 1
            changes.append((EventKind.DATA_CHANGED, operation.path))
            return self.stat(operation.path)
        if isinstance(operation, Delete):
            if self.names(operation.path):
                raise NotEmpty
            self.remove(operation.path, changes)
        return None

    def create(self, session: int, operation: Create, changes: list[tuple[EventKind, str]]) -> str:
        parent = self.nodes.get(parent_of(operation.path))
        if parent is None:
            raise NoNode
        path = operation.path + (f"{parent.creates:010d}" if operation.sequential else "")
        if path in self.nodes:
            raise NodeExists
        if parent.owner is not None:
            raise NoChildrenForEphemerals
        now = self.zxid + 1
        self.nodes[path] = Node(operation.data, now, session if operation.ephemeral else None, now, now)
        parent.creates, parent.pzxid = parent.creates + 1, now
        changes.append((EventKind.CREATED, path))
        return path

    def remove(self, path: str, changes: list[tuple[EventKind, str]]) -> None:
        del self.nodes[path]
        parent = self.nodes[parent_of(path)]
        parent.deletes, parent.pzxid = parent.deletes + 1, self.zxid + 1
        changes.append((EventKind.DELETED, path))

    def end(self, session: int) -> None:
        changes: list[tuple[EventKind, str]] = []
        for path in sorted(path for path, node in self.nodes.items() if node.owner == session):
            self.remove(path, changes)
        self.commit(changes)

    def commit(self, changes: list[tuple[EventKind, str]]) -> None:
        self.zxid += bool(changes)
        for kind, path in changes:
            on = ("data", "child") if kind is EventKind.DELETED else ("data",)
            self.fire(WatchEvent(kind, path), on)
            if kind is not EventKind.DATA_CHANGED:
                self.fire(WatchEvent(EventKind.CHILDREN_CHANGED, parent_of(path)), ("child",))

    def fire(self, event: WatchEvent, on: tuple[str, ...]) -> None:
        for session in set().union(*(self.watches.pop((kind, event.path), set()) for kind in on)):
            self.events[session].append(event)

    def watch(self, session: int, kind: str, path: str) -> None:
        self.watches.setdefault((kind, path), set()).add(session)


class At(NamedTuple):
    """The place and the reason of a failed multi."""

    index: int
    error: type[TreeFailed]


class Pair:
    """Two sessions on one tree, and the model."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tree"
        self.trees = [self.open(), self.open()]
        self.seen: list[SimpleQueue[WatchEvent]] = [SimpleQueue(), SimpleQueue()]
        self.watchers: list[Callable[[WatchEvent], None]] = [queue.put for queue in self.seen]
        self.model = Model()

    def open(self) -> SqliteTree:
        return SqliteTree(self.path, poll_ms=1)

    def shown(self, result: Result) -> object:
        if not isinstance(result, Stat):
            return result
        owners = {tree.session_id: session for session, tree in enumerate(self.trees)}
        owner = owners[result.ephemeral_owner] if result.ephemeral_owner else None
        return (
            result.czxid,
            result.mzxid,
            result.version,
            result.cversion,
            owner,
            result.data_length,
            result.num_children,
            result.pzxid,
        )

    def multi(self, session: int, operations: list[Operation]) -> None:
        expected = outcome(lambda: self.model.multi(session, operations))
        found = outcome(lambda: [self.shown(result) for result in self.trees[session].multi(operations)])
        assert found == expected

    def one(self, session: int, operation: Operation) -> None:
        """Check that a single operation equals a multi of one."""
        tree = self.trees[session]
        expected = outcome(lambda: self.model.multi(session, [operation])[0])
        if isinstance(operation, Create):
            ephemeral, sequential = operation.ephemeral, operation.sequential
            found = outcome(
                lambda: tree.create(operation.path, operation.data, ephemeral=ephemeral, sequential=sequential)
            )
        elif isinstance(operation, SetData):
            found = outcome(lambda: self.shown(tree.set(*operation)))
        elif isinstance(operation, Delete):
            found = outcome(lambda: tree.delete(*operation))
        else:
            return
        assert found == (expected.error if isinstance(expected, At) else expected)

    def read(self, session: int, path: str, how: str, watched: bool) -> None:
        tree, model, watch = self.trees[session], self.model, self.watchers[session] if watched else None
        if how == "exists":
            assert self.shown(tree.exists(path, watch)) == model.stat(path)
        elif path not in model.nodes:
            assert outcome(lambda: tree.get(path, watch)) is NoNode
            assert outcome(lambda: tree.children(path, watch)) is NoNode
            return
        elif how == "get":
            data, stat = tree.get(path, watch)
            assert (data, self.shown(stat)) == (model.nodes[path].data, model.stat(path))
        else:
            assert tree.children(path, watch) == model.names(path)
        if watched:
            model.watch(session, "child" if how == "children" else "data", path)

    def reopen(self, session: int) -> None:
        """End a session, and its watches with it."""
        self.check_events()
        self.trees[session].close()
        for watchers in self.model.watches.values():
            watchers.discard(session)
        self.model.end(session)
        self.trees[session] = self.open()

    def check_events(self) -> None:
        for session, tree in enumerate(self.trees):
            tree.exists("/")  # It queues the other session's changes.
            expected = self.model.events[session]
            assert [self.seen[session].get(timeout=120) for _ in expected] == expected
            self.model.events[session] = []

    def check(self) -> None:
        self.check_events()
        for session in (0, 1):
            for path in self.model.nodes:
                self.read(session, path, "get", False)
                self.read(session, path, "children", False)
            assert self.seen[session].empty()

    def close(self) -> None:
        for tree in self.trees:
            tree.close()


def outcome(attempt: Callable[[], object]) -> object:
    """Return the result, the kind of the failure, or for a multi its place and kind."""
    try:
        return attempt()
    except MultiFailed as failed:
        return At(failed.index, type(failed.error))
    except TreeFailed as failed:
        return type(failed)


START = ("/a", "/b", "/a/a", "/a/b")
PATHS = st.sampled_from(["/", *START, *START, "/b/a", "/a/a/a", "/a/b/a", "/a0000000002", "/a/a0000000003"])
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1])
DATA = st.binary(max_size=3)
CREATES = st.builds(Create, PATHS.filter(lambda path: path != "/"), DATA, st.booleans(), st.booleans())
CHANGES = (
    CREATES
    | st.builds(SetData, PATHS, DATA, VERSIONS)
    | st.builds(Delete, PATHS, VERSIONS)
    | st.builds(Delete, PATHS)
    | st.builds(Create, PATHS.filter(lambda path: path != "/"))
)
SESSIONS = st.integers(0, 1)
STEPS = st.lists(
    st.tuples(st.just("one"), SESSIONS, CHANGES)
    | st.tuples(st.just("multi"), SESSIONS, st.lists(CHANGES | st.builds(Check, PATHS, VERSIONS), max_size=4))
    | st.tuples(
        st.just("look"), SESSIONS, st.tuples(PATHS, st.sampled_from(["get", "exists", "children"]), st.booleans())
    )
    | st.tuples(st.just("look"), SESSIONS, st.tuples(PATHS, st.sampled_from(["get", "children"]), st.just(True)))
    | st.tuples(st.just("reopen"), SESSIONS, st.none()),
    min_size=20,
    max_size=50,
)


# The disk is not tested, and a shared one makes each commit slow.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_the_tree_agrees_with_a_model(steps: list[tuple[str, int, object]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        pair = Pair(Path(folder))
        try:
            pair.multi(0, [Create(path) for path in START])
            for kind, session, what in steps:
                if kind == "one":
                    pair.one(session, what)  # type: ignore[arg-type]
                elif kind == "multi":
                    pair.multi(session, what)  # type: ignore[arg-type]
                elif kind == "look":
                    pair.read(session, *what)  # type: ignore[misc]
                else:
                    pair.reopen(session)
            pair.check()
        finally:
            pair.close()
