"""A network in memory: named nodes, the links between them, and their listeners.

Each link is one-way and has a latency drawn from the seed. A cut link holds the data sent over it, since the sender's
kernel retries. When the link is healed, all data arrives in order; if that takes too long, the waiting connections are
reset. A node without power does not respond; after its return it resets unknown connections.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from random import Random

from sim.simclock import MILLISECOND_US, SECOND_US, Action, SimClock, SimNode
from sim.simsocket import SimSocket

GIVE_UP_US = 40 * SECOND_US  # Linux takes 15 minutes by default, which would be too long here.
LATENCY_US = (30, 2 * MILLISECOND_US)
SLOW_LATENCY_US = (2 * MILLISECOND_US, 120 * MILLISECOND_US)
SLOW_SHARE = 0.03

Accepted = Callable[[SimSocket], None]


class Link:
    """One direction from one node to another."""

    def __init__(self, network: SimNetwork) -> None:
        self._network = network
        self.is_cut = False
        self._held: deque[Action] = deque()
        self._last_us = 0

    def carry(self, arrive: Action) -> None:
        """Call `arrive` when data sent now arrives; arrivals are in the order of sending."""
        clock = self._network.clock
        self._last_us = max(self._last_us, clock.now_us + self._network.latency_us())
        clock.at(self._last_us, lambda: self._arrive(arrive))

    def _arrive(self, arrive: Action) -> None:
        if self.is_cut:
            self._held.append(arrive)
        else:
            arrive()

    def heal(self) -> None:
        if self.is_cut:
            self.is_cut = False
            held, self._held = self._held, deque()
            for arrive in held:
                self.carry(arrive)


class SimNetwork:
    """All nodes of one world. `digest` covers every byte ever written to a connection."""

    def __init__(self, clock: SimClock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.digest = hashlib.sha256()
        self.bytes_sent = 0
        self.nodes: dict[str, SimNode] = {}
        self.sockets: dict[SimSocket, None] = {}  # Sockets in use, oldest first.
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], tuple[int, Accepted]] = {}  # Together with the life of the process.
        self._numbers = 0

    def add(self, node: SimNode) -> None:
        assert node.name not in self.nodes, "each node has a name of its own"
        self.nodes[node.name] = node

    def latency_us(self) -> int:
        is_slow = self.random.random() < SLOW_SHARE
        return self.random.randrange(*(SLOW_LATENCY_US if is_slow else LATENCY_US))

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self)
        return link

    # Connections.

    def listen(self, node: SimNode, port: int, accepted: Accepted) -> None:
        self._listeners[node.name, port] = (node.life, accepted)

    def stop_listening(self, node: SimNode, port: int) -> None:
        self._listeners.pop((node.name, port), None)

    def connect(self, node: SimNode, host: str, port: int) -> SimSocket:
        """Return a socket that will open, or close with a reason; until then it holds written data."""
        self._numbers += 1
        socket = SimSocket(self, node, self._numbers, host)
        self.sockets[socket] = None
        self.link(node.name, host).carry(lambda: self._on_connection_request(socket, host, port))
        return socket

    def _on_connection_request(self, socket: SimSocket, host: str, port: int) -> None:
        """Handle a connection request at the node that receives it."""
        node = self.nodes[host]
        if not node.is_up or socket.is_over:
            return  # One of the two ends is gone.
        life, accepted = self._listeners.get((host, port), (-1, _ignore))
        back = self.link(host, socket.node.name)
        if life != node.life:
            back.carry(lambda: socket.was_closed("refused"))
            return
        other = SimSocket(self, node, socket.number, socket.node.name)
        self.sockets[other] = None
        other.join(socket)
        back.carry(socket.was_opened)
        node.soon(lambda: accepted(other))

    # What happens to it.

    def cut(self, source: str, target: str) -> None:
        """Cut one direction; connections that wait too long are reset."""
        link = self.link(source, target)
        if not link.is_cut:
            link.is_cut = True
            self.clock.after(GIVE_UP_US, lambda: self._give_up(source, target, link))

    def heal(self, source: str, target: str) -> None:
        self.link(source, target).heal()

    def heal_all(self) -> None:
        for link in self._links.values():
            link.heal()

    def _give_up(self, source: str, target: str, link: Link) -> None:
        if link.is_cut:
            for socket in self._between(source, target):
                socket.was_closed("timed out")

    def _between(self, source: str, target: str) -> list[SimSocket]:
        return [socket for socket in self.sockets if socket.node.name == source and socket.peer_name == target]

    def sockets_of(self, node: SimNode) -> list[SimSocket]:
        return [socket for socket in self.sockets if socket.node is node]

    def reset(self, socket: SimSocket) -> None:
        """Reset a connection from the outside: both ends notice, and some of the last bytes are lost."""
        for end in (socket, socket.peer):
            if end is not None:
                end.lose_last_bytes()
                end.was_closed("reset")

    def process_died(self, node: SimNode) -> None:
        """Close the connections of a process, as its kernel does: written data is still sent."""
        self._forget(node, SimSocket.close)

    def power_lost(self, node: SimNode) -> None:
        """Drop the node's connections silently."""
        self._forget(node, SimSocket.vanish)

    def _forget(self, node: SimNode, end: Callable[[SimSocket], None]) -> None:
        for port in [port for name, port in self._listeners if name == node.name]:
            self.stop_listening(node, port)
        for socket in self.sockets_of(node):
            end(socket)

    def was_sent(self, socket: SimSocket, data: bytes) -> None:
        self.bytes_sent += len(data)
        self.digest.update(f"{socket.number} {socket.node.name} {len(data)} ".encode())
        self.digest.update(data)


def _ignore(socket: SimSocket) -> None:
    raise AssertionError("nobody listens")
