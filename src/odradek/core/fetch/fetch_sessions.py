"""Incremental fetch sessions (KIP-227): a client names its partitions once and then only changes.

For each session, the broker keeps the request and the last answer of every partition, so that an answer contains only
partitions with news.  A session belongs to one client.  Its epoch rises with each request, and a lost request shows as
a gap.  Beyond the limit no session is created: the client receives id 0 and continues with full requests.

A request reads only partitions that are due: named in the request, changed, or left over from a full answer.

    due ── read, and nothing is new ──> watches its partition
     ^                                          │
     └───── named again, or it changed ─────────┘

A follower's session watches the log end offset, and whatever a consumer's session watches: a follower stores these
values.  One change ends the watch, so an abandoned session costs a busy partition next to nothing.
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
from odradek.core.kernel.purgatory import Purgatory

SESSIONLESS = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LISTED_PER_STEP = 8  # Each takes next to no time.
EVICTION_MS = 2 * MINUTE_MS  # min.incremental.fetch.session.eviction.ms


class FetchKey(NamedTuple):
    """Partition as named by the client: by topic id from Fetch v13 on, by name before."""

    topic: str | Uuid
    partition: int


class CachedPartition:
    """Partition of a fetch, cached in its session: the client's request, and the last values it was sent."""

    def __init__(  # noqa: PLR0917
        self,
        key: FetchKey,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        """Create the cached request; `log_start_offset` is a follower's, -1 for a consumer."""
        self.key = key
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.session: FetchSession | None = None  # None for a request without a session.
        self._watched: Watchers | None = None

    def at(self, offset: int) -> CachedPartition:
        """Return a copy with another offset, for which nothing was sent yet."""
        return CachedPartition(self.key, offset, self.max_bytes, self.current_leader_epoch, self.last_fetched_epoch)

    def update_request_params(self, newer: CachedPartition) -> None:
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def must_respond(self, high_watermark: int, log_start: int) -> bool:
        return high_watermark != self.sent_high_watermark or log_start != self.sent_log_start

    def remember_sent(self, high_watermark: int, log_start: int) -> None:
        self.sent_high_watermark, self.sent_log_start = high_watermark, log_start

    def watch(self, watchers: Watchers) -> None:
        """Register with the partition's `watchers`: the partition calls `changed` once."""
        if self._watched is not watchers:
            self.stop_watching()
            self._watched = watchers
            watchers[self] = None
        assert self in watchers, "the partition knows its watcher"

    def stop_watching(self) -> None:
        if self._watched is not None:
            assert self in self._watched, "a partition forgets no watcher without notifying it"
            del self._watched[self]
            self._watched = None

    def changed(self) -> None:
        """Make this due in its session; called by the partition, which has removed it from its watchers."""
        assert self._watched is not None and self not in self._watched, "a change ends exactly one watch"
        self._watched = None
        session = self.session
        if session is not None:
            assert session.is_open, "only open sessions have partitions"
            session.due[self] = None
            assert len(session.due) <= len(session.partitions), "only partitions of the session are due"
            session.purgatory.happened(session, self)


Watchers: TypeAlias = dict[CachedPartition, None]


class LogEnd(NamedTuple):
    """Key of a follower's fetch without a session: a higher log end offset of a partition."""

    name: TopicPartition


class FetchSession:
    """Fetch session of one client.

    A fetch of it that waits is parked with the session as key and a CachedPartition as news.
    """

    def __init__(self, purgatory: Purgatory, steady: int, *, uses_ids: bool, is_privileged: bool = False) -> None:
        self.id = SESSIONLESS  # Until FetchSessions registers it.
        self.purgatory = purgatory
        self.uses_ids = uses_ids
        self.is_privileged = is_privileged
        self.epoch = 1
        self.last_used = steady
        self.partitions: dict[FetchKey, CachedPartition] = {}
        self.due: dict[
            CachedPartition, None
        ] = {}  # In the order of service: a partition that returned data moves to the end.
        self.rules: ReadPermissions | None = None  # The rules of the last request.

    @property
    def is_open(self) -> bool:
        return bool(self.partitions)

    @property
    def follower(self) -> BrokerId:
        """The fetching broker; NO_BROKER for a consumer's session."""
        return NO_BROKER if self.rules is None else self.rules.follower

    def serve_last(self, partition: CachedPartition) -> None:
        if partition in self.due:
            del self.due[partition]
            self.due[partition] = None

    def await_change(self, partition: CachedPartition, watchers: Watchers) -> None:
        """Remove a partition from the due ones until it changes, since it has no news."""
        assert partition.session is self, "only partitions of the session are watched"
        self.due.pop(partition, None)
        assert len(self.due) < len(self.partitions), "a watched partition is not due"
        partition.watch(watchers)

    def forget(self, key: FetchKey) -> bool:
        """Remove a partition from the session; return False if it was not in it."""
        partition = self.partitions.pop(key, None)
        if partition is None:
            return False
        self.due.pop(partition, None)
        partition.session = None
        partition.stop_watching()
        assert len(self.due) <= len(self.partitions), "only partitions of the session are due"
        return True

    def close(self) -> None:
        """End the session: complete its waiting fetch, and stop watching its partitions."""
        for partition in self.partitions.values():
            partition.session = None
            partition.stop_watching()
        self.partitions = {}
        self.purgatory.happened(self)


class ReadPermissions(NamedTuple):
    """Read permissions of a client.

    If they differ from those of its last request, all partitions are sent again.
    """

    principal: Principal
    version: int  # The version of the rights of principals.
    isolation_level: int
    follower: BrokerId = NO_BROKER


class FetchContext(NamedTuple):
    """One fetch: its partitions and its session, if any."""

    partitions: list[CachedPartition]  # For a full request; an incremental one reads the due partitions of its session.
    session: FetchSession | None
    is_incremental: bool

    def due(self, count: int | None = None) -> list[CachedPartition]:
        """Return the partitions to read now; at most `count` of an incremental fetch, the rest stays due."""
        if not self.is_incremental:
            return self.partitions
        assert self.session is not None
        return list(islice(self.session.due, count))

    @property
    def session_id(self) -> int:
        return SESSIONLESS if self.session is None else self.session.id


class FetchSessions:
    """Every session of a broker.

    `random_int31` creates the ids, which other clients must not be able to guess.
    """

    def __init__(
        self, random_int31: Callable[[], int], purgatory: Purgatory, sessions_max: int = FETCH_SESSIONS_MAX
    ) -> None:
        self._random_int31 = random_int31
        self._purgatory = purgatory
        self._sessions_max = sessions_max
        self._sessions: dict[int, FetchSession] = {}  # Least recently used first.
        self._partitions = 0  # The sum over all sessions.

    def __len__(self) -> int:
        return len(self._sessions)

    def find_session(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def begin_round(
        self,
        session_id: int,
        epoch: int,
        requested: dict[FetchKey, CachedPartition],
        forgotten: Sequence[FetchKey],
        *,
        uses_ids: bool,
        steady: int,
        is_privileged: bool = False,
    ) -> Generator[None, object, FetchContext]:
        """Merge a request into its session; yield after each partition, where other requests may run.

        If all sessions are taken, a session that `is_privileged` replaces one that is not (KIP-227).

        Raises Refused: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR; the
        client responds to each with a full request.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._close(session_id)
            session = None
            if epoch == INITIAL_EPOCH:
                session = yield from self._open(requested, uses_ids, steady, is_privileged)
            return FetchContext((yield from _listed(requested)), session, is_incremental=False)
        session = self._continued(session_id, epoch, uses_ids)
        self.advance_epoch(session, steady)
        for key, partition in requested.items():
            if self._sessions.get(session_id) is not session:
                raise Refused(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"session {session_id} was closed while its partitions were updated",
                )
            known = session.partitions.get(key)
            if known is not None:
                known.update_request_params(partition)
                session.due[known] = None
            elif self._room_in(session) <= 0:
                self._close(session.id)  # Its client continues without one.
                raise Refused(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"fetch sessions exceed the limit of {FETCH_SESSION_PARTITIONS_MAX} partitions",
                )
            else:
                partition.session = session
                session.partitions[key] = partition
                session.due[partition] = None
                self._partitions += 1
                assert self._partitions <= FETCH_SESSION_PARTITIONS_MAX, (
                    "fetch sessions never exceed their partition limit"
                )
            assert len(session.due) <= len(session.partitions), "only partitions of the session are due"
            yield
        for key in forgotten:
            self._partitions -= session.forget(key)
            yield
        if not session.partitions:
            self._close(session.id)
            # Partitions that are both added and forgotten are answered once, as in Apache Kafka.
            return FetchContext((yield from _listed(requested)), None, is_incremental=False)
        return FetchContext([], session, is_incremental=True)

    def _open(
        self, requested: dict[FetchKey, CachedPartition], uses_ids: bool, steady: int, is_privileged: bool
    ) -> Generator[None, object, FetchSession | None]:
        if len(requested) > PARTITIONS_PER_FETCH_SESSION_MAX:
            return None
        session = FetchSession(self._purgatory, steady, uses_ids=uses_ids, is_privileged=is_privileged)
        for partition in requested.values():
            partition.session = session
            session.due[partition] = None
            yield
        if not self._make_room(steady, is_privileged) or len(requested) > self._room_in(session):
            session.due = {}  # Breaks the reference cycle of session and partitions.
            return None
        session.id = self._new_id()
        session.partitions = requested
        self._sessions[session.id] = session
        self._partitions += len(requested)
        assert len(session.due) == len(requested), "a full request reads all of its partitions"
        assert len(self._sessions) <= self._sessions_max, "a session beyond the limit replaces another one"
        assert self._partitions <= FETCH_SESSION_PARTITIONS_MAX, "fetch sessions never exceed their partition limit"
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            assert self._partitions >= 0 and (self._sessions or not self._partitions), (
                "the partition count equals the partitions of all sessions"
            )
            session.close()
            assert not session.is_open, "a removed session is closed"

    def _continued(self, session_id: int, epoch: int, uses_ids: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != epoch:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"invalid fetch session epoch {epoch}: expected {session.epoch}"
            )
        if session.uses_ids != uses_ids:
            raise Refused(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session uses either topic names or topic ids"
            )
        return session

    def advance_epoch(self, session: FetchSession, steady: int) -> None:
        """Advance a session to its next epoch for its next request."""
        assert self._sessions.get(session.id) is session, "only open sessions advance"
        assert INITIAL_EPOCH < session.epoch <= INT32_MAX, (
            "a session epoch is between 1 and the greatest 32-bit integer"
        )
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        session.last_used = steady
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _room_in(self, session: FetchSession) -> int:
        """Return the number of partitions that the session may still add."""
        in_all = FETCH_SESSION_PARTITIONS_MAX - self._partitions
        return min(in_all, PARTITIONS_PER_FETCH_SESSION_MAX - len(session.partitions))

    def _make_room(self, steady: int, is_privileged: bool) -> bool:
        """Evict the least recently used session if needed; return False if that was used too recently.

        A privileged session may evict the least recently used unprivileged one, however recent its use.
        """
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and steady - oldest.last_used < EVICTION_MS:
            others = (session for session in self._sessions.values() if not session.is_privileged)
            oldest = next(others, None) if is_privileged else None
        if oldest is None:
            return False
        self._close(oldest.id)
        return True

    def _new_id(self) -> int:
        while (session_id := self._random_int31()) in self._sessions or session_id == SESSIONLESS:
            pass
        return session_id


def _listed(requested: dict[FetchKey, CachedPartition]) -> Generator[None, object, list[CachedPartition]]:
    listed = []
    for number, partition in enumerate(requested.values(), 1):
        listed.append(partition)
        if not number % LISTED_PER_STEP:
            yield
    return listed
