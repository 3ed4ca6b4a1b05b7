"""Injected error answers for some topics of a request, while the others are served normally.

Most requests are split. The affected part is refused as the API itself refuses it, the broker serves the rest, and the
two answers are merged. Two APIs are served first and then modified: Fetch, because its session must match the client's
view, and Metadata, because a client needs the brokers regardless of topic errors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, cast

from odradek.api.request.call import Call
from odradek.api.request.outcome import Encoded, Resumption, Wait
from odradek.api.table import Api
from odradek.base.errors import ErrorCode
from odradek.core.fetch.fetch_sessions import FetchKey
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.testing.encoded_frames import frame_of
from odradek.testing.request_topics import FIELDS, has_topics, name_of, split_by_topic
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.metadata import MetadataResponse
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.api_keys import ApiKey

Answer: TypeAlias = Encoded | ParkedRequest[Encoded]
# Generator of an answer, which yields wait conditions as in Steps.
Answering: TypeAlias = Generator[Wait, Resumption, Answer]
Serve: TypeAlias = Callable[[Request], Answering]

FETCH_ERROR_SINCE = 7
# Errors that Fetch returns for the whole request, not for a partition.
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class ErrorResponse:
    """The answer to one request; `serve` passes a request to the broker, `topic` None means all topics."""

    def __init__(self, api: Api, call: Call, request: Request, body: Any, serve: Serve) -> None:
        self._api = api
        self._call = call
        self._request = request
        self._body = body
        self._serve = serve

    def make(self, code: ErrorCode, topic: str | None) -> Answering:
        """Return the error answer; raise ConnectionAbortedError if an error can't be returned (acks 0)."""
        key = self._api.key
        if key is ApiKey.FETCH and not (code in _SESSION_ERRORS and self._call.version >= FETCH_ERROR_SINCE):
            return (yield from self._serve_edited(lambda frame: self._fetch_with_error(frame, code, topic)))
        if key is ApiKey.METADATA:
            return (yield from self._serve_edited(lambda frame: self._metadata_with_error(frame, code, topic)))
        if topic is None:
            return self._error_response(self._body, code)
        affected, rest = split_by_topic(self._call.broker, key, self._body, topic)
        if not has_topics(key, rest):
            return self._error_response(affected, code)
        return (yield from self._merged(rest, self._api.refuse(self._call, affected, code)))

    def _error_response(self, body: Any, code: ErrorCode) -> Encoded:
        response = self._api.refuse(self._call, body, code)
        if response is None:
            raise ConnectionAbortedError(
                "a test injected an error, but the request has no response that could carry it"
            )
        return encode_response(self._request, response)

    def _merged(self, rest: Any, refused: object | None) -> Answering:
        outcome = yield from self._serve(self._reencoded(rest))
        if refused is None:
            raise ConnectionAbortedError(
                "a test injected an error, but the request has no response that could carry it"
            )

        def merged(served: Encoded) -> Encoded:
            response = self._decoded(served, type(refused))
            field = FIELDS[self._api.key].response
            getattr(response, field).extend(getattr(refused, field))
            return encode_response(self._request, response)

        if isinstance(outcome, ParkedRequest):
            return ParkedRequest(outcome.condition, outcome.deadline, lambda: merged(outcome.then()))
        return merged(outcome)

    def _reencoded(self, body: object) -> Request:
        """Return the request as a connection would pass it on, with its own bytes."""
        original = self._request
        chunks = encode_request(body, original.api_version, original.correlation_id, original.client_id)
        (request,) = Connection().receive_data(frame_of(chunks))
        return request

    def _decoded(self, served: Encoded, response: type[Any]) -> Any:
        return decode_response(response, self._call.version, frame_of(served)[4:])[1]

    def _serve_edited(self, edit: Callable[[Encoded], Encoded]) -> Answering:
        outcome = yield from self._serve(self._request)
        if isinstance(outcome, ParkedRequest):
            if self._api.key is ApiKey.FETCH:
                return edit(outcome.then())  # An error is not delayed.
            return ParkedRequest(outcome.condition, outcome.deadline, lambda: edit(outcome.then()))
        return edit(outcome)

    def _metadata_with_error(self, served: Encoded, code: ErrorCode, topic: str | None) -> Encoded:
        response: MetadataResponse = self._decoded(served, MetadataResponse)
        for entry in response.topics:
            if self._is_affected(entry, topic):
                entry.error_code = code
                entry.partitions = []
        return encode_response(self._request, response)

    def _fetch_with_error(self, served: Encoded, code: ErrorCode, topic: str | None) -> Encoded:
        response: FetchResponse = self._decoded(served, FetchResponse)
        kept = [entry for entry in response.responses if not self._is_affected(entry, topic)]
        failed: dict[object, FetchableTopicResponse] = {}
        for key in self._requested_partitions(response.session_id):
            entry = failed.get(key.topic)
            if entry is None:
                by_id = {"topic_id": key.topic} if isinstance(key.topic, bytes) else {"topic": key.topic}
                entry = FetchableTopicResponse(partitions=[], **cast(dict[str, Any], by_id))
                if not self._is_affected(entry, topic):
                    continue
                failed[key.topic] = entry
            entry.partitions.append(_without_records(key.partition, code))
        response.responses = [*kept, *failed.values()]
        return encode_response(self._request, response)

    def _requested_partitions(self, session_id: int) -> list[FetchKey]:
        """Return all partitions that the client requested, now or earlier in its session."""
        session = self._call.broker.sessions.find_session(session_id)
        if session is not None:
            return list(session.partitions)
        body: FetchRequest = self._body
        by_id = self._api.key is ApiKey.FETCH and any(any(topic.topic_id) for topic in body.topics)
        return [
            FetchKey(cast(Any, topic.topic_id if by_id else topic.topic), part.partition)
            for topic in body.topics
            for part in topic.partitions
        ]

    def _is_affected(self, entry: object, topic: str | None) -> bool:
        return topic is None or name_of(self._call.broker, entry) == topic


def _without_records(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
