"""Channels to other brokers, at the endpoints announced by the controller, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, Endpoint
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from support.channel_peer import HOST, Peer, ReceivedRequest, Writer, answer, run, until
from support.ports import free_port

pytestmark = pytest.mark.waits

US, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
INTERNAL = "INTERNAL"


def request(number: int) -> RequestBuilder[AllocateProducerIdsResponse]:
    message = AllocateProducerIdsRequest(broker_id=US, broker_epoch=number)
    return RequestBuilder.of(message, AllocateProducerIdsResponse, 0)


def at(peer: Peer, listener: str = "PLAINTEXT") -> Endpoint:
    return Endpoint(listener, HOST, peer.port)


class Requester:
    """One broker's channels, and the responses in order."""

    def __init__(self, brokers: Mapping[BrokerId, tuple[Endpoint, ...]], listener: str = "PLAINTEXT") -> None:
        self.view = ClusterView("cluster")
        self.channels = BrokerChannels(asyncio.get_running_loop(), f"broker-{US}", self.view, listener, None)
        self.outcomes: list[int | ErrorCode] = []
        self.set_brokers(brokers)

    def set_brokers(self, brokers: Mapping[BrokerId, tuple[Endpoint, ...]]) -> None:
        self.view.brokers = {broker: BrokerInfo(broker, endpoints) for broker, endpoints in brokers.items()}
        self.channels.close_stale()

    def send(self, broker: BrokerId, number: int) -> None:
        before = len(self.outcomes)
        self.channels.send_request(broker, request(number), self._ended)
        assert len(self.outcomes) == before, "never at once"

    async def answered(self, count: int) -> list[int | ErrorCode]:
        await until(lambda: len(self.outcomes) >= count)
        return self.outcomes

    def _ended(self, outcome: AllocateProducerIdsResponse | Refused) -> None:
        self.outcomes.append(outcome.code if isinstance(outcome, Refused) else outcome.producer_id_start)


def test_each_broker_has_its_own_channel() -> None:
    async def work() -> None:
        async with Peer() as one, Peer() as two:
            requester = Requester({OTHER: (at(one),), THIRD: (at(two),)})
            for number in range(6):
                requester.send(OTHER if number % 2 else THIRD, number)
            assert sorted(await requester.answered(6), key=int) == list(range(6))
            assert [received.number for received in one.requests] == [1, 3, 5]
            assert [received.number for received in two.requests] == [0, 2, 4]
            assert one.connections == two.connections == 1
            assert {received.client_id for received in one.requests} == {"broker-1"}
            requester.channels.close()

    run(work)


def test_channel_uses_the_inter_broker_listener() -> None:
    async def work() -> None:
        async with Peer() as inner, Peer() as outer:
            named = {OTHER: (at(outer), at(inner, INTERNAL)), THIRD: (at(outer),)}
            requester = Requester(named, INTERNAL)
            requester.send(OTHER, 1)
            assert await requester.answered(1) == [1]
            assert inner.connections == 1
            assert outer.connections == 0
            requester.send(THIRD, 2)  # It has no such listener.
            assert await requester.answered(2) == [1, 2]
            assert outer.connections == 1
            requester.channels.close()

    run(work)


def test_request_to_an_unknown_broker_fails() -> None:
    async def work() -> None:
        async with Peer() as peer:
            requester = Requester({OTHER: (), THIRD: (at(peer),)})
            requester.send(OTHER, 1)  # Its endpoint is unknown.
            requester.send(BrokerId(-1), 2)
            requester.send(THIRD, 3)
            unavailable = ErrorCode.BROKER_NOT_AVAILABLE
            assert await requester.answered(3) == [unavailable, unavailable, 3]
            requester.channels.close()

    run(work)


def test_next_request_retries_an_unreachable_broker() -> None:
    async def work() -> None:
        port = free_port()
        requester = Requester({OTHER: (Endpoint("PLAINTEXT", HOST, port),)})
        requester.send(OTHER, 1)
        assert await requester.answered(1) == [ErrorCode.NETWORK_EXCEPTION]
        async with Peer(port=port):
            requester.send(OTHER, 2)
            assert await requester.answered(2) == [ErrorCode.NETWORK_EXCEPTION, 2]
            requester.channels.close()

    run(work)


def test_moved_broker_gets_requests_at_its_new_endpoint() -> None:
    async def silent(received: ReceivedRequest, writer: Writer) -> None:
        """Read all requests and never respond."""

    async def work() -> None:
        async with Peer(silent) as before, Peer() as after:
            requester = Requester({OTHER: (at(before),)})
            requester.send(OTHER, 1)
            await until(lambda: before.requests)
            requester.set_brokers({OTHER: (at(after),)})
            await until(lambda: not before.open)
            requester.send(OTHER, 2)
            assert sorted(await requester.answered(2)) == [2, ErrorCode.NETWORK_EXCEPTION]
            requester.channels.close()

    run(work)


def test_channel_to_a_removed_broker_is_closed() -> None:
    async def work() -> None:
        async with Peer() as one, Peer() as two:
            requester = Requester({OTHER: (at(one),), THIRD: (at(two),)})
            requester.send(OTHER, 1)
            requester.send(THIRD, 2)
            assert sorted(await requester.answered(2)) == [1, 2]
            requester.set_brokers({THIRD: (at(two),)})
            await until(lambda: not one.open)
            assert two.open
            requester.send(OTHER, 3)
            assert (await requester.answered(3))[-1] == ErrorCode.BROKER_NOT_AVAILABLE
            requester.channels.close()

    run(work)


def test_close_fails_waiting_requests() -> None:
    async def never(received: ReceivedRequest, writer: Writer) -> None:
        if received.number == 1:
            await answer(received, writer)

    async def work() -> None:
        async with Peer(never) as peer:
            requester = Requester({OTHER: (at(peer),)})
            for number in (1, 2, 3):
                requester.send(OTHER, number)
            await until(lambda: len(peer.requests) == 2)
            requester.channels.close()
            lost = ErrorCode.NETWORK_EXCEPTION
            assert await requester.answered(3) == [1, lost, lost]

    run(work)


def test_requests_beyond_the_queue_limit_are_refused() -> None:
    async def silent(received: ReceivedRequest, writer: Writer) -> None:
        """Read all requests and never respond."""

    async def work() -> None:
        async with Peer(silent) as peer:
            requester = Requester({OTHER: (at(peer),)})
            room = requester.channels._config.queued_max
            for number in range(room + 5):
                requester.send(OTHER, number)
            assert await requester.answered(5) == [ErrorCode.NETWORK_EXCEPTION] * 5
            requester.channels.close()
            assert len(await requester.answered(room + 5)) == room + 5

    run(work)
