"""The simulated network: it carries bytes in order, split anywhere, or reports a failure."""

from __future__ import annotations

from random import Random

import pytest

from sim.simclock import SECOND_US, SimClock, SimNode
from sim.simnet import GIVE_UP_US, SimNetwork
from sim.simsocket import SimSocket

PORT = 9092


class Net:
    """Two nodes, one connection between them, and the events at its ends."""

    def __init__(self, seed: int = 0, *, reads: bool = True) -> None:
        self.clock = SimClock()
        self.network = SimNetwork(self.clock, Random(seed))
        self.client, self.server = (SimNode(self.clock, name, Random(0)) for name in ("client", "server"))
        for node in (self.client, self.server):
            self.network.add(node)
        self.got, self.pieces, self.closings = bytearray(), 0, list[str]()
        self.reads = reads
        self.accepted: SimSocket | None = None
        self.network.listen(self.server, PORT, self._accept)
        self.socket = self.connect()
        self.clock.run_until(SECOND_US)

    def connect(self) -> SimSocket:
        socket = self.network.connect(self.client, "server", PORT)
        socket.on_closed = lambda reason: self.closings.append(f"client {reason}")
        return socket

    def _accept(self, socket: SimSocket) -> None:
        self.accepted = socket
        socket.on_readable = lambda: self.read() if self.reads else None
        socket.on_closed = lambda reason: self.closings.append(f"server {reason}")

    def read(self) -> None:
        assert self.accepted is not None
        self.got += self.accepted.read(1 << 20)
        self.pieces += 1

    def later(self, seconds: int = 1) -> None:
        self.clock.run_until(self.clock.now_us + seconds * SECOND_US)


@pytest.mark.parametrize("seed", range(8))
def test_all_bytes_arrive_in_order(seed: int) -> None:
    net, data = Net(seed), Random(seed).randbytes(1_900)
    for start in range(0, len(data), 190):
        assert net.socket.write(data[start : start + 190]) == 190
    net.socket.close()
    net.later()
    assert bytes(net.got) == data
    assert net.closings == ["server closed"]


def test_pieces_are_cut_anywhere() -> None:
    counts = set[int]()
    for seed in range(20):
        net = Net(seed)
        net.socket.write(bytes(1000))
        net.later()
        counts.add(net.pieces)
    assert len(counts) > 1


def test_a_peer_that_does_not_read_stops_the_writer() -> None:
    net, room = Net(reads=False), list[str]()
    net.socket.on_writable = lambda: room.append("room")
    taken = net.socket.write(bytes(1 << 20))
    assert 0 < taken < 1 << 20
    assert net.socket.write(b"more") == 0
    net.later()
    assert room == []
    net.read()
    net.later()
    assert room == ["room"]
    assert net.socket.write(b"more") == 4


def test_a_connection_without_a_listener_is_refused() -> None:
    net = Net()
    net.network.stop_listening(net.server, PORT)
    net.connect()
    net.later()
    assert net.closings == ["client refused"]


def test_a_reset_loses_last_bytes_only() -> None:
    lengths = set[int]()
    for seed in range(20):
        net, data = Net(seed), bytes(range(200))
        net.socket.write(data)
        net.network.reset(net.socket)
        net.later()
        assert data.startswith(bytes(net.got))
        assert sorted(net.closings) == ["client reset", "server reset"]
        lengths.add(len(net.got))
    assert lengths


def test_a_cut_link_holds_what_is_sent_until_it_is_healed() -> None:
    net = Net()
    net.network.cut("client", "server")
    net.socket.write(b"one")
    assert net.accepted is not None
    got = list[bytes]()
    net.socket.on_readable = lambda: got.append(net.socket.read(10))
    net.accepted.write(b"back")
    net.later(5)
    assert (bytes(net.got), b"".join(got)) == (b"", b"back"), "the other way is open"
    net.network.heal("client", "server")
    net.socket.write(b"two")
    net.later()
    assert bytes(net.got) == b"onetwo"


def test_a_link_that_stays_cut_ends_its_connections() -> None:
    net = Net()
    net.network.cut("client", "server")
    net.socket.write(b"one")
    net.later(GIVE_UP_US // SECOND_US + 1)
    assert net.closings == ["client timed out"]


def test_a_dead_process_closes_and_a_dark_machine_resets() -> None:
    killed, dark = Net(), Net()
    killed.server.end_process()
    killed.network.process_died(killed.server)
    killed.later()
    assert killed.closings == ["client closed"]
    dark.server.lose_power()
    dark.network.power_lost(dark.server)
    dark.socket.write(b"anybody there?")
    dark.later()
    assert dark.closings == []
    dark.server.boot()
    dark.socket.write(b"and now?")
    dark.later()
    assert dark.closings == ["client reset"]


def test_a_paused_node_receives_bytes_later() -> None:
    net = Net()
    net.server.pause()
    net.socket.write(b"one")
    net.later()
    assert not net.got
    net.server.resume()
    net.later()
    assert bytes(net.got) == b"one"
