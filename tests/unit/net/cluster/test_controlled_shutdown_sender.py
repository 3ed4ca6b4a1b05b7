"""A broker that stops asks the controller, on a real socket, to have others lead: as often as it helps and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.controller.events import ShutDown
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.cluster.broker_queries import BrokerAsks
from odradek.net.cluster.controlled_shutdown_sender import hand_over
from odradek.wire.messages.controlled_shutdown import ControlledShutdownResponse, RemainingPartition
from odradek.wire.schema.compile import encode
from support.channel_peer import Asked, Peer, Writer, framed, run
from support.in_memory import US, Harness

pytestmark = pytest.mark.waits

LATER_SECONDS = 0.2
OTHER, GONE = BrokerId(US + 1), BrokerId(US + 2)
HOUR_MS = "3600000"
FAST = {"controlled.shutdown.retry.backoff.ms": "1"}


class Controller:
    """Another broker, which answers with one of `left` after the other, or closes the connection for a None."""

    def __init__(self, left: Sequence[int | ErrorCode | None], after: Callable[[], object] = lambda: None) -> None:
        """`after` is called when it has answered."""
        self._left = list(left)
        self._after = after
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
        self._after()


def asked_times(
    folder: Path,
    left: Sequence[int | ErrorCode | None],
    *,
    replicas: Sequence[BrokerId] = (US, OTHER),
    others: Sequence[BrokerId] = (),
    then: Callable[[ClusterView], None] = lambda view: None,
    **configs: str,
) -> int:
    """Stops a broker whose topic has these replicas; returns how often the controller was asked.

    `others` live beside the controller.  `then` may change what the broker knows, a moment after each answer.
    """
    harness = Harness(folder, **(FAST | {name.replace("_", "."): value for name, value in configs.items()}))

    async def work() -> int:
        broker = harness.broker
        loop = asyncio.get_running_loop()
        controller = Controller(left, lambda: loop.call_later(LATER_SECONDS, then, broker.view))
        async with controller.peer as peer:
            alive = {one: BrokerInfo(one, (peer.endpoint,)) for one in (OTHER, *others)}
            broker.view.brokers = {**broker.view.brokers, **alive}
            broker.view.controller = OTHER
            partition = PartitionInfo(US, LeaderEpoch(0), tuple(replicas), tuple(replicas))
            name = TopicName("t")
            broker.view.topics = {**broker.view.topics, name: TopicInfo(name, Uuid(bytes(16)), (partition,))}
            channels = BrokerChannels(loop, f"broker-{US}", broker.view, "PLAINTEXT", None)
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


def test_no_pause_goes_on_when_the_others_have_gone_too(tmp_path: Path) -> None:
    """As when all brokers are stopped at once."""

    def others_go(view: ClusterView) -> None:
        view.brokers = {US: view.brokers[US]}

    assert asked_times(tmp_path, [1], then=others_go, controlled_shutdown_retry_backoff_ms=HOUR_MS) == 1


def test_it_is_asked_again_at_once_whenever_a_broker_has_gone(tmp_path: Path) -> None:
    """Who is left may stop, too; such a try does not count."""
    others = [BrokerId(GONE + number) for number in range(4)]

    def one_goes(view: ClusterView) -> None:
        view.brokers = {number: one for number, one in view.brokers.items() if number != max(view.brokers)}

    left = [1, 1, 1, 1, 0]
    found = asked_times(tmp_path, left, others=others, then=one_goes, controlled_shutdown_retry_backoff_ms=HOUR_MS)
    assert found == len(left)


def test_who_is_elected_controller_is_asked_at_once(tmp_path: Path) -> None:
    changes = iter((GONE, OTHER))

    def elected(view: ClusterView) -> None:
        view.brokers = {**view.brokers, GONE: BrokerInfo(GONE, view.brokers[OTHER].endpoints)}
        view.controller = next(changes, view.controller)

    assert asked_times(tmp_path, [1, 1, 0], then=elected, controlled_shutdown_retry_backoff_ms=HOUR_MS) == 3
