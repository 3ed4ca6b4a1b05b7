"""Connections that open and close, as seen from outside the broker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from odradek.net.clients.client_connection import ClientConnection
from odradek.testing import Broker
from support.asking import LEADER, created, produced
from support.raw_client import RawClient
from support.waiting import until

COUNT = 200


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def connections_in_memory(broker: Broker) -> int:
    """Count this broker's connections; others in this process belong to brokers of other tests."""
    return sum(isinstance(one, ClientConnection) and one._peer.local.port == broker.port for one in gc.get_objects())


def test_a_closed_connection_leaves_no_garbage_for_the_collector() -> None:
    """Otherwise thousands that close at once would later stop the loop for a third of a second."""
    with Broker() as broker, no_collector():
        with ExitStack() as clients:
            first = clients.enter_context(RawClient(broker.port))
            created(first, "t")
            for _ in range(COUNT):
                assert produced(clients.enter_context(RawClient(broker.port)), "t", b"x", acks=LEADER) >= 0
            assert connections_in_memory(broker) == COUNT + 1
        until(lambda: connections_in_memory(broker) == 0)


def test_a_connection_closed_for_invalid_bytes_leaves_no_garbage() -> None:
    """An exception closes it, and an exception holds all the frames that it passed."""
    with Broker() as broker, no_collector():
        for _ in range(COUNT):
            with RawClient(broker.port) as client:
                client.send(b"\xff" * 50)
                assert client.is_closed()
        until(lambda: connections_in_memory(broker) == 0)
