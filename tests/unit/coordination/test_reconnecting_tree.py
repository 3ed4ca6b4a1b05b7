"""Renewal of expired sessions: once for each expiration, with a notification."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from odradek.coordination import reconnecting_tree as renewed
from odradek.coordination.reconnecting_tree import ReconnectingTree
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import NoNode, SessionExpired, SessionState, Unavailable
from support.waiting import SECONDS_MAX, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewed, "RETRY_SECONDS", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.sqlite"


@pytest.fixture
def other(path: Path) -> Iterator[SqliteTree]:
    """Open another session of the tree, which is never renewed."""
    with SqliteTree(path) as tree:
        yield tree


def opens(path: Path) -> SqliteTree:
    return SqliteTree(path, poll_ms=5)


def end(other: SqliteTree, tree: ReconnectingTree) -> None:
    """Expire the session of `tree` from another one, and wait until its owner notices."""
    with other._write() as writer:
        writer.end_session(tree.session_id)
    with pytest.raises(SessionExpired):
        while True:
            tree.exists("/")


def sessions(path: Path) -> int:
    return len(list(path.parent.glob("*.session-*")))


def registration(tree: ReconnectingTree, calls: SimpleQueue[int]) -> Callable[[], None]:
    """Return a callback for renewed sessions that creates an ephemeral node again, as a broker does."""

    def again() -> None:
        tree.create("/ours", ephemeral=True)
        calls.put(tree.session_id)

    return again


def test_expired_session_is_replaced(path: Path, other: SqliteTree) -> None:
    tree = ReconnectingTree(partial(opens, path))
    states: SimpleQueue[SessionState] = SimpleQueue()
    calls: SimpleQueue[int] = SimpleQueue()
    tree.on_session(states.put)
    tree.on_renewed = registration(tree, calls)
    tree.create("/ours", ephemeral=True)
    before = {tree.session_id}
    for _ in range(3):
        end(other, tree)
        assert states.get(timeout=SECONDS_MAX) is SessionState.EXPIRED
        session = calls.get(timeout=SECONDS_MAX)
        assert session not in before
        before.add(session)
        stat = other.exists("/ours")
        assert stat is not None
        assert stat.ephemeral_owner == session == tree.session_id
    until(lambda: sessions(path) == 2)
    tree.close()
    assert other.exists("/ours") is None
    assert sessions(path) == 1
    assert calls.empty()


def test_reconnecting_tree_implements_tree(path: Path, other: SqliteTree) -> None:
    tree = ReconnectingTree(partial(opens, path))
    events: SimpleQueue[object] = SimpleQueue()
    assert tree.create("/a", b"1") == "/a"
    assert tree.get("/a", events.put)[0] == b"1"
    assert tree.children("/") == ["a"]
    found = tree.get_all(["/a", "/b"])
    assert found[1] is None
    assert found[0] is not None
    other.set("/a", b"2")
    assert events.get(timeout=SECONDS_MAX)
    assert tree.set("/a", b"3").version == 2
    tree.delete("/a")
    with pytest.raises(NoNode):
        tree.get("/a")
    assert tree.multi([]) == []
    tree.close()


def test_operations_between_two_sessions_are_refused(path: Path, other: SqliteTree) -> None:
    may_open = threading.Event()
    may_open.set()

    def when_it_may() -> SqliteTree:
        assert may_open.wait(SECONDS_MAX)
        return opens(path)

    tree = ReconnectingTree(when_it_may)
    calls: SimpleQueue[int] = SimpleQueue()
    tree.on_renewed = registration(tree, calls)
    may_open.clear()
    end(other, tree)
    for act in (lambda: tree.create("/a"), lambda: tree.children("/"), lambda: tree.multi([])):
        with pytest.raises(SessionExpired):
            act()
    may_open.set()
    calls.get(timeout=SECONDS_MAX)
    assert tree.create("/a") == "/a"
    tree.close()


def test_opening_an_unreachable_tree_is_retried(path: Path, other: SqliteTree) -> None:
    failures = [Unavailable(detail="no disk"), Unavailable(detail="no disk")]

    def open_or_fail() -> SqliteTree:
        if tries and failures:
            raise failures.pop()
        tries.append(1)
        return opens(path)

    tries: list[int] = []
    tree = ReconnectingTree(open_or_fail)
    calls: SimpleQueue[int] = SimpleQueue()
    tree.on_renewed = registration(tree, calls)
    end(other, tree)
    assert calls.get(timeout=SECONDS_MAX) == tree.session_id
    assert not failures
    tree.close()


def test_failed_registration_is_retried_in_another_session(path: Path, other: SqliteTree) -> None:
    other.create("/ours")
    tree = ReconnectingTree(partial(opens, path))
    calls: SimpleQueue[int] = SimpleQueue()
    tree.on_renewed = registration(tree, calls)
    end(other, tree)
    other.delete("/ours")
    assert calls.get(timeout=SECONDS_MAX) == tree.session_id
    until(lambda: sessions(path) == 2)
    tree.close()


def test_session_that_expires_during_its_registration_is_replaced_once(path: Path, other: SqliteTree) -> None:
    """Only one session follows, not one for each expiration."""
    opened: list[SqliteTree] = []

    def counted() -> SqliteTree:
        opened.append(opens(path))
        return opened[-1]

    tree = ReconnectingTree(counted)
    calls: SimpleQueue[int] = SimpleQueue()
    states: SimpleQueue[SessionState] = SimpleQueue()
    again = registration(tree, calls)

    def ends_once() -> None:
        again()
        if len(opened) == 2:
            end(other, tree)
            states.get(timeout=SECONDS_MAX)
            states.get(timeout=SECONDS_MAX)
            raise SessionExpired(detail="As the next call would say.")

    tree.on_session(states.put)
    tree.on_renewed = ends_once
    end(other, tree)
    calls.get(timeout=SECONDS_MAX)
    assert calls.get(timeout=SECONDS_MAX) == tree.session_id == opened[-1].session_id
    until(lambda: sessions(path) == 2)
    assert len(opened) == 3
    assert other.exists("/ours") is not None
    tree.close()
    assert other.exists("/ours") is None


def test_close_while_a_session_is_opened_leaves_no_session(path: Path, other: SqliteTree) -> None:
    may_open, is_opening = threading.Event(), threading.Event()
    opened: list[SqliteTree] = []

    def when_it_may() -> SqliteTree:
        if opened:
            is_opening.set()
            assert may_open.wait(SECONDS_MAX)
        opened.append(opens(path))
        return opened[-1]

    tree = ReconnectingTree(when_it_may)
    end(other, tree)
    assert is_opening.wait(SECONDS_MAX)
    tree.close()
    may_open.set()
    until(lambda: len(opened) == 2 and sessions(path) == 1)


def test_abandoned_session_is_ended_by_the_next_process(path: Path, other: SqliteTree) -> None:
    tree = ReconnectingTree(partial(opens, path))
    tree.create("/ours", ephemeral=True)
    tree.abandon()
    assert sessions(path) == 2
    SqliteTree(path).close()  # The next process to open the tree ends the session.
    assert other.exists("/ours") is None


def test_failure_to_open_the_first_session_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "tree.sqlite"
    path.mkdir()
    with pytest.raises(Unavailable):
        ReconnectingTree(partial(opens, path))
