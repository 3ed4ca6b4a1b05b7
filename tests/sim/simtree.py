"""The metadata tree in memory, with ZooKeeper's rules: one data tree, and the sessions that use it.

A session belongs to a process and lives on the virtual clock: without heartbeats for its timeout it expires, with its
ephemeral nodes. Operations of a session are executed at once, in one order for all; watch events arrive late, in the
order of the changes. The executor of an effect adds the duration of tree operations (simthreads.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

from odradek.coordination.tree import (
    ANY_VERSION,
    Create,
    Delete,
    EventKind,
    MultiFailed,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    TreeFailed,
    Unavailable,
    Watch,
    WatchEvent,
    check_path,
    get_each,
    parent_of,
)
from sim.simclock import MILLISECOND_US, WALL_BEGIN_MS, SimClock
from sim.simznodes import Znodes

_LOG = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 6_000

_check_path = lru_cache(maxsize=4_096)(check_path)  # Valid paths are cached; an invalid one raises each time.

# The watches that each event fires on its node; get and exists set those on data.
_FIRED = {
    EventKind.CREATED: ("absent",),
    EventKind.DATA_CHANGED: ("data",),
    EventKind.DELETED: ("data", "children"),
    EventKind.CHILDREN_CHANGED: ("children",),
}


class SimTreeServer:
    """The data, and all sessions. It never fails itself; sessions may lose their connection (`SimTree.is_cut_off`)."""

    def __init__(self, clock: SimClock, watch_delay_us: Callable[[], int]) -> None:
        self.clock = clock
        self.watch_delay_us = watch_delay_us
        self.sessions: dict[int, SimTree] = {}
        self._znodes = Znodes()
        self._last_session = 0

    def open(self, timeout_ms: int = SESSION_TIMEOUT_MS) -> SimTree:
        self._last_session += 1
        tree = SimTree(self, self._last_session, timeout_ms)
        self.sessions[tree.session_id] = tree
        return tree

    @property
    def znodes(self) -> Znodes:
        return self._znodes

    def change(self, session_id: int, operations: Sequence[Operation]) -> list[Result]:
        """Apply all operations in one zxid, or none; raise MultiFailed."""
        before = self._znodes
        znodes = before.copy(WALL_BEGIN_MS + self.clock.now_us // MILLISECOND_US)
        results: list[Result] = []
        for index, operation in enumerate(operations):
            try:
                results.append(znodes.apply(operation, session_id))
            except TreeFailed as error:
                raise MultiFailed(index, error) from error
        self._became(znodes)
        return results

    def end(self, session_id: int) -> None:
        """End a session, and delete its ephemeral nodes."""
        if self.sessions.pop(session_id, None) is not None:
            znodes = self._znodes.copy(WALL_BEGIN_MS + self.clock.now_us // MILLISECOND_US)
            for path in znodes.ephemerals_of(session_id):
                znodes.apply(Delete(path), session_id)
            self._became(znodes)

    def _became(self, znodes: Znodes) -> None:
        if not znodes.changes:
            return
        self._znodes = znodes
        for event in znodes.changes:
            for tree in list(self.sessions.values()):
                tree.happened(event)


class SimTree:
    """One session; implements coordination.tree.Tree."""

    def __init__(self, server: SimTreeServer, session_id: int, timeout_ms: int) -> None:
        self._server = server
        self._timeout_us = timeout_ms * MILLISECOND_US
        self._watches: dict[tuple[str, str], dict[Watch, None]] = {}
        self._listeners: list[SessionListener] = []
        self._last_notified_us = 0
        self._deadline_us = server.clock.now_us + self._timeout_us
        self._is_checked = False
        self._is_closed = False
        self.is_cut_off = False  # The network between it and the server is down.
        self.session_id = session_id

    # Its life.

    def beat(self) -> None:
        """Send a heartbeat of the process that owns the session."""
        if not self.is_cut_off and not self._is_closed:
            self._deadline_us = self._server.clock.now_us + self._timeout_us
            if not self._is_checked:
                self._is_checked = True
                self._server.clock.at(self._deadline_us, self._check)

    def _check(self) -> None:
        """Expire the session if its heartbeats have stopped; a session without any has no timeout."""
        if self.session_id not in self._server.sessions:
            return
        if self._server.clock.now_us < self._deadline_us:
            self._server.clock.at(self._deadline_us, self._check)
        else:
            self.expire()

    def expire(self) -> None:
        self._watches.clear()
        self._server.end(self.session_id)
        if not self._is_closed:
            self._notify_listeners(SessionState.EXPIRED)

    def cut_off(self) -> None:
        """Cut the session off; it loses its watches, as in ZooKeeper's client library on SUSPENDED."""
        self.is_cut_off = True
        self._watches.clear()
        self._notify_listeners(SessionState.SUSPENDED)

    def reconnect(self) -> None:
        self.is_cut_off = False
        if self.session_id in self._server.sessions:
            self.beat()
            self._notify_listeners(SessionState.CONNECTED)

    def abandon(self) -> None:
        """End the process of the session, which then expires after its timeout."""
        self._is_closed = True
        self._watches.clear()

    def close(self) -> None:
        self.abandon()
        self._server.end(self.session_id)

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    # What is asked of it.

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        made = self._one(Create(path, data, ephemeral, sequential))
        assert isinstance(made, str)
        return made

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = self._one(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._one(Delete(path, version))

    def check_room(self) -> None:
        pass

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._reach()
        return self._server.change(self.session_id, operations)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        znode = self._znodes(path).find(path)
        self._watch("data", path, watch)
        return znode.data, znode.stat

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        return get_each(self, paths, watch)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat: Stat | None = None
        with suppress(NoNode):
            stat = self._znodes(path).find(path).stat
        self._watch("absent" if stat is None else "data", path, watch)
        return stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = sorted(self._znodes(path).find(path).children)
        self._watch("children", path, watch)
        return names

    def _one(self, operation: Operation) -> Result:
        try:
            return self.multi([operation])[0]
        except MultiFailed as failed:
            raise failed.error from None

    def _znodes(self, path: str) -> Znodes:
        _check_path(path)
        self._reach()
        return self._server.znodes

    def _reach(self) -> None:
        if self._is_closed or self.is_cut_off:
            raise Unavailable(detail="The metadata tree is closed or unreachable.")
        if self.session_id not in self._server.sessions:
            raise SessionExpired(detail="The metadata tree session expired.")

    # Watches.

    def _watch(self, kind: str, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.setdefault((kind, path), {})[watch] = None

    def happened(self, event: WatchEvent) -> None:
        """Fire the watches on a node that was created, changed or deleted, and those on its parent's children."""
        self._fire(event)
        if event.kind is not EventKind.DATA_CHANGED and event.path != "/":
            self._fire(WatchEvent(EventKind.CHILDREN_CHANGED, parent_of(event.path)))

    def _fire(self, event: WatchEvent) -> None:
        fired: dict[Watch, None] = {}
        for kind in _FIRED[event.kind]:
            fired |= self._watches.pop((kind, event.path), {})
        for watch in fired:
            self._later(lambda watch=watch: watch(event))  # type: ignore[misc]

    def _notify_listeners(self, state: SessionState) -> None:
        for listener in self._listeners:
            self._later(lambda listener=listener: listener(state))  # type: ignore[misc]

    def _later(self, call: Callable[[], None]) -> None:
        """Deliver all events of a session in order."""
        clock = self._server.clock
        self._last_notified_us = max(self._last_notified_us, clock.now_us + self._server.watch_delay_us())
        clock.at(self._last_notified_us, lambda: None if self._is_closed else _called(call))


def _called(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # As in the other implementations: a failing watch must not affect the others.
        _LOG.exception("A watch of the metadata tree failed.")
