"""Topic requests to a controller on a real socket: a missing response is reported once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.broker.effects import Changed, CreateTopics
from odradek.core.kernel.cluster_view import BrokerInfo, PartitionInfo, TopicInfo
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.cluster.broker_requests import BrokerRequests
from odradek.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.wire.schema.compile import encode
from support.channel_peer import Peer, ReceivedRequest, Writer, framed, run
from support.in_memory import US, Harness

pytestmark = pytest.mark.waits

OTHER, DEAD = BrokerId(US + 1), BrokerId(US + 2)
NAME = TopicName("t")
TOPIC = TopicInfo(NAME, Uuid(bytes(16)), (PartitionInfo(US, LeaderEpoch(0), (US,), (US,)),))
FAILED = "failed to create topics: no response from the controller"


async def answer_created(request: ReceivedRequest, writer: Writer) -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name=NAME, error_code=0, error_message=None)])
    writer.write(framed(request.correlation_id, b"\0" + encode(response, request.version)))
    await writer.drain()


def test_silent_controller_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(tmp_path)

    async def work() -> list[int]:
        loop = asyncio.get_running_loop()
        async with Peer(answer_created) as peer:
            view = harness.broker.view
            view.brokers = {**view.brokers, OTHER: BrokerInfo(OTHER, (peer.endpoint,))}
            channels = BrokerChannels(loop, f"broker-{US}", view, "PLAINTEXT", None)
            requests = BrokerRequests(SimpleNamespace(loop=loop), harness.broker, channels)  # type: ignore[arg-type]
            counts = []
            for controller in (DEAD, DEAD, DEAD, OTHER, DEAD, DEAD):
                answered: asyncio.Future[Changed] = loop.create_future()
                requests.create_topics(controller, CreateTopics(1, (TOPIC,)), answered.set_result)
                assert (await answered).refused.keys() == (set() if controller == OTHER else {NAME})
                counts.append(caplog.text.count(FAILED))
            channels.close()
            return counts

    found: list[int] = []

    async def kept() -> None:
        found.extend(await work())

    run(kept)
    assert found == [1, 1, 1, 1, 2, 2]
