"""From a request to its handler: is the API known, the version in range, the body whole.

The kinds of failure part here.  A Refused becomes the API's answer with that error code.  Malformed bytes and
unknown APIs close the connection, as there is no answer to them.  Anything else that escapes a handler is a bug of
ours: it is logged with its request and answered UNKNOWN_SERVER_ERROR, and the other connections live on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.api import api_versions, log_fields, plain_commit, plain_fetch, plain_produce, produce
from odradek.api.call import Call, Peer
from odradek.api.outcome import NO_BODY, Encoded, Outcome, Staged, encoded
from odradek.api.table import BY_KEY, Api
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import CorrelationId
from odradek.core.broker import Broker
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.wire.api_keys import ApiKey
from odradek.wire.compile import decode
from odradek.wire.errors import Malformed
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.request import Request
from odradek.wire.response import encode_response

log = logging.getLogger(__name__)

_PRODUCE = int(ApiKey.PRODUCE)  # A member costs ten times as much to look up.
# Who answers requests that are like one before; None for any other.
_PLAIN: dict[int, Callable[[Broker, Peer, Request, Moment], Outcome]] = {
    _PRODUCE: plain_produce.stage,
    int(ApiKey.FETCH): plain_fetch.answer,
    int(ApiKey.OFFSET_COMMIT): plain_commit.answer,
}


class StagedProduce(Staged):
    """Any produce on its way."""

    __slots__ = ("_produce", "_request")

    def __init__(self, request: Request, staged: produce.Staged) -> None:
        self._request = request
        self._produce = staged

    def finish(self) -> Encoded | Parked[Encoded]:
        return encoded(self._request, self._produce.settle())


def dispatch(broker: Broker, peer: Peer, request: Request, now: Moment) -> Outcome:
    """The encoded answer, None for a request without one, the request parked, or staged.

    Raises Malformed, which closes the connection.
    """
    if request.api_key != _PRODUCE:
        broker.commit(now)  # What came before is there for whoever asks.
    take_plain = _PLAIN.get(request.api_key)
    if take_plain is not None:
        plain = take_plain(broker, peer, request, now)
        if plain is not None:
            return plain
    api = BY_KEY.get(request.api_key)
    if api is None or request.api_version not in api.versions:
        return _unsupported(request)
    received = request.body
    request.body = NO_BODY
    # Bytes after the body are left alone, as Kafka does.
    body: object = decode(api.request, request.api_version, received)
    call = Call(broker, peer, request.api_version, request.client_id, CorrelationId(request.correlation_id), now)
    outcome = _answer(api, call, request, body)
    if isinstance(outcome, produce.Staged):
        assert isinstance(body, ProduceRequest)
        plain_produce.learn(peer, request, received, body, outcome)
        return StagedProduce(request, outcome)
    if isinstance(body, FetchRequest):
        plain_fetch.learn(broker, peer, request, received, body)
    elif isinstance(body, OffsetCommitRequest):
        plain_commit.learn(broker, peer, request, received, body)
    return outcome


def _answer(api: Api, call: Call, request: Request, body: object) -> Encoded | Parked[Encoded] | produce.Staged:
    try:
        answer = api.handle(call, body)
        return answer if isinstance(answer, produce.Staged) else encoded(request, answer)
    except Refused as refused:
        answer = api.refuse(call, body, refused.code)
    except (AssertionError, ConnectionAbortedError):
        raise
    except Exception:
        log.exception(
            "%s v%d from %s (client %r, correlation id %d) failed here",
            api.key.name,
            call.version,
            call.peer.address,
            call.client_id,
            call.correlation_id,
            extra=log_fields.of_request(call.peer, request),
        )
        answer = api.refuse(call, body, ErrorCode.UNKNOWN_SERVER_ERROR)
    return encoded(request, answer)


def _unsupported(request: Request) -> Encoded:
    if request.api_key != ApiKey.API_VERSIONS:
        raise Malformed(f"API {request.api_key} version {request.api_version} is not spoken here")
    asked_again = Request(request.api_key, 0, request.correlation_id, request.client_id, NO_BODY, 0, request.sequence)
    return encode_response(asked_again, api_versions.unknown_version())
