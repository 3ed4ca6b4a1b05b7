"""The connections that a test's broker makes to others, which a partition cuts as a network that drops packets does.

    channel ── create_connection ──> LinkedLoop ──> Link ── write, held back while cut ──────> socket
    channel <── buffer_updated ─────────────────── Link <── not read while cut ────────────── socket

Both directions are cut where the connection was made, below the broker's channels and above the socket; those who
made none, as clients, are not touched.  To connect takes as long as the partition, or until who connects gives up.
What was held back is sent when the partition is healed, unless its connection was closed before: then it is lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import uvloop

from odradek.base.units import BrokerId
from odradek.testing.network import Network

LOOK_SECONDS = 0.05


class LinkedLoop(uvloop.Loop):
    """One broker's loop, whose connections to the other brokers of the network can be cut."""

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
        if peer is None:  # Nobody of this cluster.
            return await super().create_connection(protocol_factory, host, port, **options)
        while self._network.is_cut(self._broker, peer):
            await self._healed.wait()

        def made() -> Link:
            protocol = protocol_factory()
            assert isinstance(protocol, asyncio.BufferedProtocol), "channels read into buffers of their own"
            return Link(protocol, self, peer)

        return await super().create_connection(made, host, port, **options)

    def loses(self, peer: BrokerId) -> tuple[bool, bool]:
        """Returns whether what is sent to the peer is lost, and what comes from it."""
        cuts = self._network.cuts
        return (self._broker, peer) in cuts, (peer, self._broker) in cuts

    def opened(self, link: Link) -> None:
        self._links.add(link)

    def closed(self, link: Link) -> None:
        self._links.discard(link)

    def _partitioned(self) -> None:
        """Waits, in another thread, until the cuts of now are in force."""
        is_done = threading.Event()
        with suppress(RuntimeError):  # Its broker has just ended.
            self.call_soon_threadsafe(self._change, is_done)
        while not is_done.wait(LOOK_SECONDS) and not self.is_closed():
            pass

    def _change(self, is_done: threading.Event) -> None:
        for link in list(self._links):
            link.change()
        self._healed.set()  # Those who wait look again.
        self._healed = asyncio.Event()
        is_done.set()


class Link(asyncio.BufferedProtocol):
    """One connection: the loop's protocol, and what the channel's protocol takes for its transport."""

    def __init__(self, protocol: asyncio.BufferedProtocol, loop: LinkedLoop, peer: BrokerId) -> None:
        self._protocol = protocol
        self._loop = loop
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._is_deaf = False

    def change(self) -> None:
        """Holds back and lets go what the cuts of now say."""
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

    # The channel's side.

    def write(self, data: bytes | memoryview) -> None:
        transport = self._transport
        assert transport is not None
        if self._held or self._loop.loses(self._peer)[0]:
            self._held.append(bytes(data))
        else:
            transport.write(data)

    def __getattr__(self, name: str) -> Any:
        """Returns everything else of the transport."""
        return getattr(self._transport, name)

    # The loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop.opened(self)
        self.change()
        self._protocol.connection_made(cast(asyncio.Transport, self))

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.closed(self)
        self._protocol.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        return cast(memoryview, self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
