"""A tree that opens a new session after an expiry, as when its process was stopped for too long.

    expired ──> listeners receive EXPIRED ──> a new session, when the tree is reachable ──> `on_renewed` is called

In between, every operation raises SessionExpired. Watches and ephemeral nodes end with their session; `on_renewed`
creates them again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import (
    ANY_VERSION,
    Operation,
    Result,
    SessionListener,
    SessionState,
    Stat,
    Tree,
    TreeFailed,
    Watch,
)

_LOG = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class ReconnectingTree:
    """A Tree opened by `opens` once for each session."""

    def __init__(self, opens: Callable[[], Tree]) -> None:
        """Begin the first session, or raise the errors of `opens`."""
        self._opens = opens
        self._listeners: list[SessionListener] = []
        self._closed = threading.Event()
        self._lock = threading.Lock()  # Guards the exchange of sessions, and closing.
        self._has_ended = self._is_renewing = False
        self.on_renewed: Callable[[], None] = _nothing  # Called in a thread after a later session has begun.
        self._tree = opens()
        self._tree.on_session(self._on_session_state)

    def _on_session_state(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)
        if state is not SessionState.EXPIRED or self._closed.is_set():
            return
        with self._lock:
            self._has_ended = True
            # If a session ends while `on_renewed` runs, its caller renews it. Two threads would open a session each.
            must_start, self._is_renewing = not self._is_renewing, True
        if must_start:
            threading.Thread(target=self._renew, name="odradek-session", daemon=True).start()

    def _renew(self) -> None:
        while not self._closed.is_set():
            try:
                self._exchange()
                self.on_renewed()
            except (TreeFailed, BadZnodeError) as failed:
                _LOG.warning("failed to start a new metadata tree session (will retry): %s", failed)
                self._closed.wait(RETRY_SECONDS)
            else:
                with self._lock:
                    self._is_renewing = self._has_ended
                    if not self._is_renewing:
                        return

    def _exchange(self) -> None:
        tree = self._opens()
        with self._lock:
            if self._closed.is_set():
                tree.close()
                return
            old, self._tree = self._tree, tree
            self._has_ended = False
        tree.on_session(self._on_session_state)
        old.close()

    @property
    def session_id(self) -> int:
        return self._tree.session_id

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return self._tree.create(path, data, ephemeral=ephemeral, sequential=sequential)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._tree.get(path, watch)

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        return self._tree.get_all(paths, watch)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return self._tree.set(path, data, version)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._tree.delete(path, version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._tree.exists(path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._tree.children(path, watch)

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return self._tree.multi(operations)

    def check_room(self) -> None:
        self._tree.check_room()

    def on_session(self, listener: SessionListener) -> None:
        """Call the listener for all sessions; `on_renewed`, not CONNECTED, announces a new one."""
        self._listeners.append(listener)

    def close(self) -> None:
        self._end(lambda tree: tree.close())

    def abandon(self) -> None:
        """End like a killed process: the session is left to expire."""
        self._end(lambda tree: getattr(tree, "abandon", tree.close)())

    def _end(self, end: Callable[[Tree], None]) -> None:
        with self._lock:
            self._closed.set()
            tree = self._tree
        end(tree)


def _nothing() -> None:
    """Do nothing; the default for `on_renewed`."""
