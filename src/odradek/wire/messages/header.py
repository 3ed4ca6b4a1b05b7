"""Headers of requests and answers, after the four bytes of the frame's length.

Request: v1 client id (only ControlledShutdown v0 still uses v0). v2 tagged fields; the client id keeps its old length.
Response: v1 tagged fields. api_keys.py contains the header version of each API. The connection parses and writes
headers by hand; these classes are for clients, tests and `explain`.
"""

from odradek.wire.schema.primitives import Int16, Int32, Str
from odradek.wire.schema.schema import message, since


@message(kind="header", versions=(0, 2), flexible_from=2)
class RequestHeader:
    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: Str | None = since(1, default="", flexible=False)


@message(kind="header", versions=(0, 1), flexible_from=1)
class ResponseHeader:
    correlation_id: Int32
