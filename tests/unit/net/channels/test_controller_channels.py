"""Channels of a controller: requests to each broker in order, until it responds or registers again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from odradek.api.cluster.controller_requests import versions_of
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.core.configs.inter_broker_protocol import protocol
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import (
    BecomeLeaderOrFollower,
    ControlRequest,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.controller.controller_context import LiveBroker
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint
from odradek.core.kernel.metadata_version import NEWEST
from odradek.net.channels.controller_channels import ControllerChannels
from odradek.wire.messages.leader_and_isr import LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaResponse,
)
from odradek.wire.messages.update_metadata import UpdateMetadataResponse
from odradek.wire.schema.compile import encode
from support.channel_peer import HOST, Behaviour, Peer, ReceivedRequest, Writer, framed, reset, run, until
from support.ports import free_port

pytestmark = pytest.mark.waits

US, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LOGGER = "odradek.net.channels.controller_channels"
T0 = TopicPartition(TopicName("t"), 0)


async def accept(request: ReceivedRequest, writer: Writer) -> None:
    """Respond with success."""
    writer.write(framed(request.correlation_id, b"\0" + done(request)))
    await writer.drain()


def done(request: ReceivedRequest, error: int = 0) -> bytes:
    if request.api_key == LEADER_AND_ISR:
        return encode(LeaderAndIsrResponse(error_code=error, topics=[]), request.version)
    if request.api_key == STOP_REPLICA:
        failed = StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=56)
        return encode(StopReplicaResponse(error_code=error, partition_errors=[failed]), request.version)
    assert request.api_key == UPDATE_METADATA
    return encode(UpdateMetadataResponse(error_code=error), request.version)


async def refuse(request: ReceivedRequest, writer: Writer) -> None:
    writer.write(framed(request.correlation_id, b"\0" + done(request, ErrorCode.STALE_BROKER_EPOCH)))
    await writer.drain()


async def silent(request: ReceivedRequest, writer: Writer) -> None:
    """Read all requests and never respond."""


def live(broker: BrokerId, port: int, epoch: int = 10) -> LiveBroker:
    return LiveBroker(BrokerInfo(broker, (Endpoint("PLAINTEXT", HOST, port),)), epoch)


def update(broker: BrokerId = OTHER, epoch: int = 10) -> ControlRequest:
    return ControlRequest(broker, epoch, US, 5, UpdateMetadata({}, {}, (), is_full=False))


def become(broker: BrokerId = OTHER, epoch: int = 10) -> ControlRequest:
    return ControlRequest(broker, epoch, US, 5, BecomeLeaderOrFollower({}, {}, ()))


def stop(broker: BrokerId = OTHER, epoch: int = 10) -> ControlRequest:
    return ControlRequest(broker, epoch, US, 5, StopReplicas({T0: LeaderEpoch(-2)}, deletes=True))


class Sender:
    """The channels of a controller, and the results that its thread receives."""

    def __init__(self) -> None:
        self.results: list[events.Answered] = []
        versions = versions_of(protocol(NEWEST))
        loop = asyncio.get_running_loop()
        self.channels = ControllerChannels(loop, US, "PLAINTEXT", self.results.append, versions=versions, tls=None)

    async def answered(self, *requests: ControlRequest) -> None:
        await until(lambda: len(self.results) >= len(requests))
        assert [event.request for event in self.results] == list(requests)


def test_requests_are_sent_in_order_and_responses_are_received() -> None:
    async def work() -> None:
        async with Peer(accept) as peer:
            sender = Sender()
            requests = [update(), become(), update(), stop()]
            for request in requests:
                sender.channels.send(request, live(OTHER, peer.port))
            await sender.answered(*requests)
            assert [request.api_key for request in peer.requests] == [6, 4, 6, 5]
            assert [request.version for request in peer.requests] == [8, 7, 8, 4]
            assert [dict(event.errors) for event in sender.results] == [
                {},
                {},
                {},
                {T0: ErrorCode.KAFKA_STORAGE_ERROR},
            ]
            assert peer.connections == 1
            sender.channels.close()

    run(work)


def test_slow_broker_delays_no_other() -> None:
    async def work() -> None:
        async with Peer(silent) as slow, Peer(accept) as quick:
            sender = Sender()
            for number in range(5):
                sender.channels.send(update(OTHER), live(OTHER, slow.port))
                sender.channels.send(update(THIRD), live(THIRD, quick.port))
                await until(lambda number=number: len(sender.results) > number)
            assert {event.request.broker for event in sender.results} == {THIRD}
            assert len(slow.requests) == 1
            sender.channels.close()

    run(work)


@pytest.mark.parametrize("answers_first", [False, True])
def test_request_is_resent_until_the_broker_responds(answers_first: bool) -> None:
    async def breaks(request: ReceivedRequest, writer: Writer) -> None:
        if request.connection >= 3:
            await accept(request, writer)
        elif answers_first and request.connection == 1:
            await accept(request, writer)
            reset(writer)
        else:
            reset(writer)

    async def work() -> None:
        async with Peer(breaks) as peer:
            sender = Sender()
            requests = [become(), update(), stop()]
            for request in requests:
                sender.channels.send(request, live(OTHER, peer.port))
            await sender.answered(*requests)
            sender.channels.close()

    run(work)


def test_broker_that_starts_later_gets_its_requests() -> None:
    async def work() -> None:
        port, sender = free_port(), Sender()
        sender.channels.send(become(), live(OTHER, port))
        sender.channels.send(update(), live(OTHER, port))
        await asyncio.sleep(0.05)
        async with Peer(accept, port=port):
            await sender.answered(become(), update())
            sender.channels.close()

    run(work)


def test_re_registered_broker_gets_no_requests_for_its_old_epoch() -> None:
    async def work() -> None:
        async with Peer(silent) as before, Peer(accept) as after:
            sender = Sender()
            sender.channels.send(update(epoch=10), live(OTHER, before.port, 10))
            sender.channels.send(become(epoch=10), live(OTHER, before.port, 10))
            await until(lambda: before.requests)
            sender.channels.retain({OTHER: live(OTHER, after.port, 11)})
            sender.channels.send(update(epoch=11), live(OTHER, after.port, 11))
            await sender.answered(update(epoch=11))
            await until(lambda: not before.open)
            assert len(before.requests) == len(after.requests) == 1
            sender.channels.close()

    run(work)


def test_live_broker_keeps_its_channel() -> None:
    async def work() -> None:
        async with Peer(accept) as one, Peer(accept) as two:
            sender = Sender()
            alive = {OTHER: live(OTHER, one.port), THIRD: live(THIRD, two.port)}
            for broker, broker_info in alive.items():
                sender.channels.send(update(broker), broker_info)
            await until(lambda: len(sender.results) == 2)
            del alive[THIRD]
            sender.channels.retain(alive)
            await until(lambda: not two.open)
            sender.channels.send(update(), alive[OTHER])
            await until(lambda: len(sender.results) == 3)
            assert one.connections == 1
            sender.channels.close()

    run(work)


def test_dead_broker_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with Peer(silent) as peer:
            sender = Sender()
            for _ in range(3):
                sender.channels.send(update(), live(OTHER, peer.port))
            await until(lambda: peer.requests)
            sender.channels.retain({})
            await until(lambda: not peer.open)
            assert not sender.results

    with caplog.at_level(logging.INFO, LOGGER):
        run(work)
    assert not [record for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("behaviour", [refuse])
def test_refused_request_is_not_resent(behaviour: Behaviour, caplog: pytest.LogCaptureFixture) -> None:
    """The broker has another controller or another epoch; the controller learns that from the tree."""

    async def work() -> None:
        async with Peer(behaviour) as peer:
            sender = Sender()
            sender.channels.send(update(), live(OTHER, peer.port))
            sender.channels.send(become(), live(OTHER, peer.port))
            await until(lambda: len(peer.requests) == 2 and len(caplog.records) >= 2)
            assert not sender.results
            sender.channels.close()

    with caplog.at_level(logging.WARNING, LOGGER):
        run(work)
    assert {record.getMessage() for record in caplog.records} == {
        "broker 2 rejected a request of the controller: error code 77"
    }
