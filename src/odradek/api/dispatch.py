"""From a request to its handler: is the API known, the version in range, the body whole.

The kinds of failure part here.  A Refused becomes the API's answer with that error code.  Malformed bytes and
unknown APIs close the connection, as there is no answer to them.  Anything else that escapes a handler is a bug of
ours: it is logged with its request and answered UNKNOWN_SERVER_ERROR, and the other connections live on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.api import api_versions
from odradek.api.call import Call, Peer
from odradek.api.table import ADVERTISED, BY_KEY, Api
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import CorrelationId
from odradek.core.broker import Broker
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.wire.api_keys import ApiKey
from odradek.wire.compile import decode
from odradek.wire.errors import Malformed
from odradek.wire.primitives import Chunk
from odradek.wire.request import Request
from odradek.wire.response import encode_response

log = logging.getLogger(__name__)

Encoded = list[Chunk] | None
NOTHING = memoryview(b"")


def dispatch(broker: Broker, peer: Peer, request: Request, now: Moment) -> Encoded | Parked[Encoded]:
    """The encoded answer, None for a request without one, or the request parked.

    Raises Malformed, which closes the connection.
    """
    api = BY_KEY.get(request.api_key)
    if api is None or request.api_version not in api.versions:
        return _unsupported(request)
    # Bytes after the body are left alone, as Kafka does.
    body: object = decode(api.request, request.api_version, request.body)
    # A parked answer must not keep the receive buffer alive.
    request.body = NOTHING
    call = Call(broker, peer, request.api_version, request.client_id, CorrelationId(request.correlation_id), now)
    return _answered(api, call, request, body)


def _answered(api: Api, call: Call, request: Request, body: object) -> Encoded | Parked[Encoded]:
    try:
        answer = api.handle(call, body)
        if isinstance(answer, Parked):
            return Parked(answer.condition, answer.deadline, _encoder(request, answer.then))
        return None if answer is None else encode_response(request, answer)
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
        )
        answer = api.refuse(call, body, ErrorCode.UNKNOWN_SERVER_ERROR)
    return None if answer is None else encode_response(request, answer)


def _encoder(request: Request, then: Callable[[], object]) -> Callable[[], Encoded]:
    return lambda: encode_response(request, then())


def _unsupported(request: Request) -> Encoded:
    if request.api_key != ApiKey.API_VERSIONS:
        raise Malformed(f"API {request.api_key} version {request.api_version} is not spoken here")
    request.api_version = 0
    return encode_response(request, api_versions.unknown_version(ADVERTISED))
