"""One bound on the memory of all half-received requests: what the connections of a broker hold above their small base.

A connection takes more when its request outgrows its buffer.  If there is no room it waits, that is: its shell stops
reading from the socket, and the peer's bytes stay with the peer.  Three rules keep that from becoming a deadlock:

    the oldest goes on     of the requests that have outgrown their buffers, the one that began first always gets room,
                           so the bound may be exceeded by one request
    what lies idle goes    a buffer without a request in it is given up as soon as somebody waits
    the slow are let go    while somebody waits, whoever holds memory and brings next to nothing is disconnected:
                           the time a request may take depends on its size, the rate at which it comes does not

Without I/O and clock: the shell calls `look` from time to time.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.limits import RECEIVE_BUDGET_BYTES, RECEIVE_BYTES_PER_LOOK_MIN


def _nothing() -> None:
    """Nobody asked to be told."""


class Share:
    """One connection's part.  `has_room` is called when it need not wait any more, `is_too_slow` when it has to go.

    `let_go` is the connection's buffer's: give up what holds no bytes.
    """

    def __init__(
        self,
        budget: ReceiveBudget | None = None,
        has_room: Callable[[], None] = _nothing,
        is_too_slow: Callable[[], None] = _nothing,
    ) -> None:
        self._budget = budget  # None: there is no bound.
        self.has_room = has_room
        self.is_too_slow = is_too_slow
        self.let_go: Callable[[], None] = _nothing
        self.held = 0
        self.wanted = 0  # 0 unless it waits.
        self.received = 0  # Since the last look.
        self.was_seen = False  # Held something at the last look.

    @property
    def is_waiting(self) -> bool:
        return self.wanted > 0

    @property
    def is_over(self) -> bool:
        """All together hold more than they should: nobody keeps what is not needed at once."""
        return self._budget is not None and self._budget.held > self._budget.bytes_max

    def may_have(self, size: int) -> bool:
        """Take so much in all if that is possible at once; for speed, nobody waits for it."""
        return self._budget is None or self._budget.take_if_free(self, size)

    def needs(self, size: int) -> bool:
        """Take so much in all, or wait for it: then `has_room` says when it was taken."""
        return self._budget is None or self._budget.take_or_wait(self, size)

    def holds(self, size: int) -> None:
        """So much it is now, whether or not that was asked for: less, or the bound of somebody who does not wait."""
        if self._budget is not None and size != self.held:
            self._budget.holds(self, size)

    def is_done(self) -> None:
        """Its request was handled; what it still holds is for the next one."""
        if self._budget is not None:
            self._budget.is_done(self)

    def leave(self) -> None:
        self.let_go = self.has_room = self.is_too_slow = _nothing
        if self._budget is not None:
            self._budget.leave(self)
            self._budget = None


class ReceiveBudget:
    """Shared by every connection of a broker."""

    def __init__(self, bytes_max: int = RECEIVE_BUDGET_BYTES) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self._shares: dict[Share, None] = {}
        self._outgrown: dict[Share, None] = {}  # Requests larger than their buffer was, the oldest first.

    def join(self, has_room: Callable[[], None], is_too_slow: Callable[[], None]) -> Share:
        share = Share(self, has_room, is_too_slow)
        self._shares[share] = None
        return share

    @property
    def waiting(self) -> list[Share]:
        return [share for share in self._outgrown if share.wanted]

    def take_if_free(self, share: Share, size: int) -> bool:
        if not self._fits(share, size):
            return False
        self._set(share, size)
        return True

    def take_or_wait(self, share: Share, size: int) -> bool:
        self._outgrown.setdefault(share)
        if not self._fits(share, size):
            self._ask_idle(share)
        if self._may_take(share, size):
            self._set(share, size)
            return True
        share.wanted, share.was_seen = size, False
        return False

    def holds(self, share: Share, size: int) -> None:
        has_shrunk = size < share.held
        self._set(share, size)
        if has_shrunk:
            self._serve_waiting()

    def is_done(self, share: Share) -> None:
        share.wanted = 0
        if self._outgrown.pop(share, share) is None:  # It was one of them: the next one is the oldest now.
            self._serve_waiting()

    def leave(self, share: Share) -> None:
        self._shares.pop(share, None)
        self._outgrown.pop(share, None)
        share.wanted = 0
        self._set(share, 0)
        self._serve_waiting()

    def look(self, *, may_blame: bool = True) -> None:
        """Now and then: idle buffers go, and with them, if somebody waits, those whose peers hold up the others.

        Not `may_blame`: nobody could have read meanwhile what the peers sent.
        """
        for share in list(self._shares):
            if not share.received:
                share.let_go()
        if may_blame:
            self._part_with_slow()
        for share in self._shares:
            share.received = 0
            share.was_seen = share.held > 0 and not share.wanted

    def _part_with_slow(self) -> None:
        if not self.waiting:
            return
        for share in sorted(self._shares, key=lambda one: one.held, reverse=True):
            if not self.waiting:
                return
            if share.was_seen and share.held and share.received < RECEIVE_BYTES_PER_LOOK_MIN:
                share.is_too_slow()
                share.leave()

    def _may_take(self, share: Share, size: int) -> bool:
        return self._fits(share, size) or share is next(iter(self._outgrown))

    def _fits(self, share: Share, size: int) -> bool:
        return self.held - share.held + size <= self.bytes_max

    def _set(self, share: Share, size: int) -> None:
        self.held += size - share.held
        share.held = size

    def _ask_idle(self, asking: Share) -> None:
        for share in list(self._shares):
            if share.held and share is not asking:
                share.let_go()

    def _serve_waiting(self) -> None:
        for share in self.waiting:
            if share.wanted and self._may_take(share, share.wanted):
                size, share.wanted = share.wanted, 0
                self._set(share, size)
                share.has_room()
