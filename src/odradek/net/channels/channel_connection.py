"""One TCP connection of a channel: connects, writes requests and delivers responses in order.

It ends once, by calling `on_lost` with the reason, unless its owner has closed it before. It is never reused. Every end
is an abort, because nobody needs the bytes left in the transport's buffer.

A request times out relative to the time it was written, and its timeout ends the connection. Otherwise, a response that
arrives late would be taken for the response to the next request. A peer that sends half a response, or one byte at a
time, therefore counts as not responding.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from struct import Struct
from typing import Any, Protocol, cast

from odradek import __version__
from odradek.base.errors import ErrorCode
from odradek.base.limits import SEND_BUFFER_HIGH_BYTES
from odradek.base.units import SECOND_MS
from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.channels.channel_frames import ResponseFrames
from odradek.net.channels.channel_requests import (
    ChannelConfig,
    FailedRequest,
    FailureReason,
    PendingRequest,
    RequestBuilder,
)
from odradek.tls import failure_reasons
from odradek.wire.client_codec import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer

API_VERSIONS_VERSION = 3
SOFTWARE_NAME = "odradek"
CLOSED = "the connection was closed"

_CORRELATION_ID = Struct(">i")
_ERROR_CODE = Struct(">h")


class Owner(Protocol):
    """The channel as its connection sees it; `on_response` raises Malformed for an invalid response body."""

    def on_opened(self) -> None: ...

    def on_response(self, pending: PendingRequest[Any], frame: Buffer) -> None: ...

    def on_writable(self) -> None: ...

    def on_lost(self, failed: FailedRequest) -> None: ...


class ChannelConnection(asyncio.BufferedProtocol):
    """One connection, from connecting to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner, config: ChannelConfig) -> None:
        self._loop = loop
        self._owner = owner
        self._config = config
        self._frames = ResponseFrames(config.response_bytes_max)
        self._in_flight: deque[PendingRequest[Any]] = deque()
        self._correlation_id = 0
        self._connecting: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._versions: dict[int, range] | None = None
        self._is_open = False  # Requests may be sent: the versions are known, if the channel requests them.
        self._is_paused = False  # The peer does not read.
        self._has_ended = False

    # The channel's side.

    def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self._connecting = self._loop.create_task(self._connect(endpoint, context))

    @property
    def can_send(self) -> bool:
        transport = self._transport
        return self._is_open and not self._is_paused and transport is not None and not transport.is_closing()

    def send(self, pending: PendingRequest[Any]) -> None:
        """Write one request; call only if `can_send`.

        Raises UnsupportedVersion, ValueError for values that the version cannot carry, and any exception of `build`; in
        these cases nothing is written.
        """
        builder = pending.builder
        supported = None if self._versions is None else self._versions.get(builder.api_key)
        version = builder.latest_allowed if self._versions is None else builder.version_for(supported)
        self._write(pending, version, builder.build(version))

    def close(self) -> None:
        """End the connection without notifying its owner."""
        if self._connecting is not None:
            self._connecting.cancel()
        self._release()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._has_ended:
            self._transport.abort()
            return
        if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
            # A client that often retries a local port without a listener may be assigned that port and connect to
            # itself.
            self._end(FailureReason.CANNOT_CONNECT, "connection refused")
            return
        self._transport.set_write_buffer_limits(high=SEND_BUFFER_HIGH_BYTES)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._config.receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._config.receive_buffer_bytes)
        if self._config.discovers_versions:
            self._request_versions(API_VERSIONS_VERSION)
        else:
            self._open()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(FailureReason.CONNECTION_LOST, CLOSED if error is None else text_of(error))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self.can_send:
            self._owner.on_writable()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._has_ended:
            return
        self._frames.received(nbytes)
        try:
            self._receive()
        except Malformed as reason:
            self._end(FailureReason.INVALID_RESPONSE, f"invalid response: {reason}")

    def eof_received(self) -> bool:
        self._end(FailureReason.CONNECTION_LOST, CLOSED)  # A peer that sends nothing more sends no response either.
        return False

    async def _connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        host_name = None if context is None else endpoint.host
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / SECOND_MS):
                await self._loop.create_connection(
                    lambda: self, endpoint.host, endpoint.port, ssl=context, server_hostname=host_name
                )
        except Exception as error:  # An OSError, or an exception of a library that resolves the host name.
            # With a transport, the connection was made just as the timeout expired, so the peer may have received a
            # request.
            reason = FailureReason.CANNOT_CONNECT if self._transport is None else FailureReason.CONNECTION_LOST
            self._end(reason, text_of(error))

    # Requests and responses.

    def _write(self, pending: PendingRequest[Any], version: int, message: object) -> None:
        transport = self._transport
        assert transport is not None and not self._has_ended, "requests are written to an open connection only"
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        chunks = encode_request(message, version, self._correlation_id, self._config.client_id)
        pending.version, pending.correlation_id = version, self._correlation_id
        pending.deadline = self._loop.time() + self._config.request_timeout_ms / SECOND_MS
        self._in_flight.append(pending)
        for chunk in chunks:
            assert isinstance(chunk, bytes | memoryview), "a request contains no file chunks"
            transport.write(chunk)
        self._set_timer()

    def _receive(self) -> None:
        if not self._in_flight:
            raise Malformed("no request is in flight")  # Rejected before it is received completely.
        while not self._has_ended and (frame := self._frames.next_frame()) is not None:
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
            if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
                raise Malformed(f"correlation id {correlation_id} does not match the oldest request in flight")
            pending = self._in_flight.popleft()
            if self._is_open:
                self._owner.on_response(pending, frame)
            else:
                self._on_versions(pending, frame)

    def _set_timer(self) -> None:
        """Set the timer for the oldest request in flight, unless a timer is set that will check again."""
        if self._timer is None and self._in_flight:
            self._timer = self._loop.call_at(self._in_flight[0].deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._in_flight and self._in_flight[0].deadline <= self._loop.time():
            self._end(FailureReason.TIMED_OUT, f"no response within {self._config.request_timeout_ms} ms")
        elif self._in_flight:
            self._set_timer()
        else:
            self._frames.drop_spare()

    # Versions (KIP-35, KIP-511).

    def _request_versions(self, version: int) -> None:
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        builder = RequestBuilder.of(message, ApiVersionsResponse, version)
        self._write(PendingRequest(builder, lambda _: None), version, message)

    def _on_versions(self, pending: PendingRequest[ApiVersionsResponse], frame: Buffer) -> None:
        if pending.version and _error_code(frame) == ErrorCode.UNSUPPORTED_VERSION:  # The response has version 0.
            self._request_versions(0)
            return
        pending.decode(frame)
        response = cast(ApiVersionsResponse, pending.outcome)
        if response.error_code:
            raise Malformed(f"ApiVersions failed with error code {response.error_code}")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}
        self._open()

    def _open(self) -> None:
        self._is_open = True
        self._owner.on_opened()

    # The end.

    def _end(self, reason: FailureReason, text: str) -> None:
        if not self._has_ended:
            self._release()
            self._owner.on_lost(FailedRequest(reason, text))

    def _release(self) -> None:
        self._has_ended = True
        self._in_flight.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()


def _error_code(frame: Buffer) -> int | None:
    """Return the error code of an ApiVersions response; it follows the correlation id in every version."""
    return int(_ERROR_CODE.unpack_from(frame, 4)[0]) if len(frame) >= 6 else None


def text_of(error: Exception) -> str:
    """Return the error in the system's own words, in lower case: `connection refused`."""
    if isinstance(error, ssl.SSLError):
        return failure_reasons.of(error, is_server=False)
    if isinstance(error, TimeoutError):
        return "timed out"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text[0].lower() + text[1:]
