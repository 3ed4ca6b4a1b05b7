"""A broker that stops asks the controller, on a real socket, to have others lead: as often as it helps and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.cluster import BrokerInfo, PartitionInfo, TopicInfo
from odradek.core.controller.events import ShutDown
from odradek.net.broker_asks import BrokerAsks
from odradek.net.broker_channels import BrokerChannels
from odradek.net.controlled_shutdown import hand_over
from odradek.wire.compile import encode
from odradek.wire.messages.controlled_shutdown import ControlledShutdownResponse, RemainingPartition
from support.channel_peer import Asked, Peer, Writer, framed, run
from support.in_memory import US, Harness

OTHER, GONE = BrokerId(US + 1), BrokerId(US + 2)
FAST = {"controlled.shutdown.retry.backoff.ms": "1"}


class Controller:
    """Another broker, which answers with one of `left` after the other, or closes the connection for a None."""

    def __init__(self, left: Sequence[int | ErrorCode | None]) -> None:
        self._left = list(left)
        self.peer = Peer(self._answer)

    async def _answer(self, asked: Asked, writer: Writer) -> None:
        assert (asked.api_key, asked.version) == (7, 3)
        left = self._left.pop(0)
        if left is None:
            writer.close()
            return
        is_error = isinstance(left, ErrorCode)
        remaining = [RemainingPartition(topic_name="t", partition_index=one) for one in range(0 if is_error else left)]
        response = ControlledShutdownResponse(error_code=left if is_error else 0, remaining_partitions=remaining)
        writer.write(framed(asked.correlation_id, b"\0" + encode(response, 3)))
        await writer.drain()


def asked_times(
    folder: Path, left: Sequence[int | ErrorCode | None], *, replicas: Sequence[BrokerId] = (US, OTHER), **configs: str
) -> int:
    """Stops a broker whose topic has these replicas; returns how often the controller was asked."""
    harness = Harness(folder, **(FAST | {name.replace("_", "."): value for name, value in configs.items()}))

    async def work() -> int:
        controller = Controller(left)
        async with controller.peer as peer:
            broker = harness.broker
            broker.view.brokers = {**broker.view.brokers, OTHER: BrokerInfo(OTHER, (peer.endpoint,))}
            broker.view.controller = OTHER
            partition = PartitionInfo(US, LeaderEpoch(0), tuple(replicas), tuple(replicas))
            name = TopicName("t")
            broker.view.topics = {**broker.view.topics, name: TopicInfo(name, Uuid(bytes(16)), (partition,))}
            loop = asyncio.get_running_loop()
            channels = BrokerChannels(loop, US, broker.view, "PLAINTEXT", None)
            asks = BrokerAsks(SimpleNamespace(loop=loop), broker, channels)  # type: ignore[arg-type]
            await hand_over(broker, lambda then: asks.shut_down(broker.view.controller, ShutDown(US, 5), then))
            channels.close()
            return len(peer.asked)

    found: list[int] = []

    async def kept() -> None:
        found.append(await work())

    run(kept)
    return found[0]


@pytest.mark.parametrize(
    ("left", "times"),
    [
        ([0], 1),
        ([2, 0], 2),  # What is left is asked for again.
        ([None, ErrorCode.NOT_CONTROLLER, 0], 3),  # The controller may be another one by then.
        ([2, 2, 2], 3),  # controlled.shutdown.max.retries
    ],
)
def test_the_controller_is_asked_until_nothing_is_left(
    tmp_path: Path, left: list[int | ErrorCode | None], times: int
) -> None:
    assert asked_times(tmp_path, left) == times


def test_it_is_asked_as_often_as_configured(tmp_path: Path) -> None:
    assert asked_times(tmp_path, [1], controlled_shutdown_max_retries="1") == 1


def test_it_is_not_asked_where_that_is_not_wanted(tmp_path: Path) -> None:
    assert asked_times(tmp_path, [], controlled_shutdown_enable="false") == 0


@pytest.mark.parametrize("replicas", [(US,), (US, GONE), (OTHER,)])
def test_it_is_not_asked_where_nobody_could_lead(tmp_path: Path, replicas: tuple[BrokerId, ...]) -> None:
    assert asked_times(tmp_path, [], replicas=replicas) == 0
