"""A broker's access to the metadata tree, which a partition cuts: the broker then has lost ZooKeeper.

    cut ── calls wait ── two thirds of the session timeout ── SUSPENDED, calls fail ── the timeout: expired for others
    healed ── before: calls continue ── CONNECTED ─────────────────────────────────── EXPIRED

These are the times of ZooKeeper's clients. As with ZooKeeper, a broker learns of its expired session when the partition
heals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.base.units import BrokerId
from odradek.coordination.sqlite import SESSION_TIMEOUT_MS, SqliteTree
from odradek.coordination.tree import SessionState, Unavailable
from odradek.testing.network import Network, Shared


class TreeLink:
    """One broker's access to the tree, in all of its sessions."""

    def __init__(self, network: Network, broker: BrokerId) -> None:
        self._network = network
        self._broker = broker
        self._changed = threading.Condition()
        self._cut_at: float | None = None
        self._is_leaving = False
        network.add_listener(self._on_network_changed)
        self._on_network_changed()

    @property
    def is_cut(self) -> bool:
        return self._cut_at is not None

    def is_lost(self, timeout_seconds: float) -> bool:
        """Return whether access has been cut for at least this time."""
        cut_at = self._cut_at
        return cut_at is not None and time.monotonic() - cut_at >= timeout_seconds

    def wait_for_access(self, timeout_seconds: float) -> None:
        """Wait while access is cut; raise Unavailable when it has been cut for this time."""
        with self._changed:
            while self._cut_at is not None:
                remaining = self._cut_at + timeout_seconds - time.monotonic()
                if remaining <= 0 or self._is_leaving:
                    raise Unavailable(detail=f"A test disconnected broker {self._broker} from the metadata tree.")
                self._changed.wait(remaining)

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Prevent a stopping broker from waiting for the tree."""
        self._set_leaving(True)
        try:
            yield
        finally:
            self._set_leaving(False)

    def _set_leaving(self, is_leaving: bool) -> None:
        with self._changed:
            self._is_leaving = is_leaving
            self._changed.notify_all()

    def _on_network_changed(self) -> None:
        with self._changed:
            if not self._network.is_cut(self._broker, Shared.TREE):
                self._cut_at = None
            elif self._cut_at is None:
                self._cut_at = time.monotonic()
            self._changed.notify_all()


class LinkedTree(SqliteTree):
    """A session of the tree through a TreeLink.

    While access is cut, the session sends and receives nothing, not even heartbeats.
    """

    def __init__(
        self, path: Path, *, link: TreeLink, session_timeout_ms: int = SESSION_TIMEOUT_MS, durable: bool = True
    ) -> None:
        self._link = link
        self._timeout_seconds = session_timeout_ms * 2 / 3 / 1000
        self._is_suspended = False
        link.wait_for_access(self._timeout_seconds)
        super().__init__(path, session_timeout_ms=session_timeout_ms, durable=durable)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._link.wait_for_access(self._timeout_seconds)
        with super()._transaction(begin):
            yield

    def _poll(self) -> None:
        if self._link.is_cut:
            if not self._is_suspended and self._link.is_lost(self._timeout_seconds):
                self._suspend()
            return
        super()._poll()
        if self._is_suspended:
            self._resume()

    def _maintain(self) -> None:
        if not self._link.is_cut:
            super()._maintain()

    def _suspend(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_suspended = True
                self._watches.clear()
                self._notify(SessionState.SUSPENDED)

    def _resume(self) -> None:
        with self._lock:
            if not self._is_closed:
                with self._read():
                    pass  # This detects an expired session.
                self._is_suspended = False
                self._notify(SessionState.CONNECTED)

    def _notify(self, state: SessionState) -> None:
        for listener in self._listeners:
            self._caller.call(lambda listener=listener: listener(state))  # type: ignore[misc]
