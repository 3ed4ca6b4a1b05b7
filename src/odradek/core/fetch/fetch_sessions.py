"""Incremental fetch sessions: a client names its partitions once and then only what changes (KIP-227).

The broker keeps, for each session, what was asked of every partition and what was last answered, so that an answer
holds only partitions with something new.  A session is one client's; its epoch rises with each request, and a request
that was lost shows as a gap.  Sessions beyond the limit are not made: the client is told id 0 and goes on sending
whole requests.

A request reads only the partitions that are due: those that it names, those that changed, and those of which there was
more to tell than an answer holds.

    due ── read, and nothing is new ──> watches its partition
     ^                                          │
     └───── named again, or it changed ─────────┘

A follower's session goes by the end of the log, and by what a consumer's goes by: what it is told, it keeps.
One change ends the watch, so that a session that nobody uses any more costs a busy partition next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import (
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSIONS_MAX,
    PARTITIONS_PER_FETCH_SESSION_MAX,
)
from odradek.base.units import INT32_MAX, MINUTE_MS, NO_BROKER, BrokerId, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.kernel.access import Principal
from odradek.core.kernel.parked import ParkingLot

SESSIONLESS = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LISTED_PER_STEP = 8  # Next to nothing is done with each.
EVICTION_MS = 2 * MINUTE_MS  # min.incremental.fetch.session.eviction.ms


class FetchKey(NamedTuple):
    """A partition as the client names it: by topic id from Fetch v13 on, by name before."""

    topic: str | Uuid
    partition: int


class Wanted:
    """A partition of a fetch, cached in its session: what the client asked, and what it was last told."""

    def __init__(  # noqa: PLR0917
        self,
        key: FetchKey,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        """`log_start_offset` is that of a follower's log; -1 for a consumer."""
        self.key = key
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.session: Session | None = None  # None for a request without a session.
        self._watched: Watchers | None = None

    def at(self, offset: int) -> Wanted:
        """Returns the same from another offset on, of which nothing was told."""
        return Wanted(self.key, offset, self.max_bytes, self.current_leader_epoch, self.last_fetched_epoch)

    def asks_again(self, newer: Wanted) -> None:
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def is_news(self, high_watermark: int, log_start: int) -> bool:
        return high_watermark != self.told_high_watermark or log_start != self.told_log_start

    def told(self, high_watermark: int, log_start: int) -> None:
        self.told_high_watermark, self.told_log_start = high_watermark, log_start

    def watch(self, watchers: Watchers) -> None:
        """Registers with the partition's `watchers`: the partition calls `changed` once."""
        if self._watched is not watchers:
            self.stop_watching()
            self._watched = watchers
            watchers[self] = None
        assert self in watchers, "its partition would never tell it"

    def stop_watching(self) -> None:
        if self._watched is not None:
            assert self in self._watched, "its partition had forgotten it without telling it"
            del self._watched[self]
            self._watched = None

    def changed(self) -> None:
        """Makes this due in its session; called by the partition, which has dropped it from its watchers."""
        assert self._watched is not None and self not in self._watched, "one change ends one watch"
        self._watched = None
        session = self.session
        if session is not None:
            assert session.is_open, "who belongs to a session is among what it wants"
            session.due[self] = None
            session.lot.happened(session, self)


Watchers: TypeAlias = dict[Wanted, None]


class LogEnd(NamedTuple):
    """What a follower's fetch without a session waits for: more in the log of a partition."""

    name: TopicPartition


class Session:
    """One client's fetch session.  A fetch of it that waits is parked with the session as key, a Wanted as news."""

    def __init__(self, lot: ParkingLot, steady: int, *, uses_ids: bool, is_privileged: bool = False) -> None:
        self.id = SESSIONLESS  # Until FetchSessions has taken it in.
        self.lot = lot
        self.uses_ids = uses_ids
        self.is_privileged = is_privileged
        self.epoch = 1
        self.last_used = steady
        self.wanted: dict[FetchKey, Wanted] = {}
        self.due: dict[Wanted, None] = {}  # In the order of service: who got data goes to the end.
        self.rules: Rules | None = None  # Those of the last request.

    @property
    def is_open(self) -> bool:
        return bool(self.wanted)

    @property
    def follower(self) -> BrokerId:
        """The broker that fetches; NO_BROKER for a consumer's session."""
        return NO_BROKER if self.rules is None else self.rules.follower

    def serve_last(self, wanted: Wanted) -> None:
        if wanted in self.due:
            del self.due[wanted]
            self.due[wanted] = None

    def rest(self, wanted: Wanted, watchers: Watchers) -> None:
        """Takes a partition out of the due ones until it changes, since there is nothing new to tell of it."""
        assert wanted.session is self, "what was forgotten would be watched for ever"
        self.due.pop(wanted, None)
        wanted.watch(watchers)

    def forget(self, key: FetchKey) -> bool:
        """Removes a partition from the session; returns False if it was not in it."""
        wanted = self.wanted.pop(key, None)
        if wanted is None:
            return False
        self.due.pop(wanted, None)
        wanted.session = None
        wanted.stop_watching()
        return True

    def close(self) -> None:
        """Ends the session: a fetch of it that waits is answered, and its partitions watch nothing any more."""
        for wanted in self.wanted.values():
            wanted.session = None
            wanted.stop_watching()
        self.wanted = {}
        self.lot.happened(self)


class Rules(NamedTuple):
    """What a client may read; one whose rules differ from those of its last request is told of all partitions anew."""

    principal: Principal
    version: int  # The version of the rights of principals.
    isolation_level: int
    follower: BrokerId = NO_BROKER


class FetchRound(NamedTuple):
    """One fetch: what it is about, and the session it belongs to, if any."""

    wanted: list[Wanted]  # Of a whole request; an incremental one is about what is due in its session.
    session: Session | None
    is_incremental: bool

    def due(self, count: int | None = None) -> list[Wanted]:
        """Returns the partitions to read now; of an incremental fetch at most `count`, the rest stays due."""
        if not self.is_incremental:
            return self.wanted
        assert self.session is not None
        return list(islice(self.session.due, count))

    @property
    def session_id(self) -> int:
        return SESSIONLESS if self.session is None else self.session.id


class FetchSessions:
    """Every session of a broker.  `random_int31` gives the ids, which must not be guessable by other clients."""

    def __init__(
        self, random_int31: Callable[[], int], lot: ParkingLot, sessions_max: int = FETCH_SESSIONS_MAX
    ) -> None:
        self._random_int31 = random_int31
        self._lot = lot
        self._sessions_max = sessions_max
        self._sessions: dict[int, Session] = {}  # Least recently used first.
        self._partitions = 0  # How many all sessions have together.

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
        is_privileged: bool = False,
    ) -> Generator[None, object, FetchRound]:
        """Merges a request into its session, and yields after each partition: others may have their turns there.

        Where all sessions are taken, one that `is_privileged` takes the place of one that is not (KIP-227).

        Raises Refused: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR; the
        client answers each with a whole request.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._close(session_id)
            session = None
            if epoch == INITIAL_EPOCH:
                session = yield from self._open(wanted, uses_ids, steady, is_privileged)
            return FetchRound((yield from _listed(wanted)), session, is_incremental=False)
        session = self._continued(session_id, epoch, uses_ids)
        self.goes_on(session, steady)
        for key, one in wanted.items():
            if self._sessions.get(session_id) is not session:
                raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session was ended meanwhile")
            known = session.wanted.get(key)
            if known is not None:
                known.asks_again(one)
                session.due[known] = None
            elif self._room_in(session) <= 0:
                self._close(session.id)  # Its client goes on without one.
                raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the sessions hold too many partitions")
            else:
                one.session = session
                session.wanted[key] = one
                session.due[one] = None
                self._partitions += 1
                assert self._partitions <= FETCH_SESSION_PARTITIONS_MAX, "there was room"
            yield
        for key in forgotten:
            self._partitions -= session.forget(key)
            yield
        if not session.wanted:
            self._close(session.id)
            # What is wanted and forgotten at once is answered this once, as Apache Kafka does.
            return FetchRound((yield from _listed(wanted)), None, is_incremental=False)
        return FetchRound([], session, is_incremental=True)

    def _open(
        self, wanted: dict[FetchKey, Wanted], uses_ids: bool, steady: int, is_privileged: bool
    ) -> Generator[None, object, Session | None]:
        if len(wanted) > PARTITIONS_PER_FETCH_SESSION_MAX:
            return None
        session = Session(self._lot, steady, uses_ids=uses_ids, is_privileged=is_privileged)
        for one in wanted.values():
            one.session = session
            session.due[one] = None
            yield
        if not self._make_room(steady, is_privileged) or len(wanted) > self._room_in(session):
            session.due = {}  # Its partitions lead to it, and it to them.
            return None
        session.id = self._new_id()
        session.wanted = wanted
        self._sessions[session.id] = session
        self._partitions += len(wanted)
        assert self._partitions <= FETCH_SESSION_PARTITIONS_MAX, "there was room"
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wanted)
            assert self._partitions >= 0 and (self._sessions or not self._partitions), "each partition is counted once"
            session.close()
            assert not session.is_open, "who goes on with it finds out that it has ended"

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
        """Moves a session on to its next epoch, as its next request came."""
        assert self._sessions.get(session.id) is session, "a session that has ended does not go on"
        assert INITIAL_EPOCH < session.epoch <= INT32_MAX, "after the greatest epoch comes 1"
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        session.last_used = steady
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _room_in(self, session: Session) -> int:
        """Returns how many more partitions the session may have."""
        in_all = FETCH_SESSION_PARTITIONS_MAX - self._partitions
        return min(in_all, PARTITIONS_PER_FETCH_SESSION_MAX - len(session.wanted))

    def _make_room(self, steady: int, is_privileged: bool) -> bool:
        """Ends the least recently used session if need be; returns False if that was used too recently.

        A privileged one may end the least recently used of those that are not, however recently that was used.
        """
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and steady - oldest.last_used < EVICTION_MS:
            others = (one for one in self._sessions.values() if not one.is_privileged)
            oldest = next(others, None) if is_privileged else None
        if oldest is None:
            return False
        self._close(oldest.id)
        return True

    def _new_id(self) -> int:
        while (session_id := self._random_int31()) in self._sessions or session_id == SESSIONLESS:
            pass
        return session_id


def _listed(wanted: dict[FetchKey, Wanted]) -> Generator[None, object, list[Wanted]]:
    listed = []
    for number, one in enumerate(wanted.values(), 1):
        listed.append(one)
        if not number % LISTED_PER_STEP:
            yield
    return listed
