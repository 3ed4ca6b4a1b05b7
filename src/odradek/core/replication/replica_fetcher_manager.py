"""Requests of all followers here to their leaders: Kafka's ReplicaFetcherManager.

    Replicas ── follow, forget ──> ReplicaFetcherManager ──> ReplicaFetcher: one for each leader and fetcher id
    take: at most one request for each fetcher ──> the leader ──> answered, or failed

The partitions of one leader are spread over num.replica.fetchers fetchers, as in Kafka: each has a session and a
connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.base.units import BrokerId, TopicPartition
from odradek.core.coordinators.state_topics import java_hash
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers
from odradek.core.partition.partition import Partition
from odradek.core.replication.follower import Following
from odradek.core.replication.replica_fetcher import (
    LeaderEpochsRequest,
    LeaderOffsetsRequest,
    PartitionRequest,
    ReplicaFetch,
    ReplicaFetcher,
    Request,
)

__all__ = [
    "LeaderEpochsRequest",
    "LeaderOffsetsRequest",
    "PartitionRequest",
    "ReplicaFetch",
    "ReplicaFetcher",
    "ReplicaFetcherManager",
    "Request",
]

MOVED_PER_SLICE = 100
_SIGN, _INT32 = 1 << 31, (1 << 32) - 1


class ReplicaFetcherManager:
    """Fetchers of one broker, `per_leader` for each leader."""

    def __init__(self, timers: Timers, *, per_leader: int, backoff_ms: int, diverging_in_fetch: bool) -> None:
        """Create the manager without fetchers.

        `backoff_ms` is replica.fetch.backoff.ms; `diverging_in_fetch` means that the leaders support Fetch 12 (Kafka
        2.7).
        """
        self._timers = timers
        self._per_leader = per_leader
        self._backoff_ms = backoff_ms
        self._diverging_in_fetch = diverging_in_fetch
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        self._due: dict[ReplicaFetcher, None] = {}

    def follow(self, partition: Partition, now: Moment) -> None:
        """Start to fetch a partition from its current leader, in the current epoch."""
        name, info = partition.topic_partition, partition.info
        self.forget(name)
        following = Following(
            partition, info.leader, info.leader_epoch, self._backoff_ms, diverging_in_fetch=self._diverging_in_fetch
        )
        self._assign(following, now)

    def _assign(self, following: Following, now: Moment) -> None:
        name = following.partition.topic_partition
        assert name not in self._by_partition, "a partition has one fetcher"
        key = following.leader, fetcher_id(name, self._per_leader)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(*key, self._backoff_ms, self._timers, self._is_due)
        self._by_partition[name] = fetcher
        fetcher.follow(following, now)

    def of(self, name: TopicPartition) -> ReplicaFetcher | None:
        """Return the fetcher of a following partition, even if it has stopped fetching it."""
        return self._by_partition.get(name)

    def forget(self, name: TopicPartition) -> None:
        """Stop fetching a partition."""
        self._remove(name)

    def _remove(self, name: TopicPartition) -> Following | None:
        fetcher = self._by_partition.pop(name, None)
        if fetcher is None:
            return None
        following = fetcher.forget(name)
        key = fetcher.leader, fetcher.number
        if not fetcher and self._fetchers.get(key) is fetcher:  # The fetcher itself stops fetching a fenced partition.
            del self._fetchers[key]
            self._due.pop(fetcher, None)
        return following

    def resize(self, per_leader: int, now: Moment) -> Iterator[None]:
        """Spread the partitions over another number of fetchers, in slices; partitions may change in between.

        A partition continues at its log end offset.  Answers to requests of its former fetcher are ignored.
        """
        if per_leader == self._per_leader:
            return
        self._per_leader = per_leader
        for number, name in enumerate(list(self._by_partition), 1):
            fetcher = self._by_partition.get(name)
            if fetcher is not None and fetcher.number != fetcher_id(name, per_leader):
                following = self._remove(name)
                if following is not None:
                    self._assign(following, now)
            if not number % MOVED_PER_SLICE:
                yield

    def renew_sessions(self) -> None:
        """Name all partitions to their leaders again."""
        for fetcher in self._fetchers.values():
            fetcher.renew_session()

    def uses(self, number: int) -> bool:
        """Return whether there are fetchers of this number."""
        return any(used == number for _, used in self._fetchers)

    def _is_due(self, fetcher: ReplicaFetcher) -> None:
        self._due[fetcher] = None

    def take_requests(self) -> Sequence[tuple[ReplicaFetcher, Request]]:
        """Return the requests to send to leaders now; each answer goes to its fetcher."""
        if not self._due:
            return ()
        due, self._due = self._due, {}
        requests = ((fetcher, fetcher.next_request()) for fetcher in due)
        return [(fetcher, request) for fetcher, request in requests if request is not None]


def fetcher_id(name: TopicPartition, per_leader: int) -> int:
    """Return the fetcher of a partition within its leader's: by Java's 32-bit topic hash, as in Kafka."""
    if per_leader == 1:
        return 0
    value = (31 * java_hash(name.topic) + name.partition) & _INT32
    return (0 if value == _SIGN else value if value < _SIGN else _INT32 + 1 - value) % per_leader
