"""Outgoing connections of a test's broker, which a partition cuts like a network that drops packets.

    channel ── create_connection ──> LinkedLoop ──> Link ── write, later if slow, held back while cut ──> socket
    channel <── buffer_updated, later if slow ──── Link <── not read while cut ──────────────────────── socket

Both directions are cut at the connecting broker, below its channels and above the socket. Connections made by others,
for example clients, are not affected. A new connection waits until the partition heals or the connecting broker gives
up. Data held back is sent after healing, unless its connection was closed before: then it is lost. On a slow connection
all data arrives later, and connecting takes the delays of both directions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import uvloop

from odradek.base.units import KIB, BrokerId
from odradek.testing.delays import DelayedDelivery
from odradek.testing.network import Network

LOOK_SECONDS = 0.05
LANDING_BYTES = 64 * KIB


class LinkedLoop(uvloop.Loop):
    """A broker's event loop, whose connections to other brokers can be cut."""

    def __init__(self, network: Network, broker: BrokerId) -> None:
        super().__init__()
        self._network = network
        self._broker = broker
        self._links: set[Link] = set()
        self._healed = asyncio.Event()
        network.add_way(self._partitioned)

    def close(self) -> None:
        self._network.remove_way(self._partitioned)
        super().close()

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.BaseProtocol, asyncio.BaseProtocol]:
        peer = self._network.ports.get(port)
        if peer is None:  # Not a broker of this cluster.
            return await super().create_connection(protocol_factory, host, port, **options)
        while self._network.is_cut(self._broker, peer):
            await self._healed.wait()
        await asyncio.sleep(sum(self.delays(peer)))

        def made() -> Link:
            protocol = protocol_factory()
            assert isinstance(protocol, asyncio.BufferedProtocol), "channels use buffered protocols"
            return Link(protocol, self, peer)

        return await super().create_connection(made, host, port, **options)

    def loses(self, peer: BrokerId) -> tuple[bool, bool]:
        """Return whether data to the peer is lost, and whether data from the peer is lost."""
        cuts = self._network.cuts
        return (self._broker, peer) in cuts, (peer, self._broker) in cuts

    def delays(self, peer: BrokerId) -> tuple[float, float]:
        """Return the delays in seconds of data to the peer and of data from the peer."""
        delays = self._network.delays
        return delays.get((self._broker, peer), 0.0), delays.get((peer, self._broker), 0.0)

    def opened(self, link: Link) -> None:
        self._links.add(link)

    def closed(self, link: Link) -> None:
        self._links.discard(link)

    def _partitioned(self) -> None:
        """Wait, on another thread, until the current cuts take effect."""
        is_done = threading.Event()
        with suppress(RuntimeError):  # The broker has just stopped.
            self.call_soon_threadsafe(self._change, is_done)
        while not is_done.wait(LOOK_SECONDS) and not self.is_closed():
            pass

    def _change(self, is_done: threading.Event) -> None:
        for link in list(self._links):
            link.change()
        self._healed.set()  # Waiting connections check again.
        self._healed = asyncio.Event()
        is_done.set()


class Link(asyncio.BufferedProtocol):
    """One connection: the event loop's protocol, and the transport of the channel's protocol."""

    def __init__(self, protocol: asyncio.BufferedProtocol, loop: LinkedLoop, peer: BrokerId) -> None:
        self._protocol = protocol
        self._loop = loop
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._is_deaf = False
        self._sent = DelayedDelivery(loop, self._leaves)
        self._received = DelayedDelivery(loop, self._arrives)
        self._unheard: list[bytes] = []
        self._landing: bytearray | None = None  # Buffer for data that is delivered later.

    def change(self) -> None:
        """Hold back or release data according to the current cuts."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        loses_sent, loses_received = self._loop.loses(self._peer)
        if loses_received != self._is_deaf:
            self._is_deaf = loses_received
            (transport.pause_reading if loses_received else transport.resume_reading)()
        if not loses_sent:
            held, self._held = self._held, []
            for data in held:
                transport.write(data)
        if not loses_received:
            unheard, self._unheard = self._unheard, []
            for data in unheard:
                self._hear(data)
        sent_seconds, received_seconds = self._loop.delays(self._peer)
        if not sent_seconds:
            self._sent.hurry()
        if not received_seconds:
            self._received.hurry()

    # Called by the channel.

    def write(self, data: bytes | memoryview) -> None:
        seconds = self._loop.delays(self._peer)[0]
        if seconds or self._sent:
            self._sent.put(bytes(data), seconds)
        else:
            self._leaves(data)

    def _leaves(self, data: bytes | memoryview) -> None:
        transport = self._transport
        assert transport is not None
        if self._held or self._loop.loses(self._peer)[0]:
            self._held.append(bytes(data))
        elif not transport.is_closing():
            transport.write(data)

    def __getattr__(self, name: str) -> Any:
        """Return all other attributes of the transport."""
        return getattr(self._transport, name)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop.opened(self)
        self.change()
        self._protocol.connection_made(cast(asyncio.Transport, self))

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.closed(self)
        self._received.hurry()
        self._protocol.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._received or self._unheard or self._loop.delays(self._peer)[1]:
            self._landing = bytearray(LANDING_BYTES)
            return memoryview(self._landing)
        return cast(memoryview, self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        landing, self._landing = self._landing, None
        if landing is None:
            self._protocol.buffer_updated(nbytes)
        else:
            self._received.put(bytes(landing[:nbytes]), self._loop.delays(self._peer)[1])

    def _arrives(self, data: bytes) -> None:
        if self._is_deaf or self._unheard:
            self._unheard.append(data)
        else:
            self._hear(data)

    def _hear(self, data: bytes) -> None:
        left = memoryview(data)
        while left and self._transport is not None and not self._transport.is_closing():
            buffer = cast(memoryview, self._protocol.get_buffer(len(left)))
            size = min(len(buffer), len(left))
            buffer[:size] = left[:size]
            left = left[size:]
            self._protocol.buffer_updated(size)

    def eof_received(self) -> bool | None:
        self._received.hurry()
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
