"""A session of the tree on a cut link: waiting and failing calls, events, and the view of other sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from odradek.base.units import BrokerId
from odradek.coordination import reconnecting_tree as renewed
from odradek.coordination.reconnecting_tree import ReconnectingTree
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import SessionExpired, SessionState, TreeFailed, Unavailable, WatchEvent
from odradek.testing.network import Network, Partition, Shared, cuts_between
from odradek.testing.tree_link import LinkedTree, TreeLink
from support.waiting import SECONDS_MAX, until

ONE = BrokerId(1)
SHORT_MS, LONG_MS = 2_000, 600_000


class Way:
    """The link of broker 1 to the tree."""

    def __init__(self, path: Path) -> None:
        self.network = Network(1)
        self.link = TreeLink(self.network, ONE)
        self._path = path

    def open(self, timeout_ms: int = LONG_MS) -> LinkedTree:
        return LinkedTree(self._path, link=self.link, session_timeout_ms=timeout_ms, durable=False)

    def cut(self) -> Partition:
        sides = [frozenset((ONE,)), frozenset((Shared.TREE,))]
        return self.network.add(cuts_between(sides, self.network.nodes, one_way=False), lambda: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.sqlite"


@pytest.fixture
def way(path: Path) -> Way:
    return Way(path)


@pytest.fixture
def other(path: Path) -> Iterator[SqliteTree]:
    """Open another session of the tree, which is never cut off."""
    with SqliteTree(path, durable=False) as tree:
        yield tree


def run_in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run the action in a thread; append its result or error to the returned list at the end."""
    ends: list[object] = []

    def run() -> None:
        try:
            ends.append(act())
        except TreeFailed as failed:
            ends.append(failed)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ends


def test_calls_and_watches_wait_for_the_end_of_a_short_partition(way: Way, other: SqliteTree) -> None:
    states: list[SessionState] = []
    seen: list[WatchEvent] = []
    with way.open() as tree:
        tree.on_session(states.append)
        tree.create("/ephemeral", ephemeral=True)
        tree.exists("/watched", seen.append)
        with way.cut():
            thread, ends = run_in_thread(lambda: tree.create("/waited"))
            other.create("/watched")
            assert other.exists("/waited") is None
            assert other.exists("/ephemeral") is not None
            assert not seen
            assert not ends
        thread.join(SECONDS_MAX)
        assert ends == ["/waited"]
        until(lambda: len(seen) == 1)
        assert not states, "nothing was noticed"


def test_session_cut_off_for_too_long_expires_for_others(way: Way, other: SqliteTree) -> None:
    states: list[SessionState] = []
    with way.open(SHORT_MS) as tree:
        tree.on_session(states.append)
        tree.create("/ephemeral", ephemeral=True)
        with way.cut():
            with pytest.raises(Unavailable, match="disconnected broker 1"):
                tree.get("/")
            until(lambda: other.exists("/ephemeral") is None)
            until(lambda: states == [SessionState.SUSPENDED])
            with pytest.raises(Unavailable):
                tree.get("/")
        until(lambda: states == [SessionState.SUSPENDED, SessionState.EXPIRED])
        with pytest.raises(SessionExpired):
            tree.get("/")


def test_session_not_expired_by_another_process_continues(way: Way) -> None:
    states: list[SessionState] = []
    seen: list[WatchEvent] = []
    with way.open(SHORT_MS) as tree:
        tree.on_session(states.append)
        tree.exists("/watched", seen.append)
        with way.cut():
            until(lambda: states == [SessionState.SUSPENDED])
        until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        tree.create("/watched")
        assert not seen, "watches of before are gone"


def test_session_is_renewed_after_healing(way: Way, other: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewed, "RETRY_SECONDS", 0.01)
    tree = ReconnectingTree(partial(way.open, SHORT_MS))
    tree.on_renewed = lambda: tree.create("/ephemeral", ephemeral=True)
    tree.create("/ephemeral", ephemeral=True)
    try:
        for _ in range(2):
            with way.cut():
                before = tree.session_id
                until(lambda: other.exists("/ephemeral") is None)
            until(lambda: other.exists("/ephemeral") is not None)
            assert tree.session_id != before
    finally:
        tree.close()


def test_no_session_can_be_opened_during_a_partition(way: Way, other: SqliteTree) -> None:
    with way.cut():
        thread, ends = run_in_thread(way.open)
        with pytest.raises(Unavailable):
            way.open(1)
        assert not ends
    thread.join(SECONDS_MAX)
    assert isinstance(ends[0], LinkedTree)
    ends[0].close()


def test_link_created_during_a_partition_is_cut(way: Way) -> None:
    with way.cut():
        assert TreeLink(way.network, ONE).is_cut
    assert not TreeLink(way.network, ONE).is_cut


@pytest.mark.parametrize("end", [LinkedTree.close, LinkedTree.abandon])
def test_closing_a_cut_session_does_not_wait(way: Way, other: SqliteTree, end: Callable[[LinkedTree], None]) -> None:
    tree = way.open()
    tree.create("/ephemeral", ephemeral=True)
    with way.cut():
        thread, ends = run_in_thread(lambda: tree.create("/waited"))
        with way.link.leaving():
            end(tree)
            thread.join(SECONDS_MAX)
        assert isinstance(ends[0], Unavailable)
        until(lambda: other.exists("/ephemeral") is None)
    with way.open() as again:
        assert again.exists("/waited") is None
