"""Templates of a connection's last fetch requests, and of their answers.

    │ ... session id │ session epoch │ topic │ partition │ leader epoch │ fetch offset │ ... tags │
                        (differs)                                         (differs, one for each partition)

A consumer's requests for the same partitions differ in these numbers alone.  So a request that matches an earlier one
but for them need not be read again, and its answer is the earlier answer with other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from odradek.api.templates.template_cache import TemplatePartition
from odradek.base.errors import ErrorCode
from odradek.base.units import Offset, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH, SESSIONLESS, Wanted
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
    """A request template: some partitions as one consumer fetches them, all but the session epoch and the offsets."""

    def __init__(
        self, version: int, body: FetchRequest, names: Sequence[TopicPartition], wanted: Sequence[Wanted]
    ) -> None:
        """`wanted` has the partitions in the request's order; their fetch offsets do not matter."""
        ids = [Uuid(topic.topic_id) for topic in body.topics for _ in topic.partitions]
        self.partitions = [TemplatePartition(name, one) for name, one in zip(names, ids, strict=True)]
        self.numbers = {name: number for number, name in enumerate(names)}
        self.wanted = wanted
        self.has_epoch = version >= _SESSIONS_SINCE
        self.body = copy(body)  # The body of any such request, without its topics.
        self.body.topics = []
        self.session_id = SESSIONLESS if body.session_epoch == FINAL_EPOCH else body.session_id
        self.max_wait_ms = body.max_wait_ms
        self.min_bytes = body.min_bytes
        self.max_bytes = body.max_bytes
        self.isolation_level = body.isolation_level
        self.rack = body.rack_id
        self.may_ask_any = version >= ANY_REPLICA_SINCE
        self.is_read_committed = body.isolation_level == READ_COMMITTED
        self.answer = AnswerTemplate(self._sample(body), version, _ANSWERS)

    @property
    def may_wait(self) -> bool:
        """True if a fetch that finds nothing waits for one record."""
        return self.min_bytes == 1 and self.max_wait_ms > 0

    def asked(self, numbers: tuple[int, ...]) -> tuple[int, tuple[Offset, ...]]:
        """Returns the session epoch and the fetch offsets of such a request."""
        return (numbers[0], numbers[1:]) if self.has_epoch else (FINAL_EPOCH, numbers)  # type: ignore[return-value]

    def _sample(self, body: FetchRequest) -> FetchResponse:
        """Returns an answer without aborted transactions, which the template cuts at its numbers and records."""
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
    """Returns the template of requests that differ from this one in session epoch and fetch offsets only."""
    return NumbersTemplate(body, version, (_EPOCH, _OFFSET))
