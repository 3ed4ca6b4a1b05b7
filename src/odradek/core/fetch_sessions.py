"""Incremental fetch sessions: a client names its partitions once and then only what changes (KIP-227).

The broker keeps, for each session, what was asked of every partition and what was last answered, so that an answer
holds only partitions with something new.  A session is one client's; its epoch rises with each request, and a request
that was lost shows as a gap.  Sessions beyond the limit are not made: the client is told id 0 and goes on sending
whole requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import (
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSIONS_MAX,
    PARTITIONS_PER_FETCH_SESSION_MAX,
)
from odradek.base.units import INT32_MAX, MINUTE_MS
from odradek.base.uuids import Uuid

SESSIONLESS = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 2 * MINUTE_MS  # min.incremental.fetch.session.eviction.ms


class FetchKey(NamedTuple):
    """A partition as the client names it: by topic id from Fetch v13 on, by name before."""

    topic: str | Uuid
    partition: int


@dataclass
class Wanted:
    """What a client wants of one partition, and what it was last told of it."""

    key: FetchKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start: int = -1

    def asks_again(self, newer: Wanted) -> None:
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch

    def is_news(self, high_watermark: int, log_start: int) -> bool:
        """Remember what the client is told now; True if that differs from the last time."""
        if (high_watermark, log_start) == (self.told_high_watermark, self.told_log_start):
            return False
        self.told_high_watermark, self.told_log_start = high_watermark, log_start
        return True


@dataclass
class Session:
    """One client's session.  The order of `wanted` is the order of service: who got data goes to the end."""

    id: int
    uses_ids: bool
    epoch: int
    last_used: int
    wanted: dict[FetchKey, Wanted] = field(default_factory=dict)

    def serve_last(self, key: FetchKey) -> None:
        wanted = self.wanted.pop(key, None)
        if wanted is not None:
            self.wanted[key] = wanted


class FetchRound(NamedTuple):
    """One fetch: what to read, and the session it belongs to, if any."""

    wanted: list[Wanted]
    session: Session | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return SESSIONLESS if self.session is None else self.session.id


class FetchSessions:
    """Every session of a broker.  `random_int31` gives the ids, which must not be guessable by other clients."""

    def __init__(self, random_int31: Callable[[], int], sessions_max: int = FETCH_SESSIONS_MAX) -> None:
        self._random_int31 = random_int31
        self._sessions_max = sessions_max
        self._sessions: dict[int, Session] = {}  # Least recently used first.

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: dict[FetchKey, Wanted],
        forgotten: Sequence[FetchKey],
        *,
        uses_ids: bool,
        steady: int,
    ) -> Generator[None, object, FetchRound]:
        """Merges a request into its session, and yields after each partition: others may have their turns there.

        Raises Refused: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR; the
        client answers each with a whole request.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = None if epoch == FINAL_EPOCH else self._open(wanted, uses_ids, steady)
            return FetchRound(list(wanted.values()), session, is_incremental=False)
        session = self._continued(session_id, epoch, uses_ids)
        self.goes_on(session, steady)
        room = self._room_in(session)
        for key, one in wanted.items():
            known = session.wanted.setdefault(key, one)
            if known is not one:
                known.asks_again(one)
            elif not room:
                self._sessions.pop(session.id, None)  # Its client goes on without one.
                raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the sessions hold too many partitions")
            else:
                room -= 1
            yield
        for key in forgotten:
            session.wanted.pop(key, None)
            yield
        if not session.wanted:
            self._sessions.pop(session.id, None)
            # What is wanted and forgotten at once is answered this once, as Apache Kafka does.
            return FetchRound(list(wanted.values()), None, is_incremental=False)
        return FetchRound(list(session.wanted.values()), session, is_incremental=True)

    def _open(self, wanted: dict[FetchKey, Wanted], uses_ids: bool, steady: int) -> Session | None:
        session = Session(self._new_id(), uses_ids, 1, steady)
        if not self._has_room(steady) or len(wanted) > self._room_in(session):
            return None
        session.wanted = wanted
        self._sessions[session.id] = session
        return session

    def _continued(self, session_id: int, epoch: int, uses_ids: bool) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {epoch}, expected {session.epoch}")
        if session.uses_ids != uses_ids:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session goes by names or by ids, not by both")
        return session

    def goes_on(self, session: Session, steady: int) -> None:
        """Its next request came."""
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        session.last_used = steady
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _partitions(self) -> int:
        return sum(len(session.wanted) for session in self._sessions.values())

    def _room_in(self, session: Session) -> int:
        """How many partitions more it may have."""
        in_all = FETCH_SESSION_PARTITIONS_MAX - self._partitions()
        return min(in_all, PARTITIONS_PER_FETCH_SESSION_MAX - len(session.wanted))

    def _has_room(self, steady: int) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or steady - oldest.last_used < EVICTION_MS:
            return False
        del self._sessions[oldest.id]
        return True

    def _new_id(self) -> int:
        while (session_id := self._random_int31()) in self._sessions or session_id == SESSIONLESS:
            pass
        return session_id
