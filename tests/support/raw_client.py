"""A client that sends arbitrary bytes, and reads whole responses."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import TypeVar

from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CLIENT_ID = "raw"
SECONDS_MAX = 180

Answer = TypeVar("Answer")


class Closed(ConnectionError):
    """The broker closed the connection instead of answering."""


class RawClient:
    """One blocking connection. Every wait ends after SECONDS_MAX with an error."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """Return one response without its length. Raise Closed if the connection ends."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not piece:
                raise Closed(f"after {len(data)} bytes of {size}")
            data += piece
        return bytes(data)

    def request(self, message: object, version: int, answer: type[Answer]) -> Answer:
        self.send(frame(message, version, next(self._correlation_ids)))
        return decode_response(answer, version, self.read_frame())[1]

    def ping(self) -> None:
        """Check that the broker answers."""
        assert self.request(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0

    def is_closed(self) -> bool:
        """Wait for the broker to close the connection, or to answer; return whether it closed it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def end_of_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def frame(message: object, version: int, correlation_id: int = 1) -> bytes:
    """Return a whole request frame."""
    chunks = encode_request(message, version, correlation_id, CLIENT_ID)
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))


def raw_frame(api_key: int, version: int, body: bytes, *, tags: bytes = b"") -> bytes:
    """Return a request with an arbitrary body; flexible versions need `tags`, b"\0" for none."""
    header = struct.pack(">hhih", api_key, version, 7, len(CLIENT_ID)) + CLIENT_ID.encode() + tags
    return struct.pack(">i", len(header) + len(body)) + header + body
