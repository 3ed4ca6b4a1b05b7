"""The peer of a channel, on a real socket in the channel's own loop, whose behaviour is set by the test.

It responds to AllocateProducerIds with a value of the request: the broker epoch is the first id of the response.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any

import uvloop

from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.channels.channel import Channel
from odradek.net.channels.channel_connection import ChannelConnection
from odradek.net.channels.channel_requests import ChannelConfig, FailedRequest, RequestBuilder
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema.compile import decode, encode

SECONDS_MAX = 60
HOST = "127.0.0.1"
ALLOCATE_PRODUCER_IDS, API_VERSIONS = 67, 18

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Behaviour = Callable[["ReceivedRequest", Writer], Awaitable[None]]

_FRONT = Struct(">hhih")


class ReceivedRequest:
    """A request received by the peer; `connection` counts its connections from 0."""

    def __init__(self, frame: bytes, connection: int, reader: Reader) -> None:
        self._reader = reader
        self.api_key, self.version, self.correlation_id, size = _FRONT.unpack_from(frame)
        self.client_id = frame[_FRONT.size : _FRONT.size + size].decode()
        self._rest = frame[_FRONT.size + size :]
        self.connection = connection

    @property
    def number(self) -> int:
        assert self.api_key == ALLOCATE_PRODUCER_IDS
        return decode(AllocateProducerIdsRequest, self.version, self._rest, 1).broker_epoch

    async def until_closed(self) -> None:
        """Read until the channel closes the connection."""
        await self._reader.read()

    def frame(self) -> bytes:
        """Return the correct response, with its length."""
        assert self.api_key == ALLOCATE_PRODUCER_IDS
        response = AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=0, producer_id_start=self.number, producer_id_len=1
        )
        return framed(self.correlation_id, b"\0" + encode(response, 0))

    def versions_frame(self, error: int = 0, version: int | None = None, **apis: int) -> bytes:
        keys = [ApiVersion(api_key=ALLOCATE_PRODUCER_IDS, min_version=0, max_version=apis.get("highest", 9))]
        response = ApiVersionsResponse(error_code=error, api_keys=[] if error else keys)
        return framed(self.correlation_id, encode(response, self.version if version is None else version))

    def software(self) -> str:
        assert self.api_key == API_VERSIONS and self.version == 3
        return decode(ApiVersionsRequest, 3, self._rest, 1).client_software_name


def framed(correlation_id: int, body: bytes) -> bytes:
    return (4 + len(body)).to_bytes(4) + correlation_id.to_bytes(4) + body


async def answer(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(request.frame() if request.api_key == ALLOCATE_PRODUCER_IDS else request.versions_frame())
    await writer.drain()


class Peer:
    """A listening socket; `behave` is called for each request, in order, and may do anything to the connection."""

    def __init__(self, behave: Behaviour = answer, *, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._behave = behave
        self._context = context
        self.port = port
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.open = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_server(self._serve, HOST, self.port, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await until(lambda: not self.open)  # The channel has left none of them open.

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("PLAINTEXT", HOST, self.port)

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        number = self.connections
        self.connections += 1
        self.open += 1
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                self.requests.append(ReceivedRequest(frame, number, reader))
                await self._behave(self.requests[-1], writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except RuntimeError:  # uvloop's error for a write after the peer has closed.
            assert writer.transport.is_closing()
        finally:
            writer.transport.abort()
            self.open -= 1


def reset(writer: Writer) -> None:
    """Reset the connection instead of closing it."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, "little") + bytes(4))
    writer.transport.abort()


class Sent:
    """Numbered requests of one channel, and their outcomes."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.outcomes: list[tuple[int, int | FailedRequest]] = []  # The number of the request, and of its response.
        self.built: list[int] = []
        self._next = 0

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            number, self._next = self._next, self._next + 1
            try:
                self.channel.send(self._builder(number), lambda outcome, number=number: self._ended(number, outcome))
            except Exception:
                self._next -= 1
                raise

    def _builder(self, number: int) -> RequestBuilder[AllocateProducerIdsResponse]:
        def build(version: int) -> AllocateProducerIdsRequest:
            self.built.append(number)
            return AllocateProducerIdsRequest(broker_id=1, broker_epoch=number)

        return RequestBuilder(AllocateProducerIdsRequest, AllocateProducerIdsResponse, build, 0, 0)

    def _ended(self, number: int, outcome: AllocateProducerIdsResponse | FailedRequest) -> None:
        self.outcomes.append((number, outcome if isinstance(outcome, FailedRequest) else outcome.producer_id_start))

    async def all(self) -> list[int | FailedRequest]:
        """Wait for the outcome of each request, and check that these arrived once each, in order."""
        await until(lambda: len(self.outcomes) >= self._next)
        await asyncio.sleep(0)
        assert [number for number, _ in self.outcomes] == list(range(self._next))
        return [outcome for _, outcome in self.outcomes]

    def texts(self) -> list[str]:
        return [outcome.text for _, outcome in self.outcomes if isinstance(outcome, FailedRequest)]


def config(**keywords: Any) -> ChannelConfig:
    keywords.setdefault("retries", False)
    keywords.setdefault("backoff_ms", 1)
    keywords.setdefault("backoff_ms_max", 20)
    return ChannelConfig("broker-1", **keywords)


def channel_to(peer: Peer, **keywords: Any) -> Channel:
    return Channel(asyncio.get_running_loop(), peer.endpoint, config(**keywords), name="broker 2")


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # `run` has the deadline.
        await asyncio.sleep(0.002)


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test on a loop of uvloop, and check that no channel leaves anything behind."""

    async def on_a_loop() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await asyncio.wait_for(work(), SECONDS_MAX)
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert not errors, errors
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, ChannelConnection)]

    uvloop.run(on_a_loop())
