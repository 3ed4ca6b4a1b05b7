"""Lookups by time (ListOffsets) that read files, run in threads, a few at a time.

    request_lookup ──> TimestampQuery, queued ──> take: Lookup, an effect ──> ended ──> answered, or back into a queue

There are two queues.  The first holds queries that need little work; several share one effect.  A query that
reaches a batch which may decompress to much continues in the second queue.  That queue runs one query at a time to
bound memory, and one batch at a time so that queries take turns.  Identical queries share one answer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import LOOKUPS_AT_ONCE, SEARCHES_PER_LOOKUP_MAX
from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.partition import Partition
from odradek.log.files.disk import DiskFailed
from odradek.log.log.timestamp_search import note_searched
from odradek.log.segment.search import Search, TimestampAndOffset, UnfinishedSearch

_LOG = logging.getLogger(__name__)

Key: TypeAlias = tuple[TopicPartition, TimestampMs | None, bool]
Found: TypeAlias = TimestampAndOffset | Refused | None


class TimestampQuery:
    """Query for a partition's first record at or after a time; for None, the latest timestamp."""

    def __init__(self, partition: Partition, timestamp: TimestampMs | None, *, read_committed: bool) -> None:
        self.partition = partition
        self.timestamp = timestamp
        self.read_committed = read_committed
        self.start = Offset(0)  # The records before it were searched.
        self.is_large = False
        self.has_waited = False  # The request was able to park.
        self.is_answered = False
        self._found: Found = None

    @property
    def key(self) -> Key:
        return self.partition.topic_partition, self.timestamp, self.read_committed

    @property
    def found(self) -> TimestampAndOffset | None:
        """The answer.  Raises Refused if there is none: the lookup failed, or the broker stopped before it."""
        if not self.is_answered:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the broker is shutting down")
        if isinstance(self._found, Refused):
            raise Refused(self._found.code, self._found.detail)
        return self._found

    def answer(self, found: Found) -> None:
        assert not self.is_answered, "a lookup is answered once"
        self._found = found
        self.is_answered = True

    def search(self) -> Search | None:
        """Return the next search for this query; None if there is no such record.  Raises Refused."""
        return self.partition.search(
            self.timestamp, self.start, read_committed=self.read_committed, is_large=self.is_large
        )


class AllQueriesAnswered:
    """Condition of a request that waits for these queries, all unanswered."""

    def __init__(self, queries: Iterable[TimestampQuery]) -> None:
        self.keys: Iterable[Hashable] = dict.fromkeys(queries)
        self._open = len(dict.fromkeys(queries))

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        self._open -= 1  # Each key occurs once.
        assert self._open >= 0, "each query is answered once"
        return not self._open


class LookupSearch(NamedTuple):
    """Query with its search: None if it needs none any more, a Refused if none is possible."""

    query: TimestampQuery
    search: Search | Refused | None

    def run(self) -> UnfinishedSearch | DiskFailed | Found:
        if not isinstance(self.search, Search):
            return self.search
        try:
            return self.search.run()
        except Refused as refused:
            # A new exception: the traceback of the raised one keeps all decompressed data alive.
            return Refused(refused.code, refused.detail)
        except DiskFailed as failed:
            return failed.with_traceback(None)
        except AssertionError:
            raise
        except Exception:
            _LOG.exception("unexpected error in a lookup by timestamp in %s", self.query.partition.topic_partition)
            return Refused(ErrorCode.UNKNOWN_SERVER_ERROR)


class Lookup(NamedTuple):
    """Effect: run these searches in a thread; it ends in a LookupCompleted."""

    begun: Sequence[LookupSearch]
    is_large: bool

    def run(self) -> LookupCompleted:
        return LookupCompleted(self, [search.run() for search in self.begun])


class LookupCompleted(NamedTuple):
    """Results of a Lookup, one for each query, in order."""

    lookup: Lookup
    results: Sequence[UnfinishedSearch | DiskFailed | Found]


class Lookups:
    """All unanswered queries of one broker."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._small: deque[TimestampQuery] = deque()
        self._large: deque[TimestampQuery] = deque()
        self._newest: dict[Key, TimestampQuery] = {}  # The newest query of each key, queued or running.
        self._ends: dict[TimestampQuery, Offset] = {}  # End offsets of the running searches.
        self._small_lookups = 0
        self._has_large_lookup = False

    def request_lookup(
        self, partition: Partition, timestamp: TimestampMs | None, *, read_committed: bool
    ) -> TimestampQuery:
        """Return a query, answered already if it needs no file.  Raises Refused."""
        query = TimestampQuery(partition, timestamp, read_committed=read_committed)
        same = self._newest.get(query.key)
        assert same is None or not same.is_answered, "an answered query is not shared"
        if same is not None and self._covers_all(same, partition):
            return same
        if query.search() is None:
            query.answer(None)
        else:
            self._newest[query.key] = query
            self._small.append(query)
        return query

    def _covers_all(self, query: TimestampQuery, partition: Partition) -> bool:
        """Return whether the query covers all readable records.

        It does if it is not running, or if no record was added since it started.
        """
        end = self._ends.get(query)
        is_current = end is None or end == partition.readable_end(read_committed=query.read_committed)
        return query.partition is partition and is_current

    def take_lookups(self) -> list[Lookup]:
        """Return the lookups that may begin now."""
        lookups: list[Lookup] = []
        while self._small_lookups < LOOKUPS_AT_ONCE and (begun := self._begin(self._small, SEARCHES_PER_LOOKUP_MAX)):
            self._small_lookups += 1
            lookups.append(Lookup(begun, False))
        if not self._has_large_lookup and (begun := self._begin(self._large, 1)):
            self._has_large_lookup = True
            lookups.append(Lookup(begun, True))
        for query in self._small:
            query.has_waited = True
        return lookups

    def _begin(self, queue: deque[TimestampQuery], count_max: int) -> list[LookupSearch]:
        begun: list[LookupSearch] = []
        while queue and len(begun) < count_max:
            query = queue.popleft()
            assert not query.is_answered, "only unanswered queries are queued"
            if query.has_waited and not self._purgatory.is_awaited(query):
                self._forget(query)  # Its connection is closed.
                continue
            try:
                search: Search | Refused | None = query.search()
                if isinstance(search, Search):
                    self._ends[query] = search.end
            except Refused as refused:
                search = refused
            begun.append(LookupSearch(query, search))
        return begun

    def on_lookup_completed(self, event: LookupCompleted, _: Moment) -> None:
        """Complete a Lookup: answer its queries, or queue them for their next search."""
        if event.lookup.is_large:
            assert self._has_large_lookup, "a lookup ends once"
            self._has_large_lookup = False
        else:
            self._small_lookups -= 1
            assert self._small_lookups >= 0, "a lookup ends once"
        for begun, result in zip(event.lookup.begun, event.results, strict=True):
            self._ends.pop(begun.query, None)
            self._continue_or_answer(begun, result)

    def _continue_or_answer(self, begun: LookupSearch, result: UnfinishedSearch | DiskFailed | Found) -> None:
        query = begun.query
        try:
            result = _adjust_to_log(begun, result)
        except Refused as refused:
            result = refused
        query.has_waited = True
        if isinstance(result, UnfinishedSearch):
            query.start, query.is_large = result
            (self._large if query.is_large else self._small).append(query)
            return
        self._forget(query)
        query.answer(result)
        self._purgatory.happened(query)

    def _forget(self, query: TimestampQuery) -> None:
        if self._newest.get(query.key) is query:
            del self._newest[query.key]


def _adjust_to_log(begun: LookupSearch, result: UnfinishedSearch | DiskFailed | Found) -> UnfinishedSearch | Found:
    """Return the result adjusted to the current log: retention may have deleted the record, or its file.

    Raises Refused.
    """
    partition, search = begun.query.partition, begun.search
    if not isinstance(search, Search) or isinstance(result, Refused):
        assert not isinstance(result, DiskFailed)
        return result
    log = partition.log  # Raises Refused if it is offline, or was deleted.
    try:
        note_searched(log, search)
    except DiskFailed as failed:  # A wrong index could not be rebuilt.
        raise partition.disk_failed(failed) from failed
    if isinstance(result, DiskFailed):
        if not search.is_of(log.segments):
            return UnfinishedSearch(begun.query.start, begun.query.is_large)
        raise partition.disk_failed(result)
    if isinstance(result, TimestampAndOffset) and result.offset < log.start_offset:
        return UnfinishedSearch(begun.query.start, begun.query.is_large)
    return result
