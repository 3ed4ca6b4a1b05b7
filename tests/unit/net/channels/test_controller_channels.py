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
from support.channel_peer import HOST, Asked, Behaviour, Peer, Writer, framed, reset, run, until
from support.ports import free_port

pytestmark = pytest.mark.waits

US, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LOGGER = "odradek.net.channels.controller_channels"
T0 = TopicPartition(TopicName("t"), 0)


async def obey(asked: Asked, writer: Writer) -> None:
    """Respond with success."""
    writer.write(framed(asked.correlation_id, b"\0" + done(asked)))
    await writer.drain()


def done(asked: Asked, error: int = 0) -> bytes:
    if asked.api_key == LEADER_AND_ISR:
        return encode(LeaderAndIsrResponse(error_code=error, topics=[]), asked.version)
    if asked.api_key == STOP_REPLICA:
        failed = StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=56)
        return encode(StopReplicaResponse(error_code=error, partition_errors=[failed]), asked.version)
    assert asked.api_key == UPDATE_METADATA
    return encode(UpdateMetadataResponse(error_code=error), asked.version)


async def refuse(asked: Asked, writer: Writer) -> None:
    writer.write(framed(asked.correlation_id, b"\0" + done(asked, ErrorCode.STALE_BROKER_EPOCH)))
    await writer.drain()


async def silent(asked: Asked, writer: Writer) -> None:
    """Read all requests and never respond."""


def live(broker: BrokerId, port: int, epoch: int = 10) -> LiveBroker:
    return LiveBroker(BrokerInfo(broker, (Endpoint("PLAINTEXT", HOST, port),)), epoch)


def update(broker: BrokerId = OTHER, epoch: int = 10) -> ControlRequest:
    return ControlRequest(broker, epoch, US, 5, UpdateMetadata({}, {}, (), is_full=False))


def become(broker: BrokerId = OTHER, epoch: int = 10) -> ControlRequest:
    return ControlRequest(broker, epoch, US, 5, BecomeLeaderOrFollower({}, {}, ()))


def stop(broker: BrokerId = OTHER, epoch: int = 10) -> ControlRequest:
    return ControlRequest(broker, epoch, US, 5, StopReplicas({T0: LeaderEpoch(-2)}, deletes=True))


class Telling:
    """The channels of a controller, and the results that its thread receives."""

    def __init__(self) -> None:
        self.heard: list[events.Answered] = []
        versions = versions_of(protocol(NEWEST))
        loop = asyncio.get_running_loop()
        self.channels = ControllerChannels(loop, US, "PLAINTEXT", self.heard.append, versions=versions, tls=None)

    async def answered(self, *requests: ControlRequest) -> None:
        await until(lambda: len(self.heard) >= len(requests))
        assert [event.request for event in self.heard] == list(requests)


def test_requests_are_sent_in_order_and_responses_are_received() -> None:
    async def work() -> None:
        async with Peer(obey) as peer:
            telling = Telling()
            told = [update(), become(), update(), stop()]
            for request in told:
                telling.channels.send(request, live(OTHER, peer.port))
            await telling.answered(*told)
            assert [asked.api_key for asked in peer.asked] == [6, 4, 6, 5]
            assert [asked.version for asked in peer.asked] == [8, 7, 8, 4]
            assert [dict(event.errors) for event in telling.heard] == [{}, {}, {}, {T0: ErrorCode.KAFKA_STORAGE_ERROR}]
            assert peer.connections == 1
            telling.channels.close()

    run(work)


def test_slow_broker_delays_no_other() -> None:
    async def work() -> None:
        async with Peer(silent) as slow, Peer(obey) as quick:
            telling = Telling()
            for number in range(5):
                telling.channels.send(update(OTHER), live(OTHER, slow.port))
                telling.channels.send(update(THIRD), live(THIRD, quick.port))
                await until(lambda number=number: len(telling.heard) > number)
            assert {event.request.broker for event in telling.heard} == {THIRD}
            assert len(slow.asked) == 1
            telling.channels.close()

    run(work)


@pytest.mark.parametrize("answers_first", [False, True])
def test_request_is_resent_until_the_broker_responds(answers_first: bool) -> None:
    async def breaks(asked: Asked, writer: Writer) -> None:
        if asked.connection >= 3:
            await obey(asked, writer)
        elif answers_first and asked.connection == 1:
            await obey(asked, writer)
            reset(writer)
        else:
            reset(writer)

    async def work() -> None:
        async with Peer(breaks) as peer:
            telling = Telling()
            told = [become(), update(), stop()]
            for request in told:
                telling.channels.send(request, live(OTHER, peer.port))
            await telling.answered(*told)
            telling.channels.close()

    run(work)


def test_broker_that_starts_later_gets_its_requests() -> None:
    async def work() -> None:
        port, telling = free_port(), Telling()
        telling.channels.send(become(), live(OTHER, port))
        telling.channels.send(update(), live(OTHER, port))
        await asyncio.sleep(0.05)
        async with Peer(obey, port=port):
            await telling.answered(become(), update())
            telling.channels.close()

    run(work)


def test_re_registered_broker_gets_no_requests_for_its_old_epoch() -> None:
    async def work() -> None:
        async with Peer(silent) as before, Peer(obey) as after:
            telling = Telling()
            telling.channels.send(update(epoch=10), live(OTHER, before.port, 10))
            telling.channels.send(become(epoch=10), live(OTHER, before.port, 10))
            await until(lambda: before.asked)
            telling.channels.retain({OTHER: live(OTHER, after.port, 11)})
            telling.channels.send(update(epoch=11), live(OTHER, after.port, 11))
            await telling.answered(update(epoch=11))
            await until(lambda: not before.open)
            assert len(before.asked) == len(after.asked) == 1
            telling.channels.close()

    run(work)


def test_live_broker_keeps_its_channel() -> None:
    async def work() -> None:
        async with Peer(obey) as one, Peer(obey) as two:
            telling = Telling()
            alive = {OTHER: live(OTHER, one.port), THIRD: live(THIRD, two.port)}
            for broker, meant in alive.items():
                telling.channels.send(update(broker), meant)
            await until(lambda: len(telling.heard) == 2)
            del alive[THIRD]
            telling.channels.retain(alive)
            await until(lambda: not two.open)
            telling.channels.send(update(), alive[OTHER])
            await until(lambda: len(telling.heard) == 3)
            assert one.connections == 1
            telling.channels.close()

    run(work)


def test_dead_broker_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with Peer(silent) as peer:
            telling = Telling()
            for _ in range(3):
                telling.channels.send(update(), live(OTHER, peer.port))
            await until(lambda: peer.asked)
            telling.channels.retain({})
            await until(lambda: not peer.open)
            assert not telling.heard

    with caplog.at_level(logging.INFO, LOGGER):
        run(work)
    assert not [record for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("behaviour", [refuse])
def test_refused_request_is_not_resent(behaviour: Behaviour, caplog: pytest.LogCaptureFixture) -> None:
    """The broker has another controller or another epoch; the controller learns that from the tree."""

    async def work() -> None:
        async with Peer(behaviour) as peer:
            telling = Telling()
            telling.channels.send(update(), live(OTHER, peer.port))
            telling.channels.send(become(), live(OTHER, peer.port))
            await until(lambda: len(peer.asked) == 2 and len(caplog.records) >= 2)
            assert not telling.heard
            telling.channels.close()

    with caplog.at_level(logging.WARNING, LOGGER):
        run(work)
    assert {record.getMessage() for record in caplog.records} == {
        "broker 2 rejected a request of the controller: error code 77"
    }
