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
from support.channel_peer import HOST, Asked, Peer, Writer, answer, run, until
from support.ports import free_port

pytestmark = pytest.mark.waits

US, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
INTERNAL = "INTERNAL"


def request(number: int) -> RequestBuilder[AllocateProducerIdsResponse]:
    message = AllocateProducerIdsRequest(broker_id=US, broker_epoch=number)
    return RequestBuilder.of(message, AllocateProducerIdsResponse, 0)


def at(peer: Peer, listener: str = "PLAINTEXT") -> Endpoint:
    return Endpoint(listener, HOST, peer.port)


class Asking:
    """One broker's channels, and the responses in order."""

    def __init__(self, brokers: Mapping[BrokerId, tuple[Endpoint, ...]], listener: str = "PLAINTEXT") -> None:
        self.view = ClusterView("cluster")
        self.channels = BrokerChannels(asyncio.get_running_loop(), f"broker-{US}", self.view, listener, None)
        self.outcomes: list[int | ErrorCode] = []
        self.tell(brokers)

    def tell(self, brokers: Mapping[BrokerId, tuple[Endpoint, ...]]) -> None:
        self.view.brokers = {broker: BrokerInfo(broker, endpoints) for broker, endpoints in brokers.items()}
        self.channels.close_stale()

    def ask(self, broker: BrokerId, number: int) -> None:
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
            asking = Asking({OTHER: (at(one),), THIRD: (at(two),)})
            for number in range(6):
                asking.ask(OTHER if number % 2 else THIRD, number)
            assert sorted(await asking.answered(6), key=int) == list(range(6))
            assert [asked.number for asked in one.asked] == [1, 3, 5]
            assert [asked.number for asked in two.asked] == [0, 2, 4]
            assert one.connections == two.connections == 1
            assert {asked.client_id for asked in one.asked} == {"broker-1"}
            asking.channels.close()

    run(work)


def test_channel_uses_the_inter_broker_listener() -> None:
    async def work() -> None:
        async with Peer() as inner, Peer() as outer:
            named = {OTHER: (at(outer), at(inner, INTERNAL)), THIRD: (at(outer),)}
            asking = Asking(named, INTERNAL)
            asking.ask(OTHER, 1)
            assert await asking.answered(1) == [1]
            assert inner.connections == 1
            assert outer.connections == 0
            asking.ask(THIRD, 2)  # It has no such listener.
            assert await asking.answered(2) == [1, 2]
            assert outer.connections == 1
            asking.channels.close()

    run(work)


def test_request_to_an_unknown_broker_fails() -> None:
    async def work() -> None:
        async with Peer() as peer:
            asking = Asking({OTHER: (), THIRD: (at(peer),)})
            asking.ask(OTHER, 1)  # Its endpoint is unknown.
            asking.ask(BrokerId(-1), 2)
            asking.ask(THIRD, 3)
            gone = ErrorCode.BROKER_NOT_AVAILABLE
            assert await asking.answered(3) == [gone, gone, 3]
            asking.channels.close()

    run(work)


def test_next_request_retries_an_unreachable_broker() -> None:
    async def work() -> None:
        port = free_port()
        asking = Asking({OTHER: (Endpoint("PLAINTEXT", HOST, port),)})
        asking.ask(OTHER, 1)
        assert await asking.answered(1) == [ErrorCode.NETWORK_EXCEPTION]
        async with Peer(port=port):
            asking.ask(OTHER, 2)
            assert await asking.answered(2) == [ErrorCode.NETWORK_EXCEPTION, 2]
            asking.channels.close()

    run(work)


def test_moved_broker_gets_requests_at_its_new_endpoint() -> None:
    async def silent(asked: Asked, writer: Writer) -> None:
        """Read all requests and never respond."""

    async def work() -> None:
        async with Peer(silent) as before, Peer() as after:
            asking = Asking({OTHER: (at(before),)})
            asking.ask(OTHER, 1)
            await until(lambda: before.asked)
            asking.tell({OTHER: (at(after),)})
            await until(lambda: not before.open)
            asking.ask(OTHER, 2)
            assert sorted(await asking.answered(2)) == [2, ErrorCode.NETWORK_EXCEPTION]
            asking.channels.close()

    run(work)


def test_channel_to_a_removed_broker_is_closed() -> None:
    async def work() -> None:
        async with Peer() as one, Peer() as two:
            asking = Asking({OTHER: (at(one),), THIRD: (at(two),)})
            asking.ask(OTHER, 1)
            asking.ask(THIRD, 2)
            assert sorted(await asking.answered(2)) == [1, 2]
            asking.tell({THIRD: (at(two),)})
            await until(lambda: not one.open)
            assert two.open
            asking.ask(OTHER, 3)
            assert (await asking.answered(3))[-1] == ErrorCode.BROKER_NOT_AVAILABLE
            asking.channels.close()

    run(work)


def test_close_fails_waiting_requests() -> None:
    async def never(asked: Asked, writer: Writer) -> None:
        if asked.number == 1:
            await answer(asked, writer)

    async def work() -> None:
        async with Peer(never) as peer:
            asking = Asking({OTHER: (at(peer),)})
            for number in (1, 2, 3):
                asking.ask(OTHER, number)
            await until(lambda: len(peer.asked) == 2)
            asking.channels.close()
            lost = ErrorCode.NETWORK_EXCEPTION
            assert await asking.answered(3) == [1, lost, lost]

    run(work)


def test_requests_beyond_the_queue_limit_are_refused() -> None:
    async def silent(asked: Asked, writer: Writer) -> None:
        """Read all requests and never respond."""

    async def work() -> None:
        async with Peer(silent) as peer:
            asking = Asking({OTHER: (at(peer),)})
            room = asking.channels._config.queued_max
            for number in range(room + 5):
                asking.ask(OTHER, number)
            assert await asking.answered(5) == [ErrorCode.NETWORK_EXCEPTION] * 5
            asking.channels.close()
            assert len(await asking.answered(room + 5)) == room + 5

    run(work)
