"""The client's side of framing: encoding of requests and decoding of answers.

Request:  │ i32 length of the rest │ header │ body ...
Answer:   │ i32 length of the rest │ i32 correlation id │ tagged fields (header v1) │ body ...
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TypeVar

from odradek.wire.messages.header import RequestHeader, ResponseHeader
from odradek.wire.response import cut
from odradek.wire.schema.api_keys import request_header_version, response_header_version
from odradek.wire.schema.compile import decode, reader, writer
from odradek.wire.schema.primitives import Buffer, Chunk, Splices
from odradek.wire.schema.schema import schema_of

T = TypeVar("T")

_pack_length = Struct(">i").pack_into


def encode_request(message: object, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """Encode a whole frame, split at splices; raise ValueError for values the version can't represent."""
    api_key = _api_key(type(message))
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    out = bytearray(4)
    splices: Splices = []
    try:
        writer(RequestHeader, request_header_version(api_key, version))(out, header, splices)
        writer(type(message), version)(out, message, splices)
        _pack_length(out, 0, len(out) - 4 + sum(splice.size for _, splice in splices))
    except struct_error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
    return cut(out, splices)


def decode_response(cls: type[T], version: int, frame: Buffer) -> tuple[int, T]:
    """Decode a frame without its length to correlation id and message, or raise Malformed."""
    header_version = response_header_version(_api_key(cls), version)
    header, at = reader(ResponseHeader, header_version)(frame, 0)
    return header.correlation_id, decode(cls, version, frame, at)


def _api_key(cls: type) -> int:
    api_key = schema_of(cls).api_key
    assert api_key is not None, f"{cls.__name__} has no API key"
    return api_key
