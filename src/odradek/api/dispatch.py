"""Dispatch of a request to its handler: check the gate's answer, the API, the version and the body.

There are three kinds of failure. A Refused becomes the API's response with that error code. Malformed bytes and unknown
APIs close the connection, because no response exists for them. Any other exception from a handler is a bug of ours: it
is logged with its request and answered UNKNOWN_SERVER_ERROR, and other connections are not affected.

Large requests do not block the loop. A thread parses a body of very many elements, a handler that is a generator runs
in slices, and a thread encodes an answer that took slices. Order and errors are the same as for small requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import cast

from odradek.api import api_versions
from odradek.api.fetch import plain_fetch
from odradek.api.groups import plain_commit
from odradek.api.produce import plain_produce, produce
from odradek.api.request import log_fields
from odradek.api.request.call import Call, Peer
from odradek.api.request.outcome import (
    NO_BODY,
    Done,
    Encoded,
    Outcome,
    ShortAnswer,
    Slices,
    StagedRequest,
    Steps,
    Wait,
    encoded,
    has_slices,
    slice_of,
)
from odradek.api.table import Api, table_of
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import REQUEST_ELEMENTS_INLINE_MAX
from odradek.base.units import CorrelationId
from odradek.core.broker.broker import Broker
from odradek.core.broker.large_requests import Turn
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.kernel.work import Work
from odradek.wire.kafka_0_7 import explain_request
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import decode, decode_small
from odradek.wire.schema.malformed import Malformed, TooManyElements

log = logging.getLogger(__name__)

_PRODUCE = int(ApiKey.PRODUCE)  # Looking up an enum member costs ten times as much.
# Handlers of requests that match a template; they return None for all other requests.
_PLAIN: dict[int, Callable[[Broker, Peer, Request, Moment], Outcome]] = {
    _PRODUCE: plain_produce.stage,
    int(ApiKey.FETCH): plain_fetch.answer,
    int(ApiKey.OFFSET_COMMIT): plain_commit.answer,
}


class StagedProduce(StagedRequest):
    """A Produce request whose batches are staged; `finish` answers it after the broker's commit."""

    def __init__(self, request: Request, staged: produce.PendingProduce, throttle_ms: int) -> None:
        self._request = request
        self._produce = staged
        self._throttle_ms = throttle_ms

    def finish(self) -> Encoded | ParkedRequest[Encoded]:
        return encoded(self._request, self._produce.settle(), self._throttle_ms)


def dispatch(broker: Broker, peer: Peer, request: Request, now: Moment) -> Outcome:
    """Return the encoded answer (None if there is none), or the request parked, staged or in steps.

    `peer.admission` is the gate's answer about the request. Raise Malformed, which closes the connection.
    """
    if request.api_key != _PRODUCE:
        broker.commit(now)  # Every other request sees all batches produced before it.
    if peer.admission.is_plain:
        handle_plain = _PLAIN.get(request.api_key)
        if handle_plain is not None:
            plain = handle_plain(broker, peer, request, now)
            if plain is not None:
                return plain
    api = _apis(broker).get(request.api_key)
    if api is None or request.api_version not in api.versions:
        return _unsupported(request, api)
    received = request.body
    request.body = NO_BODY
    call = Call(broker, peer, request.api_version, request.client_id, CorrelationId(request.correlation_id), now)
    try:
        # Bytes after the body are ignored, as in Kafka.
        body: object = decode_small(api.request, request.api_version, received, REQUEST_ELEMENTS_INLINE_MAX)
    except TooManyElements:
        return _parse_in_thread(_ApiRequest(api, call, request, received))
    except Malformed as malformed:
        raise explain_request(request, received, malformed) from None
    return _ApiRequest(api, call, request, received).handle(body)


def _apis(broker: Broker) -> dict[int, Api]:
    return table_of(broker.protocol, in_cluster=broker.controller_queries is not None).by_key


def _parse_in_thread(api_request: _ApiRequest) -> Steps:
    """Parse a large body in a thread, then handle it; only a few large requests run at a time.

    Raise Malformed.
    """
    call, request = api_request.call, api_request.request
    turn = call.broker.large_requests.request_turn(request.size, call.now)
    try:
        while not turn.is_granted:
            resumed = yield turn.parked(call.now)
            call.now = resumed.now
            turn.steps(call.now)
        work = Work(partial(decode, api_request.api.request, request.api_version, api_request.received))
        turn.waits(work)
        resumed = yield work
        if isinstance(resumed.error, Malformed):
            raise explain_request(request, api_request.received, resumed.error)
        if resumed.error is not None:
            raise resumed.error
        call.now, call.admission = resumed.now, call.peer.admission
        turn.steps(call.now)
        body = resumed.value
        del resumed, work
        outcome = api_request.handle(body, is_large=True)
        del body  # A thread should drop the last reference: see _finish.
        return (yield from _in_turn(outcome, turn)) if isinstance(outcome, Generator) else outcome
    finally:
        turn.end_turn()


def _in_turn(steps: Steps, turn: Turn) -> Steps:
    """Run the remaining steps of a large request and report each wait to its turn."""
    try:
        wait = next(steps)
        while True:
            turn.waits(wait)
            resumed = yield wait
            turn.steps(resumed.now)
            wait = steps.send(resumed)
    except StopIteration as done:
        outcome: Done = done.value
        return outcome
    finally:
        steps.close()


class _ApiRequest:
    """One request of a known API and version, from its body to its encoded answer."""

    def __init__(self, api: Api, call: Call, request: Request, received: memoryview) -> None:
        self.api = api
        self.call = call
        self.request = request
        self.received = received

    def handle(self, body: object, *, is_large: bool = False) -> Outcome:
        admission = self.call.admission
        try:
            if admission.refused:
                raise Refused(admission.refused, "rejected by the request gate")
            answer = self.api.handle(self.call, body)
            if has_slices(answer):
                try:
                    wait = slice_of(answer)
                except StopIteration as done:
                    answer = done.value.answer if isinstance(done.value, ShortAnswer) else done.value
                else:
                    return self._in_slices([body], answer, wait, is_large=is_large)
            return self._outcome(body, answer)
        except Exception as error:
            if is_large:  # The refusal of a large request is large, too.
                return self._finish([body, error])
            return encoded(self.request, self._refusal(body, error), admission.throttle_ms)

    def _in_slices(self, kept: list[object], slices: Slices, wait: Wait, *, is_large: bool) -> Steps:
        """Run the remaining slices of a handler whose first slice is done; `kept` holds the body."""
        call = self.call
        answer: object
        try:
            while True:
                resumed = yield wait
                call.now, call.admission = resumed.now, call.peer.admission
                if call.admission.refused:
                    raise Refused(call.admission.refused, "rejected by the request gate during a wait")
                try:
                    wait = slice_of(slices, resumed)
                except StopIteration as done:
                    answer = done.value
                    break
        except (AssertionError, ConnectionAbortedError):
            raise
        except Exception as error:
            answer = error
        finally:
            slices.close()
        if isinstance(answer, ShortAnswer):
            return self._outcome(kept[0], answer.answer)
        if isinstance(answer, ParkedRequest | produce.PendingProduce):
            return self._outcome(kept[0], answer)
        if answer is None and not is_large:
            return None
        kept[:0], call.to_free = call.to_free or (), None
        kept.append(answer)
        del answer
        return (yield from self._finish(kept))

    def _finish(self, kept: list[object]) -> Steps:
        """Encode a long answer in a thread.

        `kept` ends with the body and the answer, or an error. The thread drops the last references, because freeing a
        hundred thousand elements takes as long as several slices.
        """
        resumed = yield Work(partial(self._encoded, kept, self.call.admission.throttle_ms))
        if resumed.error is not None:
            raise resumed.error
        return cast(Encoded, resumed.value)

    def _encoded(self, kept: list[object], throttle_ms: int) -> Encoded | ParkedRequest[Encoded]:
        answer, body = kept.pop(), kept.pop()
        kept.clear()
        if not isinstance(answer, Exception):
            try:
                return encoded(self.request, answer, throttle_ms)
            except Exception as error:
                answer = error
        return encoded(self.request, self._refusal(body, answer), throttle_ms)

    def _outcome(self, body: object, answer: object) -> Done:
        """Convert the handler's answer into the request's outcome, and learn a template from the request."""
        call, request, received = self.call, self.request, self.received
        if isinstance(answer, produce.PendingProduce):
            assert isinstance(body, ProduceRequest)
            plain_produce.learn(call.peer, request, received, body, answer)
            return StagedProduce(request, answer, call.admission.throttle_ms)
        outcome = encoded(request, answer, call.admission.throttle_ms)
        if isinstance(body, FetchRequest):
            plain_fetch.learn(call.broker, call.peer, request, received, body)
        elif isinstance(body, OffsetCommitRequest):
            plain_commit.learn(call.broker, call.peer, request, received, body)
        return outcome

    def _refusal(self, body: object, error: Exception) -> object | None:
        """Return the API's answer to a handler's error; raise the error again if no answer can carry it."""
        api, call, request = self.api, self.call, self.request
        if isinstance(error, Refused):
            answer = api.refuse(call, body, error.code)
            if answer is None:  # Produce with acks=0: closing the connection makes its client look for the leader.
                raise ConnectionAbortedError(
                    f"{api.key.title} failed, and its response cannot carry the error: {error}"
                )
            return answer
        if isinstance(error, AssertionError | ConnectionAbortedError):
            raise error
        log.error(
            "unexpected error handling %s v%d from %s (client %r, correlation id %d)",
            api.key.name,
            call.version,
            call.peer.address,
            call.client_id,
            call.correlation_id,
            extra=log_fields.of_request(call.peer, request),
            exc_info=error,
        )
        return api.refuse(call, body, ErrorCode.UNKNOWN_SERVER_ERROR)


def _unsupported(request: Request, api: Api | None) -> Encoded:
    if request.api_key != ApiKey.API_VERSIONS:
        # As in Kafka. Some clients detect a missing API by an error code, but no single response suits all of them.
        raise explain_request(request, request.body, Malformed(_unsupported_reason(request, api)))
    request_v0 = Request(request.api_key, 0, request.correlation_id, request.client_id, NO_BODY, 0, request.sequence)
    return encode_response(request_v0, api_versions.unknown_version())


def _unsupported_reason(request: Request, api: Api | None) -> str:
    """Return the text for the log; the client sees only a closed connection."""
    prefix = f"client {request.client_id!r} sent "
    if api is not None:
        first, last = api.versions.start, api.versions.stop - 1
        return f"{prefix}{api.key.title} version {request.api_version}; supported versions are {first} to {last}"
    known = {int(key): key.title for key in ApiKey}.get(request.api_key)
    if known is not None:
        return f"{prefix}{known} (API key {request.api_key}), which is not supported"
    return f"{prefix}unknown API key {request.api_key}"
