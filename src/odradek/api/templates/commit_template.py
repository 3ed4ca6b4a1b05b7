"""Templates of a connection's last OffsetCommit requests, and of their answers.

    │ group │ generation │ member │ topic │ partition │ offset │ leader epoch │ metadata │ ...
                                                       (differs, one for each partition)

Requests are recognized in the same way as Fetch requests (api/templates/fetch_template.py).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import ErrorCode
from odradek.core.broker.broker import Broker
from odradek.core.groups.repeated_commit import RepeatedCommit
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.primitives import Chunk
from odradek.wire.template import AnswerTemplate, NumbersTemplate

Respond = Callable[[ErrorCode], OffsetCommitResponse]


class CommitTemplate:
    """A request template: one committer and its partitions, everything except the offsets."""

    def __init__(self, version: int, repeated: RepeatedCommit, respond: Respond, broker: Broker) -> None:
        """Keep the request's fixed parts; `respond` makes the answer with one error code for all partitions.

        Raise Refused.
        """
        self.repeated = repeated
        self._respond = respond
        self._topics = repeated.topics()
        self._index = broker.groups.shards.partition_of(repeated.committer.group_id)
        self._offsets_topic = broker.view.topics[CONSUMER_OFFSETS]
        self._answer = AnswerTemplate(respond(ErrorCode.NONE), version, ())

    def shard(self, broker: Broker) -> GroupShard | None:
        """Return the group's shard, None if a topic was deleted, recreated or expanded since.

        Raise Refused.
        """
        topics = broker.view.topics
        if topics.get(CONSUMER_OFFSETS) is not self._offsets_topic:
            return None
        for topic in self._topics:
            if topics.get(topic.name) is not topic:
                return None
        return broker.groups.shards.shard(self._index)

    def answer(self, request: Request, failure: ErrorCode) -> list[Chunk]:
        """Return the whole frame of the answer."""
        if failure:
            return encode_response(request, self._respond(failure))
        return [self._answer.frame(request.correlation_id, [])]


def numbers_of(version: int, body: OffsetCommitRequest) -> NumbersTemplate:
    """Return the template of requests that differ from this one only in their committed offsets."""
    return NumbersTemplate(body, version, ("topics.partitions.committed_offset",))
