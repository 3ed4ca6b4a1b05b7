"""Acknowledgement of a Produce request: the wait for its batches, and the results in the answer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeVar

from odradek.api.request.sliced_response import Parts, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP, SECOND_MS, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.staging import Append
from odradek.wire.messages.produce import PartitionProduceResponse, ProduceResponse

Response = TypeVar("Response", ProduceResponse, None)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = ALL_ACKS = 0, 1, -1
SYNC_MS_MIN = 5 * SECOND_MS


class ProducePartitionStatus(NamedTuple):
    """One partition of a Produce request: its append, and its part of the answer."""

    name: TopicPartition
    append: Append
    answer: PartitionProduceResponse
    join: PendingWrite | None = None  # Adds the partition to its transaction; must be safe, too.

    def fail(self, refused: Refused) -> None:
        self.answer.error_code = refused.code
        self.answer.error_message = refused.detail or None
        self.answer.base_offset = NO_OFFSET
        self.answer.log_append_time_ms = NO_TIMESTAMP


class DelayedProduce:
    """The condition of a parked Produce request: every appended batch is in sync, or on disk."""

    def __init__(self, acks: int) -> None:
        self._acks = acks
        self.pending: list[ProducePartitionStatus] = []
        self._left: list[ProducePartitionStatus] = []  # The pending partitions that were not settled at the last check.

    def add(self, appended: ProducePartitionStatus) -> None:
        if self._try_settle(appended):
            _clear_offset(appended)
        else:
            self.pending.append(appended)
            self._left.append(appended)

    def parked(self, response: Response, now: Moment, timeout_ms: int) -> ParkedRequest[Response]:
        # The client's timeout is meant for replicas. Without a lower limit, a timeout of 0 would expire before any
        # sync.
        if any(appended.append.needs_sync or appended.join is not None for appended in self.pending):
            timeout_ms = max(timeout_ms, SYNC_MS_MIN)
        return ParkedRequest(self, now.steady + timeout_ms, lambda: self._settle(response))

    @property
    def keys(self) -> Iterable[TopicPartition]:
        joins = {appended.join.name for appended in self.pending if appended.join is not None}
        return [*joins, *(appended.name for appended in self.pending)]

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        left = self._left
        while left and self._try_settle(left[-1]):  # Each one is checked until it is settled, and not after.
            left.pop()
        return not left

    def _try_settle(self, appended: ProducePartitionStatus) -> bool:
        append, join = appended.append, appended.join
        if join is not None and not join.is_settled:
            return False
        if join is not None and not join.is_safe:
            appended.answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
        elif append.failure is not None:
            appended.answer.error_code = append.failure
        elif not append.is_safe:
            return False
        elif self._acks == ACKS_ALL and not append.leading.has_min_isr:
            appended.answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True

    def _settle(self, response: Response) -> Response:
        """Return the response, after the last partition is settled or the time has expired."""
        if response is not None:
            whole(self.settle())
        return response

    def settle(self) -> Parts[None]:
        """Put the results, or REQUEST_TIMED_OUT, into the answer.

        A partition that was settled before keeps its result, as in Apache Kafka, although the ISR may have changed
        since.
        """
        left = len(self._left)
        for number, appended in enumerate(self.pending):
            if number < left and not self._try_settle(appended):
                appended.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            _clear_offset(appended)
            yield


def _clear_offset(appended: ProducePartitionStatus) -> None:
    """Remove the batch's offset and timestamp from an answer with an error."""
    if appended.answer.error_code:
        appended.answer.base_offset = NO_OFFSET
        appended.answer.log_append_time_ms = NO_TIMESTAMP


def check_unanswered(response: ProduceResponse) -> None:
    """Raise ConnectionAbortedError if there is an error, because acks=0 allows no answer.

    As in Kafka, closing the connection makes the client look up the leader again.
    """
    if any(part.error_code for topic in response.responses for part in topic.partition_responses):
        raise ConnectionAbortedError("failed to handle a Produce request with acks=0")
