"""Templates of a connection's last Fetch requests, and of their answers.

    │ ... session id │ session epoch │ topic │ partition │ leader epoch │ fetch offset │ ... tags │
                        (differs)                                         (differs, one for each partition)

A consumer's requests for the same partitions differ only in these numbers. A request that matches an earlier one except
for them need not be parsed again. Its answer is the earlier answer with other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from odradek.api.templates.template_cache import TemplatePartition
from odradek.base.errors import ErrorCode
from odradek.base.units import Offset, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH, SESSIONLESS, CachedPartition
from odradek.core.partition.positions import READ_COMMITTED
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.template import AnswerTemplate, NumbersTemplate

_SESSIONS_SINCE, ANY_REPLICA_SINCE = 7, 11
_EPOCH = "session_epoch"
_OFFSET = "topics.partitions.fetch_offset"
_ANSWERED = "responses.partitions."
_ANSWERS = tuple(_ANSWERED + name for name in ("high_watermark", "last_stable_offset", "log_start_offset", "records"))


class FetchTemplate:
    """A request template: the partitions of one consumer, without the session epoch and the offsets."""

    def __init__(
        self,
        version: int,
        body: FetchRequest,
        names: Sequence[TopicPartition],
        cached_partitions: Sequence[CachedPartition],
    ) -> None:
        """Keep the request's fixed parts; `cached_partitions` are its partitions in order, with arbitrary offsets."""
        ids = [Uuid(topic.topic_id) for topic in body.topics for _ in topic.partitions]
        self.partitions = [TemplatePartition(name, topic_id) for name, topic_id in zip(names, ids, strict=True)]
        self.numbers = {name: number for number, name in enumerate(names)}
        self.cached_partitions = cached_partitions
        self.has_epoch = version >= _SESSIONS_SINCE
        self.body = copy(body)  # The body of any such request, without its topics.
        self.body.topics = []
        self.session_id = SESSIONLESS if body.session_epoch == FINAL_EPOCH else body.session_id
        self.max_wait_ms = body.max_wait_ms
        self.min_bytes = body.min_bytes
        self.max_bytes = body.max_bytes
        self.isolation_level = body.isolation_level
        self.rack = body.rack_id
        self.allows_any_replica = version >= ANY_REPLICA_SINCE
        self.is_read_committed = body.isolation_level == READ_COMMITTED
        self.answer = AnswerTemplate(self._sample(body), version, _ANSWERS)

    @property
    def may_wait(self) -> bool:
        """Return whether a fetch that finds nothing waits for one record."""
        return self.min_bytes == 1 and self.max_wait_ms > 0

    def epoch_and_offsets(self, numbers: tuple[int, ...]) -> tuple[int, tuple[Offset, ...]]:
        """Return the session epoch and the fetch offsets of such a request."""
        return (numbers[0], numbers[1:]) if self.has_epoch else (FINAL_EPOCH, numbers)  # type: ignore[return-value]

    def _sample(self, body: FetchRequest) -> FetchResponse:
        """Return an answer without aborted transactions, which is cut at its numbers and records."""
        topics = []
        for topic in body.topics:
            parts = [
                PartitionData(
                    partition_index=part.partition,
                    error_code=ErrorCode.NONE,
                    high_watermark=0,
                    last_stable_offset=0,
                    log_start_offset=0,
                    aborted_transactions=[] if self.is_read_committed else None,
                    records=b"",
                )
                for part in topic.partitions
            ]
            topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
        return FetchResponse(session_id=self.session_id, responses=topics)


def numbers_of(version: int, body: FetchRequest) -> NumbersTemplate:
    """Return the template of requests that differ from this one only in session epoch and fetch offsets."""
    return NumbersTemplate(body, version, (_EPOCH, _OFFSET))
