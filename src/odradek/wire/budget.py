"""A memory bound for all partially received requests, above a small base for each connection.

A connection takes more memory when its request outgrows its buffer. Without room it waits: its shell stops reading from
the socket, and the peer's data stays with the peer. Three rules prevent a deadlock:

    oldest first           among the requests that have outgrown their buffers, the oldest one always gets room,
                           so the bound may be exceeded by one request
    idle buffers freed     a buffer without data is freed as soon as a connection waits
    slow peers dropped     while a connection waits, a peer that holds memory but sends almost nothing is
                           disconnected: the permitted time of a request depends on its size, the rate does not

This module has no I/O and no clock: the shell calls `reclaim_buffers` periodically.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.limits import RECEIVE_BUDGET_BYTES, RECEIVE_BYTES_PER_CHECK_MIN


def _nothing() -> None:
    """Do nothing; the default for callbacks that were not given."""


class Share:
    """The share of one connection in the budget.

    `on_room` is called when the connection no longer has to wait, `on_too_slow` when it must be closed. The connection
    sets `free_buffer`, which frees a buffer without data.
    """

    def __init__(
        self,
        budget: ReceiveBudget | None = None,
        on_room: Callable[[], None] = _nothing,
        on_too_slow: Callable[[], None] = _nothing,
    ) -> None:
        self._budget = budget  # None means no bound.
        self.on_room = on_room
        self.on_too_slow = on_too_slow
        self.free_buffer: Callable[[], None] = _nothing
        self.held = 0
        self.awaited_bytes = 0  # Number of bytes that the connection waits for, 0 if it does not wait.
        self.received = 0  # Bytes since the last check.
        self.was_seen = False  # The share held memory at the last check.

    @property
    def is_waiting(self) -> bool:
        return self.awaited_bytes > 0

    @property
    def is_over(self) -> bool:
        """Return whether all connections together exceed the bound, so that none may keep unneeded memory."""
        return self._budget is not None and self._budget.held > self._budget.bytes_max

    def try_reserve(self, size: int) -> bool:
        """Increase the held memory to `size` if there is room now; otherwise return False without waiting."""
        return self._budget is None or self._budget.try_reserve(self, size)

    def reserve(self, size: int) -> bool:
        """Increase the held memory to `size`; return False if the connection must wait for `on_room`."""
        return self._budget is None or self._budget.reserve(self, size)

    def set_held(self, size: int) -> None:
        """Set the held memory to `size` without asking for room.

        The size may be smaller, or the limit of a connection that does not wait.
        """
        if self._budget is not None and size != self.held:
            self._budget.set_held(self, size)

    def request_done(self) -> None:
        """Record that the request was handled; memory still held is for the next request."""
        if self._budget is not None:
            self._budget.request_done(self)

    def leave(self) -> None:
        self.free_buffer = self.on_room = self.on_too_slow = _nothing
        if self._budget is not None:
            self._budget.leave(self)
            self._budget = None


class ReceiveBudget:
    """The budget shared by all connections of a broker."""

    def __init__(self, bytes_max: int = RECEIVE_BUDGET_BYTES) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self._shares: dict[Share, None] = {}
        self._outgrown: dict[Share, None] = {}  # Requests larger than their initial buffer, oldest first.

    def join(self, on_room: Callable[[], None], on_too_slow: Callable[[], None]) -> Share:
        share = Share(self, on_room, on_too_slow)
        self._shares[share] = None
        return share

    @property
    def waiting(self) -> list[Share]:
        return [share for share in self._outgrown if share.awaited_bytes]

    def try_reserve(self, share: Share, size: int) -> bool:
        if not self._fits(share, size):
            return False
        self._set(share, size)
        return True

    def reserve(self, share: Share, size: int) -> bool:
        self._outgrown.setdefault(share)
        if not self._fits(share, size):
            self._free_idle_buffers(share)
        if self._may_take(share, size):
            self._set(share, size)
            return True
        share.awaited_bytes, share.was_seen = size, False
        return False

    def set_held(self, share: Share, size: int) -> None:
        has_shrunk = size < share.held
        self._set(share, size)
        if has_shrunk:
            self._serve_waiting()

    def request_done(self, share: Share) -> None:
        share.awaited_bytes = 0
        # The share was among them, so a different one may be the oldest now.
        if self._outgrown.pop(share, share) is None:
            self._serve_waiting()

    def leave(self, share: Share) -> None:
        self._shares.pop(share, None)
        self._outgrown.pop(share, None)
        share.awaited_bytes = 0
        self._set(share, 0)
        self._serve_waiting()

    def reclaim_buffers(self, *, drops_slow_peers: bool = True) -> None:
        """Free idle buffers and, while a connection waits, disconnect slow peers; called periodically.

        Without `drops_slow_peers` no peer is considered slow, because the broker was not able to read their data.
        """
        for share in list(self._shares):
            if not share.received:
                share.free_buffer()
        if drops_slow_peers:
            self._drop_slow_peers()
        for share in self._shares:
            share.received = 0
            share.was_seen = share.held > 0 and not share.awaited_bytes

    def _drop_slow_peers(self) -> None:
        if not self.waiting:
            return
        for share in sorted(self._shares, key=lambda each: each.held, reverse=True):
            if not self.waiting:
                return
            if share.was_seen and share.held and share.received < RECEIVE_BYTES_PER_CHECK_MIN:
                share.on_too_slow()
                share.leave()

    def _may_take(self, share: Share, size: int) -> bool:
        return self._fits(share, size) or share is next(iter(self._outgrown))

    def _fits(self, share: Share, size: int) -> bool:
        return self.held - share.held + size <= self.bytes_max

    def _set(self, share: Share, size: int) -> None:
        self.held += size - share.held
        share.held = size

    def _free_idle_buffers(self, requester: Share) -> None:
        for share in list(self._shares):
            if share.held and share is not requester:
                share.free_buffer()

    def _serve_waiting(self) -> None:
        for share in self.waiting:
            if share.awaited_bytes and self._may_take(share, share.awaited_bytes):
                size, share.awaited_bytes = share.awaited_bytes, 0
                self._set(share, size)
                share.on_room()
