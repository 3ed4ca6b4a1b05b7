"""Delayed operations (Kafka's purgatory): requests that wait for a condition or their deadline.

A parked request holds no coroutine.  The event that fulfils its condition (an advanced high watermark, a completed
sync, a created topic) completes it, or the deadline does.  The shell collects the completed ones and answers them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

# Deadlines are kept in buckets: an acks=all answer is nearly always completed long before its deadline, and removal
# from a dict costs a tenth of keeping it in a heap for thirty seconds.
BUCKET_MS = 4
NEVER = 1 << 62  # The deadline of operations that always end: all of them share one bucket.

Answer_co = TypeVar("Answer_co", covariant=True)
_NO_REQUESTS: dict[ParkedRequest[object], None] = {}


class Condition(Protocol):
    """Condition that a parked request waits for."""

    @property
    def keys(self) -> Iterable[Hashable]:
        """The keys that wake the request: partitions, topic names, tokens of changes."""

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        """Handle an event of one of the keys; return True to complete the request."""


class ParkedRequest(Generic[Answer_co]):
    """One parked request.

    `deadline` is on the steady clock; `owner` belongs to the shell, to find its connection.  `takes_long` is called
    when the request is completed: if it returns True, `then` is called in a thread.
    """

    def __init__(self, condition: Condition, deadline: int, then: Callable[[], Answer_co]) -> None:
        self.condition = condition
        self.deadline = deadline
        self.then = then
        self.takes_long: Callable[[], bool] | None = None
        self.owner: object = None


class Purgatory:
    """Purgatory of a broker: all parked requests, by key and by deadline, in the order of arrival."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[ParkedRequest[object], None]] = {}
        self._by_bucket: dict[int, dict[ParkedRequest[object], None]] = {}
        self._buckets: list[int] = []
        self._completed: list[ParkedRequest[object]] = []

    def __len__(self) -> int:
        return sum(map(len, self._by_bucket.values()))

    def park(self, parked: ParkedRequest[object]) -> None:
        for key in parked.condition.keys:
            self._by_key.setdefault(key, {})[parked] = None
        bucket = _bucket(parked)
        waiting = self._by_bucket.get(bucket)
        if waiting is None:
            waiting = self._by_bucket[bucket] = {}
            heapq.heappush(self._buckets, bucket)
        assert parked not in waiting, "a request is parked at most once"
        waiting[parked] = None

    def happened(self, key: Hashable, news: object = None) -> None:
        """Complete the requests that wait for the key and whose condition its `news` fulfils."""
        waiting = self._by_key.get(key)
        if waiting:
            # A condition may read from a disk.  A failure is an event of its own and may complete this request, too.
            fulfilled = [
                parked for parked in tuple(waiting) if parked in waiting and parked.condition.fulfilled_by(key, news)
            ]
            for parked in fulfilled:
                if parked in waiting:
                    self.complete(parked)

    def tick(self, steady: int) -> None:
        """Complete every request whose deadline has passed."""
        while self._buckets and self._buckets[0] * BUCKET_MS <= steady:
            bucket = heapq.heappop(self._buckets)
            for parked in list(self._by_bucket[bucket]):
                self.complete(parked)
            assert not self._by_bucket[bucket], "a parked request keeps its deadline"
            # A bucket lives until its time: forget() leaves it empty, so that the heap contains it once.
            del self._by_bucket[bucket]

    def next_deadline(self) -> int | None:
        """Return the time of the next `tick` with work, on the steady clock; None if nothing waits."""
        while self._buckets and not self._by_bucket[self._buckets[0]]:
            del self._by_bucket[heapq.heappop(self._buckets)]
        return self._buckets[0] * BUCKET_MS if self._buckets else None

    def is_awaited(self, key: Hashable) -> bool:
        """Return whether a parked request waits for the key."""
        return key in self._by_key

    def complete(self, parked: ParkedRequest[object]) -> None:
        self.forget(parked)
        self._completed.append(parked)

    def forget(self, parked: ParkedRequest[object]) -> None:
        """Drop a request whose connection is closed.  Harmless if it is no longer parked."""
        self._by_bucket.get(_bucket(parked), _NO_REQUESTS).pop(parked, None)
        for key in parked.condition.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(parked, None)
                if not waiting:
                    del self._by_key[key]

    def complete_all(self) -> None:
        """Complete all parked requests with their current result: the broker stops."""
        for bucket in list(self._by_bucket.values()):
            for parked in list(bucket):
                self.complete(parked)
            assert not bucket, "a parked request keeps its deadline"

    def take_completed(self) -> list[ParkedRequest[object]]:
        """Return the requests completed since the last call, in order; the caller answers each with `then`."""
        completed = self._completed
        if completed:
            self._completed = []
        return completed


def _bucket(parked: ParkedRequest[object]) -> int:
    return -(-parked.deadline // BUCKET_MS)  # Rounded up: no request completes before its deadline.
