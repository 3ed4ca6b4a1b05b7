"""Fields of a log line about a client, under the names shared by JSON logs and the request log.

They are passed as `extra=` to a log call and created only there, so that a request without a log line costs nothing.
"""

from __future__ import annotations

from odradek.api.request.call import Call, Peer
from odradek.core.kernel.access import ANONYMOUS
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey

Fields = dict[str, object]

OF_PEER = ("connection", "listener", "software")
OF_REQUEST = ("client_id", "api", "api_version", "correlation_id")
NAMES = (*OF_PEER, *OF_REQUEST)


def of_peer(peer: Peer) -> Fields:
    return {"connection": peer.address, "listener": peer.listener, "software": peer.software}


def of_request(peer: Peer, request: Request) -> Fields:
    return {
        **of_peer(peer),
        "client_id": request.client_id,
        "api": api_name(request.api_key),
        "api_version": request.api_version,
        "correlation_id": request.correlation_id,
    }


def of_call(call: Call, key: ApiKey) -> Fields:
    """Return the fields of a line about a handler's work, with `principal` if the client is not anonymous."""
    fields = {
        **of_peer(call.peer),
        "client_id": call.client_id,
        "api": key.title,
        "api_version": call.version,
        "correlation_id": call.correlation_id,
    }
    return fields if call.principal == ANONYMOUS else {**fields, "principal": str(call.principal)}


def api_name(key: int) -> str:
    """Return the API's name as Kafka writes it, or the number of an unknown key."""
    return ApiKey(key).title if key in _KEYS else str(key)


_KEYS = frozenset(map(int, ApiKey))
