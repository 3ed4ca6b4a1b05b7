"""Connections whose produces are written with one commit: they had their turns one after the other.

With very many connections that ask for little, the commit costs as much as the request.  So who is one of many (those
of net/loop/readers' set, and who just comes in) only stages, and waits some requests for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.core.kernel.moment import Moment

CONNECTIONS_MAX = 32  # A millisecond or two.
REQUESTS_MAX = 4  # Of one connection; who stages more has a commit of its own.


class Gatherable(Protocol):
    def commit(self, now: Moment, began: float) -> None:
        """Has the broker write, and answers; raises nothing."""


class Gathered:
    """Those of one loop.  It stands around a run of turns: `with gathered: ...`; at its end nobody waits.

    `settled` is called whenever some have been answered.
    """

    def __init__(self, settled: Callable[[], None]) -> None:
        self._settled = settled
        self.most = 0  # That were ever written together.
        self._is_open = False
        self._waiting: list[tuple[Gatherable, Moment, float]] = []

    def __enter__(self) -> None:
        assert not self._is_open, "a run of turns is within no other"
        self._is_open = True

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self.flush()

    @property
    def is_waited_for(self) -> bool:
        """Some have staged what is not written yet."""
        return bool(self._waiting)

    def takes(self, connection: Gatherable, now: Moment, began: float) -> bool:
        """True if its `commit` is called later, with the same arguments; before the end of this run of turns."""
        if not self._is_open:
            return False
        self._waiting.append((connection, now, began))
        return True

    def flush_if_many(self) -> None:
        if len(self._waiting) >= CONNECTIONS_MAX:
            self.flush()

    def flush(self) -> None:
        """The first one's commit writes for all."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self.most = max(self.most, len(waiting))
        for connection, now, began in waiting:
            connection.commit(now, began)
        self._settled()
