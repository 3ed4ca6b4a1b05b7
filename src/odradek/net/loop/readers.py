"""Readiness of connections: the loop watches a few sockets, epoll sets of our own watch the others.

uvloop fetches 1024 events at a time from the system. While it gets that many, it fetches again, up to 48 times, before
it runs `call_soon` callbacks or checks timers. With 2,000 busy connections this takes seconds. The loop must therefore
never see so many events. All but the first connections are in an epoll set, which is one descriptor for the loop. We
poll that set ourselves, for a limited number of events and milliseconds. The system returns ready descriptors in turn,
so no connection starves. But a connection that has sent nothing yet would wait behind all busy ones, a tenth of a
second for 2,000. Newcomers therefore have a set of their own until their first bytes.

A set costs one more system call for each batch of events, which would delay a client that is alone.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

DIRECT_MAX = 16
# Upper bound of busy connections ahead of a new connection or a timer; small requests take a few milliseconds.
PER_TURN = 128
TURN_SECONDS = 0.01
CROWDED_TURN_SECONDS = 0.001  # While so many clients connect that some have no response yet,
CROWD_SECONDS = 0.3  # unless the crowd lasts longer than this.

Callback = Callable[[], object]


class _Set:
    """Epoll set with the callback of each of its descriptors."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callback] = {}

    def add(self, descriptor: int, callback: Callback) -> None:
        self.epoll.register(descriptor, select.EPOLLIN)
        self.callbacks[descriptor] = callback

    def remove(self, descriptor: int) -> bool:
        """Remove a descriptor and return whether it was in the set."""
        if self.callbacks.pop(descriptor, None) is None:
            return False
        self.epoll.unregister(descriptor)
        return True


class Readers:
    """Watched descriptors with their callbacks, which run as long as there is data to read."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        direct_max: int = DIRECT_MAX,
        clock: Callable[[], float] = time.monotonic,
        around: AbstractContextManager[None] | None = None,
    ) -> None:
        """Create readers without descriptors; `around` is entered for each run of callbacks from the sets."""
        self._loop = loop
        self._direct_max = direct_max
        self._clock = clock
        self._around = nullcontext() if around is None else around
        self._is_accept_crowded = False
        self._are_newcomers_crowded = False
        self._crowded_since: float | None = None
        self._direct: set[int] = set()
        self._sets: tuple[_Set, _Set] | None = None  # For busy connections and for newcomers.
        self._ready: deque[tuple[int, int]] = deque()  # Busy descriptors that are ready but not called yet.

    def add(
        self, descriptor: int, callback: Callback, *, is_newcomer: bool = False, is_paused_at_times: bool = False
    ) -> None:
        """Watch a descriptor; a newcomer has sent nothing yet.

        Descriptors that are `is_paused_at_times` are removed and added again, which costs five system calls in uvloop
        but two in a set.
        """
        if (is_paused_at_times or len(self._direct) >= self._direct_max) and self._ensure_sets():
            assert self._sets is not None
            busy, newcomers = self._sets
            (newcomers if is_newcomer else busy).add(descriptor, callback)
        else:
            self._loop.add_reader(descriptor, callback)
            self._direct.add(descriptor)

    def remove(self, descriptor: int) -> None:
        """Stop watching a descriptor; call it before closing, as a set keeps a descriptor that was duplicated."""
        if descriptor in self._direct:
            self._direct.discard(descriptor)
            self._loop.remove_reader(descriptor)
        elif self._sets is not None:
            busy, newcomers = self._sets
            _ = busy.remove(descriptor) or newcomers.remove(descriptor)

    def on_crowd(self, is_crowded: bool) -> None:
        """Record whether clients wait to be accepted; if so, busy connections get shorter turns."""
        self._is_accept_crowded = is_crowded
        self._update_crowd()

    def close(self) -> None:
        """Close the sets; called when no descriptor is watched any more."""
        if self._sets is not None:
            for epoll_set in self._sets:
                self._loop.remove_reader(epoll_set.epoll.fileno())
                epoll_set.epoll.close()
            self._sets = None

    def _ensure_sets(self) -> bool:
        if self._sets is None and hasattr(select, "epoll"):
            try:
                busy = _Set()
                newcomers = _Set()
            except OSError:  # No descriptor is left for the sets.
                return False
            self._loop.add_reader(busy.epoll.fileno(), self._on_ready)
            self._loop.add_reader(newcomers.epoll.fileno(), self._on_newcomers_ready)
            self._sets = busy, newcomers
        return self._sets is not None

    def _on_newcomers_ready(self) -> None:
        with self._around:
            self._call_newcomers()

    def _call_newcomers(self) -> None:
        """Call newcomers that are ready and move them to the set of busy connections."""
        assert self._sets is not None
        busy, newcomers = self._sets
        clock = self._clock
        end = clock() + TURN_SECONDS
        self._are_newcomers_crowded = False
        for descriptor, _ in newcomers.epoll.poll(0, PER_TURN):
            if clock() > end:
                self._are_newcomers_crowded = True
                break
            callback = newcomers.callbacks.get(descriptor)
            if callback is None:
                continue  # An earlier callback has removed it.
            with suppress(OSError):  # If the system cannot watch more descriptors now, it stays a newcomer.
                busy.add(descriptor, callback)
                newcomers.remove(descriptor)
            callback()
        self._update_crowd()

    def _update_crowd(self) -> None:
        if not (self._is_accept_crowded or self._are_newcomers_crowded):
            self._crowded_since = None
        elif self._crowded_since is None:
            self._crowded_since = self._clock()

    def _turn_seconds(self, now: float) -> float:
        """Return how long a turn of busy connections may take."""
        is_crowded = self._crowded_since is not None and now < self._crowded_since + CROWD_SECONDS
        return CROWDED_TURN_SECONDS if is_crowded else TURN_SECONDS

    def _on_ready(self) -> None:
        with self._around:
            self._call_some()

    def _call_some(self) -> None:
        assert self._sets is not None
        busy, _ = self._sets
        ready, callback_of, clock = self._ready, busy.callbacks.get, self._clock
        if not ready:
            ready.extend(busy.epoll.poll(0, PER_TURN))
        now = clock()
        end = now + self._turn_seconds(now)
        while ready:
            descriptor, _ = ready.popleft()
            callback = callback_of(descriptor)
            if callback is None:
                continue  # An earlier callback has removed it.
            callback()
            if clock() > end:
                return
