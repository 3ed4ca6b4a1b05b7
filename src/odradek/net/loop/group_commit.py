"""Group commit of produce requests from connections that had consecutive turns.

With very many connections that send small requests, the commit costs as much as the request. A connection that is one
of many therefore only stages its batches, and its response waits for a few more requests. These are connections in the
epoll sets of net/loop/readers.py and newly accepted ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.core.kernel.moment import Moment

CONNECTIONS_MAX = 32  # A millisecond or two.
REQUESTS_MAX = 4  # Of one connection; a connection that stages more commits on its own.


class Gatherable(Protocol):
    def commit(self, now: Moment, began: float) -> None:
        """Write the staged batches through the broker and send the responses; raise nothing."""


class GroupCommit:
    """Connections of one loop that share a commit.

    It wraps a run of turns (`with gathered: ...`), and commits for all waiting connections at its end. `settled` is
    called whenever some responses have been sent.
    """

    def __init__(self, settled: Callable[[], None]) -> None:
        self._settled = settled
        self.most = 0  # Largest number of connections in one commit.
        self._is_open = False
        self._waiting: list[tuple[Gatherable, Moment, float]] = []

    def __enter__(self) -> None:
        assert not self._is_open, "runs of turns are not nested"
        self._is_open = True

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self.flush()

    @property
    def has_waiting(self) -> bool:
        """Return whether some connections have staged batches that are not written yet."""
        return bool(self._waiting)

    def try_add(self, connection: Gatherable, now: Moment, began: float) -> bool:
        """Return whether `commit` will be called with these arguments before this run of turns ends."""
        if not self._is_open:
            return False
        self._waiting.append((connection, now, began))
        return True

    def flush_if_many(self) -> None:
        if len(self._waiting) >= CONNECTIONS_MAX:
            self.flush()

    def flush(self) -> None:
        """Commit for all waiting connections; the first one's commit writes everything."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self.most = max(self.most, len(waiting))
        for connection, now, began in waiting:
            connection.commit(now, began)
        self._settled()
