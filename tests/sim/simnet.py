"""A network in memory: named nodes, the links between them, and who listens where.

Each link goes one way and has a latency drawn from the seed.  One that is cut holds what is sent over it: the sender's
kernel goes on trying.  When the link is healed all of it arrives, in order; if it takes too long, the connections that
had to wait are reset.  A node without power answers nothing; one that has come back resets what it does not know.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from random import Random

from sim.simclock import MILLISECOND_US, SECOND_US, Action, SimClock, SimNode
from sim.simsocket import SimSocket

GIVES_UP_US = 40 * SECOND_US  # Linux takes 15 minutes by default; nobody is to wait for that.
LATENCY_US = (30, 2 * MILLISECOND_US)
SLOW_LATENCY_US = (2 * MILLISECOND_US, 120 * MILLISECOND_US)
SLOW_SHARE = 0.03

Accepted = Callable[[SimSocket], None]


class Link:
    """One way from one node to another."""

    def __init__(self, network: SimNetwork) -> None:
        self._network = network
        self.is_cut = False
        self._held: deque[Action] = deque()
        self._last_us = 0

    def carry(self, arrive: Action) -> None:
        """`arrive` is called when what is sent now has arrived; things arrive in the order in which they were sent."""
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
    """All nodes of one world.  `digest` is of every byte that was ever written to a connection."""

    def __init__(self, clock: SimClock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.digest = hashlib.sha256()
        self.bytes_sent = 0
        self.nodes: dict[str, SimNode] = {}
        self.sockets: dict[SimSocket, None] = {}  # Those that are somebody's, oldest first.
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], tuple[int, Accepted]] = {}  # With the life of the process.
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
        """A socket that will be open, or closed with a reason; until then it holds what is written to it."""
        self._numbers += 1
        socket = SimSocket(self, node, self._numbers, host)
        self.sockets[socket] = None
        self.link(node.name, host).carry(lambda: self._asked(socket, host, port))
        return socket

    def _asked(self, socket: SimSocket, host: str, port: int) -> None:
        """A connection was asked for, at the node that is to have it."""
        node = self.nodes[host]
        if not node.is_up or socket.is_over:
            return  # Nobody answers, or nobody asks any more.
        life, accepted = self._listeners.get((host, port), (-1, _nobody))
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
        """One way; what waits too long for its end makes its connection end."""
        link = self.link(source, target)
        if not link.is_cut:
            link.is_cut = True
            self.clock.after(GIVES_UP_US, lambda: self._give_up(source, target, link))

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
        """Something between the two ends a connection: both hear of it, and of the last bytes some are lost."""
        for end in (socket, socket.peer):
            if end is not None:
                end.lose_last_bytes()
                end.was_closed("reset")

    def process_died(self, node: SimNode) -> None:
        """The kernel closes what a process had open: what it had written still goes out."""
        self._forget(node, SimSocket.close)

    def power_lost(self, node: SimNode) -> None:
        """Its connections are gone without a word."""
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


def _nobody(socket: SimSocket) -> None:
    raise AssertionError("nobody listens")
