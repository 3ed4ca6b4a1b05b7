"""Misbehaving peers: each request still has one outcome, in order, and memory is bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
from random import Random
from typing import NamedTuple

import pytest

from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.channels.channel import Channel
from odradek.net.channels.channel_requests import FailedRequest, FailureReason, RequestBuilder
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from support.channel_peer import (
    HOST,
    Behaviour,
    Peer,
    ReceivedRequest,
    Sent,
    Writer,
    answer,
    channel_to,
    config,
    reset,
    run,
    until,
)

pytestmark = pytest.mark.waits

LOGGER = "odradek.net.channels.channel"
TIMEOUT_MS = 100  # Timeout for peers that never respond.


async def sends_nothing(request: ReceivedRequest, writer: Writer) -> None:
    await request.until_closed()


async def closes(request: ReceivedRequest, writer: Writer) -> None:
    writer.close()


async def resets(request: ReceivedRequest, writer: Writer) -> None:
    reset(writer)


async def closes_in_the_middle(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(request.frame()[:-3])
    writer.close()


async def closes_in_the_length(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(request.frame()[:2])
    writer.close()


async def answers_half(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(request.frame()[:-3])
    await request.until_closed()


async def dribbles(request: ReceivedRequest, writer: Writer) -> None:
    """Send one byte at a time of a response that takes hours."""
    writer.write((1 << 20).to_bytes(4) + request.correlation_id.to_bytes(4))
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.005)


async def answers_another(request: ReceivedRequest, writer: Writer) -> None:
    frame = request.frame()
    writer.write(frame[:4] + (request.correlation_id + 1).to_bytes(4) + frame[8:])


async def announces_a_lot(request: ReceivedRequest, writer: Writer) -> None:
    writer.write((100 * 1024 * 1024 + 1).to_bytes(4) + bytes(100))


async def sends_http(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def announces_less_than_nothing(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(b"\xff" * 100)


async def announces_too_little(request: ReceivedRequest, writer: Writer) -> None:
    writer.write((3).to_bytes(4) + bytes(100))


async def cuts_the_body(request: ReceivedRequest, writer: Writer) -> None:
    frame = request.frame()
    writer.write((len(frame) - 4 - 8).to_bytes(4) + frame[4:-8])


class Bad(NamedTuple):
    behave: Behaviour
    reason: FailureReason
    text: str


LOST, OVER, INVALID = FailureReason.CONNECTION_LOST, FailureReason.TIMED_OUT, FailureReason.INVALID_RESPONSE
CLOSED_TEXT, OVER_TEXT = "the connection was closed", f"no response within {TIMEOUT_MS} ms"
BAD = [
    Bad(sends_nothing, OVER, OVER_TEXT),
    Bad(closes, LOST, CLOSED_TEXT),
    Bad(resets, LOST, "connection reset by peer"),
    Bad(closes_in_the_middle, LOST, CLOSED_TEXT),
    Bad(closes_in_the_length, LOST, CLOSED_TEXT),
    Bad(answers_half, OVER, OVER_TEXT),
    Bad(dribbles, OVER, OVER_TEXT),
    Bad(answers_another, INVALID, "correlation id 2 does not match the oldest request in flight"),
    Bad(announces_a_lot, INVALID, "a response of 104857601 bytes exceeds the limit of 104857600 bytes"),
    Bad(sends_http, INVALID, "a response of 1213486160 bytes"),
    Bad(announces_less_than_nothing, INVALID, "a response of -1 bytes"),
    Bad(announces_too_little, INVALID, "a response of 3 bytes"),
    Bad(cuts_the_body, INVALID, "AllocateProducerIdsResponse is truncated"),
]


def timeout_ms(bad: Bad) -> int:
    """Return a short timeout only where it ends a request: on a busy machine a good peer is late too."""
    return TIMEOUT_MS if bad.reason is OVER else 60_000


BY_NAME = pytest.mark.parametrize("bad", BAD, ids=[bad.behave.__name__ for bad in BAD])
IN_FLIGHT = pytest.mark.parametrize("in_flight_max", [1, 3])


@BY_NAME
@IN_FLIGHT
def test_each_request_fails_once_with_the_reason(bad: Bad, in_flight_max: int) -> None:
    async def work() -> None:
        async def at_first(request: ReceivedRequest, writer: Writer) -> None:
            await (answer if request.connection else bad.behave)(request, writer)

        async with Peer(at_first) as peer:
            channel = channel_to(peer, request_timeout_ms=timeout_ms(bad), in_flight_max=in_flight_max)
            sent = Sent(channel)
            sent.send(5)
            outcomes = await sent.all()
            assert {one.reason for one in outcomes if isinstance(one, FailedRequest)} == {bad.reason}
            assert len(sent.texts()) == 5 and all(bad.text in text for text in sent.texts())
            sent.send()
            await until(lambda: len(sent.outcomes) == 6)
            if bad.reason is not FailureReason.TIMED_OUT:
                assert (await sent.all())[-1] == 5
            channel.close()

    run(work)


@BY_NAME
@IN_FLIGHT
def test_requests_are_resent_until_they_are_answered(
    bad: Bad, in_flight_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    async def work() -> None:
        async def at_first(request: ReceivedRequest, writer: Writer) -> None:
            await (answer if request.connection > 1 else bad.behave)(request, writer)

        async with Peer(at_first) as peer:
            channel = channel_to(peer, retries=True, request_timeout_ms=timeout_ms(bad), in_flight_max=in_flight_max)
            sent = Sent(channel)
            sent.send(5)
            assert await sent.all() == list(range(5))
            for connection in range(peer.connections):
                numbers = [request.number for request in peer.requests if request.connection == connection]
                assert numbers == sorted(numbers)
            lines = [record for record in caplog.records if record.name == LOGGER]
            first = lines[0].getMessage()
            assert bad.text in first and first.endswith("; 5 requests queued")
            if bad.reason is not FailureReason.TIMED_OUT:
                assert [record.levelname for record in lines] == ["WARNING", "INFO"]
            channel.close()

    run(work)


def test_unrequested_response_closes_the_connection() -> None:
    async def work() -> None:
        async def twice(request: ReceivedRequest, writer: Writer) -> None:
            await answer(request, writer)
            if request.connection == 0:
                await asyncio.sleep(0.02)
                writer.write(request.frame()[:3])  # The rest of its announced length is not awaited.

        async with Peer(twice) as peer:
            channel = channel_to(peer)
            sent = Sent(channel)
            sent.send()
            await sent.all()
            await until(lambda: channel._connection is None)
            sent.send()
            await sent.all()
            assert sent.outcomes == [(0, 0), (1, 1)]
            channel.close()

    run(work)


def test_data_for_a_peer_that_does_not_read_is_bounded() -> None:
    """Of a thousand requests of 100 KB, those beyond the room in sockets and transport wait as values."""
    built = 0

    def build(version: int) -> AddOffsetsToTxnRequest:
        nonlocal built
        built += 1
        return AddOffsetsToTxnRequest(
            transactional_id="x" * 30_000, producer_id=1, producer_epoch=1, group_id="y" * 30_000
        )

    async def work() -> None:
        with socket.create_server((HOST, 0)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            channel = Channel(
                asyncio.get_running_loop(),
                Endpoint("PLAINTEXT", *deaf.getsockname()),
                config(in_flight_max=1_000, request_timeout_ms=200),
                name="broker 2",
            )
            outcomes: list[object] = []
            builder = RequestBuilder(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, build, 3, 3)
            for _ in range(1_000):
                channel.send(builder, outcomes.append)
            await until(lambda: len(outcomes) == 1_000)
            assert {one.reason for one in outcomes if isinstance(one, FailedRequest)} == {FailureReason.TIMED_OUT}
            assert 10 < built < 250
            channel.close()

    run(work)


def test_peer_that_reads_all_requests_first_gets_all() -> None:
    """Writing continues when the transport has room again, not only after a response."""

    async def work() -> None:
        seen: list[ReceivedRequest] = []

        async def reads_all(request: ReceivedRequest, writer: Writer) -> None:
            seen.append(request)
            await asyncio.sleep(0.001)
            if len(seen) == 300:
                for one in seen:
                    body = bytes(1) + bytes(4) + bytes(2) + bytes(1)
                    writer.write((4 + len(body)).to_bytes(4) + one.correlation_id.to_bytes(4) + body)

        async with Peer(reads_all) as peer:
            channel = channel_to(peer, in_flight_max=300)
            outcomes: list[object] = []
            message = AddOffsetsToTxnRequest(
                transactional_id="x" * 30_000, producer_id=1, producer_epoch=1, group_id="y" * 30_000
            )
            for _ in range(300):
                channel.send(RequestBuilder.of(message, AddOffsetsToTxnResponse, 3), outcomes.append)
            await until(lambda: len(outcomes) == 300)
            assert {type(one) for one in outcomes} == {AddOffsetsToTxnResponse}
            channel.close()

    run(work)


FUZZED = [closes, resets, closes_in_the_middle, closes_in_the_length, answers_half, answers_another, cuts_the_body]
FUZZED += [announces_a_lot, sends_http, announces_less_than_nothing, sends_nothing]


class Whims:
    """A peer that mostly responds, late or in pieces, and sometimes misbehaves."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.has_enough = False

    async def __call__(self, request: ReceivedRequest, writer: Writer) -> None:
        random = self._random
        if random.random() < 0.1 and not self.has_enough:
            await random.choice(FUZZED)(request, writer)
            return
        frame = request.frame()
        if random.random() < 0.3:
            cut = random.randrange(len(frame))
            writer.write(frame[:cut])
            await asyncio.sleep(random.choice((0, 0, 0.001)))
            frame = frame[cut:]
        if random.random() < 0.02:
            frame += random.randbytes(random.randrange(1, 50))
        writer.write(frame)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("in_flight_max", [1, 7])
@pytest.mark.parametrize("retries", [False, True])
def test_each_request_has_one_outcome_with_an_erratic_peer(seed: int, in_flight_max: int, retries: bool) -> None:
    async def work() -> None:
        random, whims = Random(seed), Whims(seed)
        async with Peer(whims) as peer:
            channel = channel_to(
                peer, retries=retries, in_flight_max=in_flight_max, request_timeout_ms=150, queued_max=1_000
            )
            sent = Sent(channel)
            for _ in range(60):
                sent.send(random.randrange(6))
                await asyncio.sleep(random.choice((0, 0, 0.001, 0.005)))
            await asyncio.sleep(0.1)
            whims.has_enough = retries
            outcomes = await sent.all()
            for number, outcome in enumerate(outcomes):  # The peer may have applied a failed request.
                assert outcome == number or isinstance(outcome, FailedRequest)
            assert not retries or outcomes == list(range(len(outcomes)))
            assert any(isinstance(one, int) for one in outcomes)
            sent.send(20)
            built = len(sent.built)
            channel.close()
            if not retries:
                await sent.all()
            await asyncio.sleep(0.01)
            assert len(sent.built) == built

    run(work)


def test_a_large_response_is_received_whole() -> None:
    async def work() -> None:
        size = 5_000_000

        async def padded(request: ReceivedRequest, writer: Writer) -> None:
            frame = request.frame()
            writer.write((len(frame) - 4 + size).to_bytes(4) + frame[4:] + bytes(size))
            await answer_next(request, writer)

        async def answer_next(request: ReceivedRequest, writer: Writer) -> None:
            await writer.drain()

        async with Peer(padded) as peer:
            channel = channel_to(peer, in_flight_max=3, request_timeout_ms=5_000)
            outcomes: list[object] = []
            builder = RequestBuilder.of(AllocateProducerIdsRequest(broker_id=1), AllocateProducerIdsResponse)
            for _ in range(4):
                channel.send(builder, outcomes.append)
            await until(lambda: len(outcomes) == 4)
            assert {type(one) for one in outcomes} == {AllocateProducerIdsResponse}
            connection = channel._connection
            assert connection is not None
            await until(lambda: connection._frames.buffer_bytes < 100_000)
            channel.close()

    run(work)
