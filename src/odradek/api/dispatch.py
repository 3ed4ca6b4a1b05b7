"""From a request to its handler: is the API known, the version in range, the body whole.

The kinds of failure part here.  A Refused becomes the API's answer with that error code.  Malformed bytes and
unknown APIs close the connection, as there is no answer to them.  Anything else that escapes a handler is a bug of
ours: it is logged with its request and answered UNKNOWN_SERVER_ERROR, and the other connections live on.
"""

from __future__ import annotations

import logging

from odradek.api import api_versions, log_fields, plain_fetch, plain_produce, produce
from odradek.api.call import Call, Peer
from odradek.api.outcome import Encoded, Outcome, Staged, encoded
from odradek.api.table import ADVERTISED, BY_KEY, Api
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import CorrelationId
from odradek.core.broker import Broker
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.wire.api_keys import ApiKey
from odradek.wire.compile import decode
from odradek.wire.errors import Malformed
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.request import Request
from odradek.wire.response import encode_response

log = logging.getLogger(__name__)

NOTHING = memoryview(b"")
_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)  # A member costs ten times as much to look up.


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
    if request.api_key == _PRODUCE:
        plain = plain_produce.stage(broker, peer, request, now)
        if plain is not None:
            return plain
    else:
        broker.commit(now)  # What came before is there for whoever asks.
        if request.api_key == _FETCH:
            answer = plain_fetch.answer(broker, peer, request, now)
            if answer is not None:
                return answer
    api = BY_KEY.get(request.api_key)
    if api is None or request.api_version not in api.versions:
        return _unsupported(request)
    received = request.body
    # An answer that waits must not keep the receive buffer alive.
    request.body = NOTHING
    # Bytes after the body are left alone, as Kafka does.
    body: object = decode(api.request, request.api_version, received)
    call = Call(broker, peer, request.api_version, request.client_id, CorrelationId(request.correlation_id), now)
    outcome = _answer(api, call, request, body)
    if isinstance(body, FetchRequest):
        plain_fetch.learn(broker, peer, request, received, body)
    if not isinstance(outcome, produce.Staged):
        return outcome
    assert isinstance(body, ProduceRequest)
    plain_produce.learn(peer, request, received, body, outcome)
    return StagedProduce(request, outcome)


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
    asked_again = Request(request.api_key, 0, request.correlation_id, request.client_id, NOTHING, 0, request.sequence)
    return encode_response(asked_again, api_versions.unknown_version(ADVERTISED))
