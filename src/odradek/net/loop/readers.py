"""Watches the sockets of connections: with the loop itself for a few, with an epoll set of our own for all others.

uvloop takes 1024 events at a time from the system, and as long as it gets so many it asks again, up to 48 times, before
it calls what `call_soon` was given, or looks at a timer.  With 2,000 busy connections that takes seconds.  So it must
never see as many: all but the first connections are one descriptor for it, that of a set which we ask ourselves, for
some at a time and for some milliseconds.  The system gives those that are ready in turn, so that nobody is forgotten.
But a connection that has sent nothing yet would wait behind all that are busy, a tenth of a second for 2,000: until
their first bytes newcomers have a set of their own.

A set costs one more system call for each batch of events, which a client that is alone would have to wait for.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

DIRECT_MAX = 16
# A new connection, or a timer, waits for so many of the busy ones at most: small requests take some milliseconds.
PER_TURN = 128
TURN_SECONDS = 0.01
CROWDED_TURN_SECONDS = 0.001  # While so many come that some have no answer at all yet,
CROWD_SECONDS = 0.3  # unless more and more do.

Callback = Callable[[], object]


class _Set:
    """An epoll set, with the callback of each descriptor in it."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callback] = {}

    def add(self, descriptor: int, callback: Callback) -> None:
        self.epoll.register(descriptor, select.EPOLLIN)
        self.callbacks[descriptor] = callback

    def remove(self, descriptor: int) -> bool:
        """Returns False if the descriptor is not in the set."""
        if self.callbacks.pop(descriptor, None) is None:
            return False
        self.epoll.unregister(descriptor)
        return True


class Readers:
    """Calls each descriptor's callback, again and again, while there is something to read."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        direct_max: int = DIRECT_MAX,
        clock: Callable[[], float] = time.monotonic,
        around: AbstractContextManager[None] | None = None,
    ) -> None:
        """`around` is entered for each run of callbacks from the sets."""
        self._loop = loop
        self._direct_max = direct_max
        self._clock = clock
        self._around = nullcontext() if around is None else around
        self._is_door_crowded = False
        self._are_newcomers_crowded = False
        self._crowded_since: float | None = None
        self._direct: set[int] = set()
        self._sets: tuple[_Set, _Set] | None = None  # The busy ones, and the newcomers.
        self._ready: deque[tuple[int, int]] = deque()  # Busy descriptors that are ready and not called yet.

    def add(
        self, descriptor: int, callback: Callback, *, is_newcomer: bool = False, is_paused_at_times: bool = False
    ) -> None:
        """Watches a descriptor; a newcomer has sent nothing yet.

        One that `is_paused_at_times` will be removed and added again, which costs uvloop five system calls, a set two.
        """
        if (is_paused_at_times or len(self._direct) >= self._direct_max) and self._ensure_sets():
            assert self._sets is not None
            busy, newcomers = self._sets
            (newcomers if is_newcomer else busy).add(descriptor, callback)
        else:
            self._loop.add_reader(descriptor, callback)
            self._direct.add(descriptor)

    def remove(self, descriptor: int) -> None:
        """Stops watching; called before the descriptor is closed, as a set keeps one of which there is a copy."""
        if descriptor in self._direct:
            self._direct.discard(descriptor)
            self._loop.remove_reader(descriptor)
        elif self._sets is not None:
            busy, newcomers = self._sets
            _ = busy.remove(descriptor) or newcomers.remove(descriptor)

    def make_way(self, is_crowded: bool) -> None:
        """Notes whether clients wait to be accepted: busy connections then get shorter turns."""
        self._is_door_crowded = is_crowded
        self._note_crowd()

    def close(self) -> None:
        """Closes the sets; called when nobody is watched any more."""
        if self._sets is not None:
            for one in self._sets:
                self._loop.remove_reader(one.epoll.fileno())
                one.epoll.close()
            self._sets = None

    def _ensure_sets(self) -> bool:
        if self._sets is None and hasattr(select, "epoll"):
            try:
                busy = _Set()
                newcomers = _Set()
            except OSError:  # No descriptor is left for the sets.
                return False
            self._loop.add_reader(busy.epoll.fileno(), self._look)
            self._loop.add_reader(newcomers.epoll.fileno(), self._look_at_newcomers)
            self._sets = busy, newcomers
        return self._sets is not None

    def _look_at_newcomers(self) -> None:
        with self._around:
            self._call_newcomers()

    def _call_newcomers(self) -> None:
        """Calls newcomers that are ready; from now on they are watched as all others."""
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
            with suppress(OSError):  # The system watches no more for us at the moment: it stays a newcomer.
                busy.add(descriptor, callback)
                newcomers.remove(descriptor)
            callback()
        self._note_crowd()

    def _note_crowd(self) -> None:
        if not (self._is_door_crowded or self._are_newcomers_crowded):
            self._crowded_since = None
        elif self._crowded_since is None:
            self._crowded_since = self._clock()

    def _turn_seconds(self, now: float) -> float:
        """Returns how long busy connections may have their turn."""
        is_crowded = self._crowded_since is not None and now < self._crowded_since + CROWD_SECONDS
        return CROWDED_TURN_SECONDS if is_crowded else TURN_SECONDS

    def _look(self) -> None:
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
