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

CHECK_SECONDS = 0.05
DELAYED_BYTES = 64 * KIB


class LinkedLoop(uvloop.Loop):
    """A broker's event loop, whose connections to other brokers can be cut."""

    def __init__(self, network: Network, broker: BrokerId) -> None:
        super().__init__()
        self._network = network
        self._broker = broker
        self._links: set[Link] = set()
        self._healed = asyncio.Event()
        network.add_listener(self._on_network_changed)

    def close(self) -> None:
        self._network.remove_listener(self._on_network_changed)
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

        def make_link() -> Link:
            protocol = protocol_factory()
            assert isinstance(protocol, asyncio.BufferedProtocol), "channels use buffered protocols"
            return Link(protocol, self, peer)

        return await super().create_connection(make_link, host, port, **options)

    def loses(self, peer: BrokerId) -> tuple[bool, bool]:
        """Return whether data to the peer is lost, and whether data from the peer is lost."""
        cuts = self._network.cuts
        return (self._broker, peer) in cuts, (peer, self._broker) in cuts

    def delays(self, peer: BrokerId) -> tuple[float, float]:
        """Return the delays in seconds of data to the peer and of data from the peer."""
        delays = self._network.delays
        return delays.get((self._broker, peer), 0.0), delays.get((peer, self._broker), 0.0)

    def add_link(self, link: Link) -> None:
        self._links.add(link)

    def remove_link(self, link: Link) -> None:
        self._links.discard(link)

    def _on_network_changed(self) -> None:
        """Wait, on another thread, until the current cuts take effect."""
        is_done = threading.Event()
        with suppress(RuntimeError):  # The broker has just stopped.
            self.call_soon_threadsafe(self._apply_cuts, is_done)
        while not is_done.wait(CHECK_SECONDS) and not self.is_closed():
            pass

    def _apply_cuts(self, is_done: threading.Event) -> None:
        for link in list(self._links):
            link.apply_cuts()
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
        self._is_paused = False
        self._sent = DelayedDelivery(loop, self._send)
        self._received = DelayedDelivery(loop, self._on_received)
        self._undelivered: list[bytes] = []
        self._delayed: bytearray | None = None  # Buffer for data that is delivered later.

    def apply_cuts(self) -> None:
        """Hold back or release data according to the current cuts."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        loses_sent, loses_received = self._loop.loses(self._peer)
        if loses_received != self._is_paused:
            self._is_paused = loses_received
            (transport.pause_reading if loses_received else transport.resume_reading)()
        if not loses_sent:
            held, self._held = self._held, []
            for data in held:
                transport.write(data)
        if not loses_received:
            undelivered, self._undelivered = self._undelivered, []
            for data in undelivered:
                self._deliver(data)
        sent_seconds, received_seconds = self._loop.delays(self._peer)
        if not sent_seconds:
            self._sent.flush()
        if not received_seconds:
            self._received.flush()

    # Called by the channel.

    def write(self, data: bytes | memoryview) -> None:
        seconds = self._loop.delays(self._peer)[0]
        if seconds or self._sent:
            self._sent.put(bytes(data), seconds)
        else:
            self._send(data)

    def _send(self, data: bytes | memoryview) -> None:
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
        self._loop.add_link(self)
        self.apply_cuts()
        self._protocol.connection_made(cast(asyncio.Transport, self))

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.remove_link(self)
        self._received.flush()
        self._protocol.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._received or self._undelivered or self._loop.delays(self._peer)[1]:
            self._delayed = bytearray(DELAYED_BYTES)
            return memoryview(self._delayed)
        return cast(memoryview, self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        delayed, self._delayed = self._delayed, None
        if delayed is None:
            self._protocol.buffer_updated(nbytes)
        else:
            self._received.put(bytes(delayed[:nbytes]), self._loop.delays(self._peer)[1])

    def _on_received(self, data: bytes) -> None:
        if self._is_paused or self._undelivered:
            self._undelivered.append(data)
        else:
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining and self._transport is not None and not self._transport.is_closing():
            buffer = cast(memoryview, self._protocol.get_buffer(len(remaining)))
            size = min(len(buffer), len(remaining))
            buffer[:size] = remaining[:size]
            remaining = remaining[size:]
            self._protocol.buffer_updated(size)

    def eof_received(self) -> bool | None:
        self._received.flush()
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
