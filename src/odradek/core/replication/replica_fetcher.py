"""Requests of the followers here to one leader, for many partitions: Kafka's AbstractFetcherThread.

    follow, forget ──> next_request: one at a time ──> the leader ──> answered, or failed ──> Following, one by one

A fetcher has a fetch session with its leader (KIP-227): a request names only partitions whose next fetch has changed.
Before a partition is fetched, its log may have to be compared with the leader's by other requests.  A partition that
waits is left out of the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from odradek.base.errors import ErrorCode
from odradek.base.units import INT32_MAX, BrokerId, Offset, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.fetch.fetch_sessions import INITIAL_EPOCH, SESSIONLESS
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers
from odradek.core.replication.follower import Following
from odradek.core.replication.leader_endpoint import (
    EpochEnd,
    Fetch,
    Fetched,
    LeaderOffsets,
    LeaderRequest,
    OffsetsForLeaderEpoch,
)

# The leader does not know the session, or its partitions: the next request names all of them.
SESSION_IS_OVER = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
COMPARED_AT_ONCE = 1000  # Partitions of one OffsetsForLeaderEpoch or ListOffsets.


class PartitionRequest:
    """Partition in a request: the request for it, and the log start offset here."""

    def __init__(self, following: Following, request: LeaderRequest) -> None:
        self.following = following
        self.request = request
        self.topic_id: Uuid = following.partition.log.topic_id or ZERO_UUID
        self.log_start: Offset = following.log_start_offset

    @property
    def name(self) -> TopicPartition:
        return self.following.partition.topic_partition


class ReplicaFetch:
    """Fetch request; its answer covers the partitions of `session`, as changed by `named` and `forgotten`."""

    def __init__(
        self,
        session_id: int,
        session_epoch: int,
        named: list[PartitionRequest],
        forgotten: list[PartitionRequest],
        *,
        by_id: bool,
    ) -> None:
        """Create the request; with `by_id`, each topic has an id and may be named by it."""
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.named = named
        self.forgotten = forgotten
        self.by_id = by_id


class LeaderEpochsRequest:
    """OffsetsForLeaderEpoch for many partitions."""

    def __init__(self, named: Mapping[TopicPartition, PartitionRequest]) -> None:
        self.named = named


class LeaderOffsetsRequest:
    """Request for the starts and ends of the leader's logs, for many partitions.

    It takes two ListOffsets requests; `ends` is the answer to the first.
    """

    def __init__(self, named: Mapping[TopicPartition, PartitionRequest]) -> None:
        self.named = named
        self.ends: dict[TopicPartition, tuple[ErrorCode, Offset]] | None = None


Request: TypeAlias = ReplicaFetch | LeaderEpochsRequest | LeaderOffsetsRequest


class ReplicaFetcher:
    """Partitions that follow one leader over one connection."""

    def __init__(
        self, leader: BrokerId, number: int, backoff_ms: int, timers: Timers, due: Callable[[ReplicaFetcher], None]
    ) -> None:
        """Create the fetcher; it calls `due` when it may have a request."""
        self.leader = leader
        self.number = number
        self.under_way: Request | None = None
        self._backoff_ms = backoff_ms
        self._timers = timers
        self._due = due
        self._followings: dict[TopicPartition, Following] = {}
        self._waiting: dict[TopicPartition, Following] = {}  # Partitions that retry later.
        self._comparing: dict[TopicPartition, None] = {}  # Partitions whose next request is not a Fetch.
        self._changed: dict[TopicPartition, None] = {}  # Partitions whose next Fetch is new to the leader.
        self._session: dict[TopicPartition, PartitionRequest] = {}  # Partitions known to the leader.
        self._session_id, self._session_epoch = SESSIONLESS, INITIAL_EPOCH
        self._is_session_void = False
        self._by_id = True
        self._without_id: dict[TopicPartition, None] = {}
        self._forgotten: list[PartitionRequest] = []
        self.topic_names: dict[Uuid, TopicName] = {}  # Of the topics that the session has had.
        self._is_backing_off = False

    def __len__(self) -> int:
        return len(self._followings)

    def following(self, name: TopicPartition) -> Following | None:
        """Return a fetched partition's state; None once it is no longer fetched."""
        return self._followings.get(name)

    # Partitions.

    def follow(self, following: Following, now: Moment) -> None:
        """Start to fetch a partition, in place of any earlier one of its name."""
        name = following.partition.topic_partition
        self.forget(name)
        self._followings[name] = following
        if following.partition.log.topic_id is None:
            self._without_id[name] = None
        self._schedule(name, now)
        self._due(self)

    def forget(self, name: TopicPartition) -> Following | None:
        """Stop fetching a partition and return its former state, or None.

        Answers in flight are ignored.
        """
        following = self._followings.pop(name, None)
        if following is not None:
            self._waiting.pop(name, None)
            self._without_id.pop(name, None)
            self._exclude(name)
        return following

    def _exclude(self, name: TopicPartition) -> None:
        self._comparing.pop(name, None)
        self._changed.pop(name, None)
        known = self._session.pop(name, None)
        if known is not None:
            self._forgotten.append(known)

    def _schedule(self, name: TopicPartition, now: Moment) -> None:
        """Schedule the next request of a partition."""
        following = self._followings[name]
        request = following.next
        if request is None:
            self.forget(name)
        elif following.delay_ms:
            self._wait(name, following, now)
        elif isinstance(request, Fetch):
            self._comparing.pop(name, None)
            known = self._session.get(name)
            if known is None or known.request is not request or known.log_start != following.log_start_offset:
                self._changed[name] = None
        else:
            self._exclude(name)
            self._comparing[name] = None

    def _wait(self, name: TopicPartition, following: Following, now: Moment) -> None:
        self._exclude(name)
        self._waiting[name] = following

        def on_delay_over(now: Moment) -> None:
            if self._waiting.get(name) is following:
                del self._waiting[name]
                following.delay_ms = 0
                self._schedule(name, now)
                self._due(self)

        self._timers.at(now.steady + following.delay_ms, on_delay_over)

    # Requests.

    def next_request(self) -> Request | None:
        """Return the next request to the leader; None if there is none, or if one is in flight."""
        if self.under_way is None and not self._is_backing_off:
            self.under_way = self._compare() or self._fetch()
            return self.under_way
        return None

    def _compare(self) -> Request | None:
        epochs, offsets = dict[TopicPartition, PartitionRequest](), dict[TopicPartition, PartitionRequest]()
        for name in islice(self._comparing, COMPARED_AT_ONCE):
            following = self._followings[name]
            request = following.next
            if isinstance(request, OffsetsForLeaderEpoch):
                epochs[name] = PartitionRequest(following, request)
            elif request is not None:
                offsets[name] = PartitionRequest(following, request)
        if epochs:
            return LeaderEpochsRequest(epochs)
        return LeaderOffsetsRequest(offsets) if offsets else None

    def _fetch(self) -> Request | None:
        if self._is_session_void or self._by_id == bool(self._without_id):
            self._begin_session()  # A session has either ids or names.
            self._by_id = not self._without_id
            self._is_session_void = False
        if self._session_epoch == INITIAL_EPOCH:
            self._session.clear()
            self.topic_names.clear()
            self._changed = {
                name: None for name in self._followings if name not in self._waiting and name not in self._comparing
            }
            self._forgotten.clear()
        for name in [name for name in self._changed if self._followings[name].next is None]:
            self.forget(name)  # Its log has gone offline in between.
        named = [self._name_partition(name) for name in self._changed]
        self._changed.clear()
        forgotten = [left for left in self._forgotten if left.name not in self._session or self._is_another(left)]
        self._forgotten.clear()
        if not self._session:
            self._begin_session()
            return None
        assert not (self._by_id and self._without_id), "a session by topic id has no topic without one"
        assert self._session_epoch != INITIAL_EPOCH or len(named) == len(self._session), (
            "the first fetch of a session names all of its partitions"
        )
        return ReplicaFetch(self._session_id, self._session_epoch, named, forgotten, by_id=self._by_id)

    def _name_partition(self, name: TopicPartition) -> PartitionRequest:
        following = self._followings[name]
        request = following.next
        assert isinstance(request, Fetch), "only partitions that fetch are due"
        named = self._session[name] = PartitionRequest(following, request)
        self.topic_names[named.topic_id] = name.topic
        return named

    def _is_another(self, forgotten: PartitionRequest) -> bool:
        """Return whether the leader now knows the name by another topic id."""
        return self._session[forgotten.name].topic_id != forgotten.topic_id

    def renew_session(self) -> None:
        """Name all partitions in the next fetch.

        The leader applies this broker's epoch only to partitions that a fetch names.
        """
        self._is_session_void = True

    def _begin_session(self) -> None:
        """Start a new session, whose first fetch names all partitions."""
        self._session_id, self._session_epoch = SESSIONLESS, INITIAL_EPOCH

    # Answers.

    def fetched(
        self, request: ReplicaFetch, session_id: int, answers: Iterable[tuple[TopicPartition, Fetched]], now: Moment
    ) -> Generator[TopicPartition | None, None, None]:
        """Apply fetched records in slices.

        Yields each partition whose high watermark has advanced, and None for the others.
        """
        if self.under_way is not request:
            return
        if request.session_epoch == INITIAL_EPOCH:
            self._session_id = session_id
        if self._session_id != SESSIONLESS:
            self._session_epoch = 1 if request.session_epoch == INT32_MAX else request.session_epoch + 1
            assert INITIAL_EPOCH < self._session_epoch <= INT32_MAX, "only the first fetch has the initial epoch"
        for name, fetched in answers:
            known = self._session.get(name)
            following = self._followings.get(name)
            if known is None or following is not known.following:  # No longer followed, or in another epoch.
                continue
            assert isinstance(known.request, Fetch), "a fetch session contains only partitions that fetch"
            has_risen = following.fetched(known.request, fetched, now.wall)
            if name in self._followings:
                self._schedule(name, now)
            yield name if has_risen else None
        self._ended()

    def epochs_ended(
        self, request: LeaderEpochsRequest, answers: Iterable[tuple[TopicPartition, ErrorCode, EpochEnd]], now: Moment
    ) -> Iterator[None]:
        """Apply the ends of the leader's epochs, in slices."""
        for name, error, end in answers:
            named = self._current(request.named, name)
            if named is not None and isinstance(named.request, OffsetsForLeaderEpoch):
                named.following.epoch_ended(named.request, error, end, now.wall)
                self._schedule(name, now)
            yield
        self._ended()

    def offsets(
        self,
        request: LeaderOffsetsRequest,
        answers: Iterable[tuple[TopicPartition, ErrorCode, Offset, Offset]],
        now: Moment,
    ) -> Iterator[None]:
        """Apply the starts and ends of the leader's logs, in slices."""
        for name, error, start, end in answers:
            named = self._current(request.named, name)
            if named is not None and isinstance(named.request, LeaderOffsets):
                named.following.leader_offsets(named.request, error, start, end, now.wall)
                self._schedule(name, now)
            yield
        self._ended()

    def _current(
        self, named: Mapping[TopicPartition, PartitionRequest], name: TopicPartition
    ) -> PartitionRequest | None:
        request = named.get(name)
        return request if request is not None and self._followings.get(name) is request.following else None

    def failed(self, request: Request, error: ErrorCode, now: Moment) -> None:
        """Handle a missing answer, or one without partitions; send all requests again after a pause."""
        if self.under_way is not request:
            return
        had_session = self._session_epoch != INITIAL_EPOCH
        self._begin_session()
        if not (had_session and error in SESSION_IS_OVER):
            assert not self._is_backing_off, "nothing is requested during a pause"
            self._is_backing_off = True
            self._timers.at(now.steady + self._backoff_ms, self._resume)
        self._ended()

    def _resume(self, _: Moment) -> None:
        assert self._is_backing_off, "one pause ends at a time"
        self._is_backing_off = False
        self._due(self)

    def _ended(self) -> None:
        self.under_way = None
        self._due(self)
