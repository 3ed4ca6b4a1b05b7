"""Questions about transactions queued for one coordinator."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.kernel.promise import Promise
from odradek.core.transactions.additions import TransactionQuery

PARTITIONS_PER_REQUEST_MAX = 1000  # Of all its transactions together; each has at least one.
WAITING_MAX = 100_000  # Partitions waiting for one broker.

Codes = dict[TopicPartition, ErrorCode]


class QueuedAddition:
    """One client request waiting for an answer about some partitions."""

    def __init__(
        self, query: TransactionQuery, names: Collection[TopicPartition], retry_until: int, deadline: int
    ) -> None:
        self.query = query
        self.names = names
        self.retry_until = retry_until
        self.deadline = deadline
        self.promise: Promise[Codes] = Promise()
        self.reset_codes()

    def reset_codes(self) -> None:
        """Discard the present codes before all partitions are asked about again."""
        self.unsent = list(self.names)
        self.codes: Codes = {}

    @property
    def is_over(self) -> bool:
        return self.promise.value is not None

    @property
    def has_all_codes(self) -> bool:
        assert len(self.codes) <= len(self.names)
        return len(self.codes) == len(self.names)


# The waiting clients of a request and their partitions.
Parts = list[tuple[QueuedAddition, list[TopicPartition]]]


class AdditionQueue:
    """Requests queued for one broker, by query in order of arrival; remainders move to the end."""

    def __init__(self) -> None:
        self._waiting: dict[TransactionQuery, list[QueuedAddition]] = {}
        self._size = 0  # Partitions.

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[QueuedAddition]:
        return iter([waiting for queued in self._waiting.values() for waiting in queued])

    def has_room(self, more: int) -> bool:
        return not self._size or self._size + more <= WAITING_MAX

    def add(self, waiting: QueuedAddition) -> None:
        assert waiting.unsent and not waiting.codes and not waiting.is_over
        assert self.has_room(len(waiting.unsent))
        self._waiting.setdefault(waiting.query, []).append(waiting)
        self._size += len(waiting.unsent)
        self._check()

    def forget(self, waiting: QueuedAddition) -> None:
        queued = self._waiting[waiting.query]
        assert waiting.unsent, "a queued request has partitions that were not sent"
        queued.remove(waiting)
        self._size -= len(waiting.unsent)
        if not queued:
            del self._waiting[waiting.query]
        self._check()

    def take_next_request(self) -> tuple[list[tuple[TransactionQuery, list[TopicPartition]]], Parts]:
        """Remove and return the contents of one request: queries with partitions, and their clients.

        Questions about one transaction by producers of several epochs go into separate requests, because an answer
        identifies only the transaction.
        """
        assert self._waiting
        queries: dict[str, tuple[TransactionQuery, list[TopicPartition]]] = {}
        parts: Parts = []
        room = PARTITIONS_PER_REQUEST_MAX
        for query in list(islice(self._waiting, PARTITIONS_PER_REQUEST_MAX)):
            if query.transactional_id in queries:
                continue
            taken = self._take(query, room)
            parts += taken
            names = dict.fromkeys(name for _, part_names in taken for name in part_names)
            queries[query.transactional_id] = query, list(names)
            room -= sum(len(part_names) for _, part_names in taken)
            assert room >= 0
            if not room:
                break
        self._check()
        assert queries and parts, "a request has a query, and a client that waits for its answer"
        return list(queries.values()), parts

    def _take(self, query: TransactionQuery, room: int) -> Parts:
        taken: Parts = []
        queued = self._waiting.pop(query)
        while queued and room:
            waiting = queued[0]
            names = waiting.unsent[:room]
            del waiting.unsent[:room]
            room -= len(names)
            self._size -= len(names)
            assert names, "a queued request has partitions that were not sent"
            taken.append((waiting, names))
            if not waiting.unsent:
                del queued[0]
        if queued:
            self._waiting[query] = queued
        return taken

    def _check(self) -> None:
        """Check that the queue has partitions to send exactly if it has requests."""
        assert self._size >= 0
        assert bool(self._size) == bool(self._waiting)
