"""A channel between brokers: requests are sent in order and have one outcome, on real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.channels.channel import Channel, ChannelFull
from odradek.net.channels.channel_connection import ChannelConnection
from odradek.net.channels.channel_requests import FailedRequest, FailureReason, RequestBuilder
from odradek.testing import Broker
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.channel_peer import HOST, Peer, ReceivedRequest, Sent, Writer, answer, channel_to, config, run, until
from support.ports import free_port
from support.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.waits

LOGGER = "odradek.net.channels.channel"


async def nothing(request: ReceivedRequest, writer: Writer) -> None:
    """Read all requests and never respond."""


@pytest.mark.parametrize("in_flight_max", [1, 5])
def test_requests_are_sent_in_order_over_one_connection(in_flight_max: int) -> None:
    async def work() -> None:
        async with Peer() as peer:
            channel = channel_to(peer, in_flight_max=in_flight_max)
            assert peer.connections == 0
            sent = Sent(channel)
            sent.send(20)
            assert await sent.all() == list(range(20))
            sent.send(20)
            assert await sent.all() == list(range(40))
            assert [request.number for request in peer.requests] == list(range(40))
            assert len({request.correlation_id for request in peer.requests}) == 40
            assert {request.client_id for request in peer.requests} == {"broker-1"}
            assert peer.connections == 1
            channel.close()

    run(work)


@pytest.mark.parametrize("in_flight_max", [1, 3])
def test_requests_in_flight_are_limited(in_flight_max: int) -> None:
    async def work() -> None:
        async with Peer(nothing) as peer:
            channel = channel_to(peer, in_flight_max=in_flight_max)
            sent = Sent(channel)
            sent.send(10)
            await until(lambda: len(peer.requests) == in_flight_max)
            await asyncio.sleep(0.05)
            assert sent.built == list(range(in_flight_max))
            channel.close()
            assert len(await sent.all()) == 10

    run(work)


def test_small_requests_are_sent_immediately() -> None:
    async def work() -> None:
        async with Peer() as peer:
            channel = channel_to(peer)
            sent = Sent(channel)
            sent.send()
            await sent.all()
            connection = channel._connection
            assert connection is not None and connection._transport is not None
            used = connection._transport.get_extra_info("socket")
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            channel.close()

    run(work)


def test_callback_is_not_called_within_send_or_close() -> None:
    def unbuildable(version: int) -> object:
        raise ValueError("no such thing")

    async def work() -> None:
        async with Peer() as peer:
            channel = channel_to(peer)
            outcomes: list[object] = []
            bad = RequestBuilder(AllocateProducerIdsRequest, AllocateProducerIdsResponse, unbuildable, 0, 0)
            sent = Sent(channel)
            sent.send()
            await sent.all()
            channel.send(bad, outcomes.append)
            channel.send(bad, outcomes.append)
            assert not outcomes
            await until(lambda: len(outcomes) == 2)
            sent.send()
            channel.close()
            assert len(sent.outcomes) == 1
            channel.send(bad, outcomes.append)  # After the call.
            assert len(outcomes) == 2
            await until(lambda: len(outcomes) == 3)
            await sent.all()
            reasons = [one.reason for one in outcomes if isinstance(one, FailedRequest)]
            assert reasons == [FailureReason.UNSENDABLE, FailureReason.UNSENDABLE, FailureReason.CLOSED]
            assert len(channel) == 0

    run(work)


@pytest.mark.parametrize("retries", [False, True])
def test_unencodable_request_fails_in_its_place(retries: bool) -> None:
    async def work() -> None:
        async with Peer() as peer:
            channel = channel_to(peer, in_flight_max=4, retries=retries)
            outcomes: list[object] = []
            too_large = AllocateProducerIdsRequest(broker_id=1, broker_epoch=2**63)
            right = AllocateProducerIdsRequest(broker_id=1, broker_epoch=7)
            for message in (right, right, too_large, right, too_large, right):
                channel.send(RequestBuilder.of(message, AllocateProducerIdsResponse), outcomes.append)
            await until(lambda: len(outcomes) == 6)
            assert [isinstance(one, FailedRequest) for one in outcomes] == [False, False, True, False, True, False]
            assert peer.connections == 1 and len(peer.requests) == 4
            channel.close()

    run(work)


def test_failed_callback_is_reported_and_the_next_is_called() -> None:
    async def work() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with Peer() as peer:
            channel = channel_to(peer)
            message = AllocateProducerIdsRequest(broker_id=1)
            channel.send(RequestBuilder.of(message, AllocateProducerIdsResponse), lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
            sent = Sent(channel)
            sent.send(3)
            assert await sent.all() == [0, 1, 2]
            assert [type(context["exception"]) for context in errors] == [ZeroDivisionError]
            errors.clear()  # Its traceback references the connection.
            channel.close()

    run(work)


def test_callback_may_send_and_close() -> None:
    async def work() -> None:
        async with Peer() as peer:
            channel = channel_to(peer)
            outcomes: list[object] = []

            def again(outcome: AllocateProducerIdsResponse | FailedRequest) -> None:
                outcomes.append(outcome)
                if len(outcomes) < 5:
                    channel.send(builder, again)
                else:
                    channel.close()

            builder = RequestBuilder.of(AllocateProducerIdsRequest(broker_id=1), AllocateProducerIdsResponse)
            channel.send(builder, again)
            channel.send(builder, again)
            await until(lambda: len(outcomes) == 6)
            assert [isinstance(one, FailedRequest) for one in outcomes] == [False] * 5 + [True]

    run(work)


def test_at_most_ten_thousand_requests_wait() -> None:
    async def work() -> None:
        async with Peer(nothing) as peer:
            channel = channel_to(peer, queued_max=10_000)
            sent = Sent(channel)
            sent.send(10_000)
            with pytest.raises(
                ChannelFull, match=r"queue of requests to broker 2 at 127\.0\.0\.1:[0-9]+ is full: 10000"
            ):
                sent.send()
            await until(lambda: peer.requests)
            assert sent.built == [0]  # The others wait as values.
            assert len(channel) == 10_000
            channel.close()
            outcomes = await sent.all()
            assert {one.reason for one in outcomes if isinstance(one, FailedRequest)} == {FailureReason.CLOSED}
            assert len(outcomes) == 10_000

    run(work)


def test_ten_thousand_requests_complete_in_order() -> None:
    async def work() -> None:
        async with Peer() as peer:
            channel = channel_to(peer, in_flight_max=100)
            sent = Sent(channel)
            sent.send(10_000)
            assert await sent.all() == list(range(10_000))
            channel.close()

    run(work)


@pytest.mark.parametrize("in_flight_max", [1, 5])
def test_closed_retrying_channel_reports_nothing_more(in_flight_max: int) -> None:
    async def work() -> None:
        async with Peer(nothing) as peer:
            channel = channel_to(peer, retries=True, in_flight_max=in_flight_max)
            sent = Sent(channel)
            sent.send(10)
            await until(lambda: len(peer.requests) == in_flight_max)
            channel.close()
            sent.send()
            channel.close()
            await asyncio.sleep(0.05)
            assert not sent.outcomes and len(channel) == 0

    run(work)


@pytest.mark.parametrize("retries", [False, True])
def test_channel_can_be_closed_while_connecting_or_backing_off(retries: bool) -> None:
    async def work() -> None:
        unused = Endpoint("PLAINTEXT", HOST, free_port())
        for turns in range(10):
            channel = Channel(asyncio.get_running_loop(), unused, config(retries=retries), name="broker 2")
            sent = Sent(channel)
            sent.send(2)
            for _ in range(turns):
                await asyncio.sleep(0)
            channel.close()
            if not retries:
                assert len(await sent.all()) == 2

    run(work)


def test_unreachable_peer_fails_waiting_requests_and_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    async def work() -> None:
        port = free_port()
        channel = Channel(asyncio.get_running_loop(), Endpoint("PLAINTEXT", HOST, port), config(), name="broker 2")
        sent = Sent(channel)
        sent.send(3)
        assert await sent.all() == [FailedRequest(FailureReason.CANNOT_CONNECT, "connection refused")] * 3
        sent.send()
        await sent.all()
        async with Peer(port=port):
            sent.send()
            assert (await sent.all())[-1] == 4
            channel.close()
        where = f"broker 2 at 127.0.0.1:{port}"
        assert [record.getMessage() for record in caplog.records] == [
            f"{where} is unavailable: connection refused; 3 requests failed",
            f"{where} is available again",
        ]

    run(work)


def test_peer_that_starts_later_gets_all_waiting_requests(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    drawn: list[int] = []

    def draw() -> float:
        drawn.append(1)
        return 0.5

    async def work() -> None:
        port = free_port()
        endpoint = Endpoint("PLAINTEXT", HOST, port)
        channel = Channel(
            asyncio.get_running_loop(), endpoint, config(retries=True, in_flight_max=2), name="broker 2", draw=draw
        )
        sent = Sent(channel)
        sent.send(3)
        await until(lambda: len(drawn) > 5)
        assert not sent.outcomes and not sent.built
        async with Peer(port=port):
            assert await sent.all() == [0, 1, 2]
            assert channel._failures == 0  # The next backoff is the initial one.
            channel.close()
        where = f"broker 2 at 127.0.0.1:{port}"
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ("WARNING", f"{where} is unavailable: connection refused; 3 requests queued"),
            ("INFO", f"{where} is available again"),
        ]

    run(work)


def test_backoff_doubles_up_to_its_bound_and_resets_after_a_response() -> None:
    async def work() -> None:
        endpoint = Endpoint("PLAINTEXT", HOST, 1)
        channel = Channel(
            asyncio.get_running_loop(),
            endpoint,
            config(backoff_ms=50, backoff_ms_max=1_000),
            name="broker 2",
            draw=lambda: 0.5,
        )
        seconds = [channel._backoff_seconds() for _ in range(100)]
        assert seconds[:6] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])
        assert set(seconds[6:]) == {seconds[5]}
        channel.close()

    run(work)


def test_request_during_a_backoff_waits_for_its_end() -> None:
    async def closes(request: ReceivedRequest, writer: Writer) -> None:
        writer.close()

    async def work() -> None:
        async with Peer(closes) as peer:
            channel = channel_to(peer, retries=True, backoff_ms=3_600_000, backoff_ms_max=3_600_000)
            sent = Sent(channel)
            sent.send()
            await until(lambda: channel._backoff is not None)
            sent.send(3)
            await asyncio.sleep(0.05)
            assert peer.connections == 1 and sent.built == [0]
            channel.close()

    run(work)


@pytest.mark.parametrize("host", ["x" * 70 + ".example", "a..b", ""])
def test_unresolvable_host_is_unreachable(host: str) -> None:
    async def work() -> None:
        # An empty name is loopback, where no peer listens either.
        channel = Channel(
            asyncio.get_running_loop(), Endpoint("PLAINTEXT", host, free_port()), config(), name="broker 2"
        )
        sent = Sent(channel)
        sent.send(2)
        assert [one.reason for one in await sent.all() if isinstance(one, FailedRequest)] == [
            FailureReason.CANNOT_CONNECT
        ] * 2
        channel.close()

    run(work)


def test_connection_to_a_peer_that_does_not_accept_times_out() -> None:
    async def work() -> None:
        with socket.socket() as full:
            full.bind((HOST, 0))
            full.listen(0)
            address = full.getsockname()
            taken = []
            for _ in range(4):  # Then the system accepts no connection.
                taken.append(socket.socket())
                taken[-1].setblocking(False)
                taken[-1].connect_ex(address)
            channel = Channel(
                asyncio.get_running_loop(),
                Endpoint("PLAINTEXT", *address),
                config(connect_timeout_ms=100),
                name="broker 2",
            )
            sent = Sent(channel)
            sent.send()
            assert await sent.all() == [FailedRequest(FailureReason.CANNOT_CONNECT, "timed out")]
            channel.close()
            channel = Channel(
                asyncio.get_running_loop(),
                Endpoint("PLAINTEXT", *address),
                config(connect_timeout_ms=3_600_000),
                name="broker 2",
            )
            tasks = asyncio.all_tasks()
            sent = Sent(channel)
            sent.send()
            await asyncio.sleep(0.02)
            channel.close()  # While it connects.
            await sent.all()
            await until(lambda: asyncio.all_tasks() == tasks)
            for one in taken:
                one.close()

    run(work)


def test_connection_to_itself_is_refused() -> None:
    """TCP simultaneous open: a client that connects from the destination port is its own peer."""

    class Owner:
        def __init__(self) -> None:
            self.lost_by: list[FailedRequest] = []

        def on_opened(self) -> None: ...

        def on_response(self, pending: object, frame: object) -> None: ...

        def on_writable(self) -> None: ...

        def on_lost(self, failed: FailedRequest) -> None:
            self.lost_by.append(failed)

    async def work() -> None:
        loop, owner = asyncio.get_running_loop(), Owner()
        mirror = socket.socket()
        mirror.bind((HOST, 0))
        mirror.connect(mirror.getsockname())
        await loop.create_connection(lambda: ChannelConnection(loop, owner, config()), sock=mirror)
        await asyncio.sleep(0.01)
        assert owner.lost_by == [FailedRequest(FailureReason.CANNOT_CONNECT, "connection refused")]

    run(work)


def test_next_request_replaces_a_lost_idle_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def once(request: ReceivedRequest, writer: Writer) -> None:
        await answer(request, writer)
        writer.close()

    async def work() -> None:
        async with Peer(once) as peer:
            channel = channel_to(peer)
            sent = Sent(channel)
            for number in range(3):
                sent.send()
                assert (await sent.all())[-1] == number
                await until(lambda: channel._connection is None)
            assert peer.connections == 3
            channel.close()
        assert not caplog.records

    run(work)


# Versions.


def check_versions(
    behave: Callable[[ReceivedRequest, Writer], Any], check: Callable[[Peer, Sent], Any], **keywords: Any
) -> None:
    async def work() -> None:
        async with Peer(behave) as peer:
            channel = channel_to(peer, discovers_versions=True, **keywords)
            sent = Sent(channel)
            sent.send(3)
            await check(peer, sent)
            channel.close()

    run(work)


def test_api_versions_are_requested_once_per_connection() -> None:
    async def check(peer: Peer, sent: Sent) -> None:
        assert await sent.all() == [0, 1, 2]
        assert [(request.api_key, request.version) for request in peer.requests] == [(18, 3)] + [(67, 0)] * 3
        assert peer.requests[0].software() == "odradek"

    check_versions(answer, check)


def test_api_versions_falls_back_to_version_0() -> None:
    async def old(request: ReceivedRequest, writer: Writer) -> None:
        if request.api_key == 18 and request.version:
            writer.write(request.versions_frame(error=35, version=0))
        else:
            await answer(request, writer)

    async def check(peer: Peer, sent: Sent) -> None:
        assert await sent.all() == [0, 1, 2]
        assert [(request.api_key, request.version) for request in peer.requests] == [(18, 3), (18, 0)] + [(67, 0)] * 3

    check_versions(old, check)


@pytest.mark.parametrize("retries", [False, True])
def test_unsupported_version_fails_with_a_reason(retries: bool) -> None:
    async def older(request: ReceivedRequest, writer: Writer) -> None:
        writer.write(request.versions_frame(highest=-1))

    async def check(peer: Peer, sent: Sent) -> None:
        assert [one.reason for one in await sent.all() if isinstance(one, FailedRequest)] == [
            FailureReason.UNSUPPORTED_VERSION
        ] * 3
        assert set(sent.texts()) == {"the broker does not support AllocateProducerIds; versions 0 to 0 are required"}
        assert peer.connections == 1

    check_versions(older, check, retries=retries)


def test_refused_api_versions_fails_all_requests() -> None:
    async def refusing(request: ReceivedRequest, writer: Writer) -> None:
        writer.write(request.versions_frame(error=42))

    async def check(peer: Peer, sent: Sent) -> None:
        assert [one.reason for one in await sent.all() if isinstance(one, FailedRequest)] == [
            FailureReason.INVALID_RESPONSE
        ] * 3

    check_versions(refusing, check)


# Brokers.


def test_channel_works_across_restarts_of_the_broker() -> None:
    async def work() -> None:
        with Broker() as broker:
            channel = Channel(
                asyncio.get_running_loop(),
                Endpoint("PLAINTEXT", HOST, broker.port),
                config(retries=True, discovers_versions=True),
                name="broker 1",
            )
            outcomes: list[MetadataResponse | FailedRequest] = []
            builder = RequestBuilder.of(MetadataRequest(topics=[]), MetadataResponse)
            for end in (broker.stop, broker.kill, broker.stop):
                channel.send(builder, outcomes.append)
                await until(lambda: outcomes)
                await asyncio.to_thread(end)
                channel.send(builder, outcomes.append)
                await asyncio.to_thread(broker.start)
                await until(lambda: len(outcomes) == 2)
                for one in outcomes:
                    assert isinstance(one, MetadataResponse)
                    assert [found.port for found in one.brokers] == [broker.port]
                outcomes.clear()
            channel.close()

    run(work)


@pytest.mark.parametrize("version", [2, 7])
def test_ten_thousand_partitions_are_sent_in_one_request(version: int) -> None:
    def partition(index: int) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            topic_name="t",
            partition_index=index,
            controller_epoch=1,
            leader=1,
            leader_epoch=2,
            isr=[1, 2, 3],
            partition_epoch=4,
            replicas=[1, 2, 3],
        )

    def build(version: int) -> LeaderAndIsrRequest:
        states = [LeaderAndIsrTopicState(topic_name="t", partition_states=list(map(partition, range(10_000))))]
        return LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=states, live_leaders=[])

    async def work() -> None:
        with ScriptedBroker() as broker:
            broker.versions[4] = (0, version)
            broker.on(LeaderAndIsrRequest, lambda request, version: LeaderAndIsrResponse(error_code=0))
            channel = Channel(
                asyncio.get_running_loop(),
                Endpoint("PLAINTEXT", HOST, broker.port),
                config(discovers_versions=True),
                name="broker 1",
            )
            outcomes: list[LeaderAndIsrResponse | FailedRequest] = []
            builder = RequestBuilder(LeaderAndIsrRequest, LeaderAndIsrResponse, build, 0, 7)
            channel.send(builder, outcomes.append)
            await until(lambda: outcomes)
            assert isinstance(outcomes[0], LeaderAndIsrResponse)
            (seen,) = broker.seen
            assert [one.partition_index for one in seen.topic_states[0].partition_states] == list(range(10_000))
            channel.close()

    run(work)
