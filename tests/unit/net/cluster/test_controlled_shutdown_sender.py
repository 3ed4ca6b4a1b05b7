"""Controlled shutdown requests of a stopping broker, on a real socket: repeated only while they help."""

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
from odradek.net.cluster.broker_requests import BrokerRequests
from odradek.net.cluster.controlled_shutdown_sender import controlled_shutdown
from odradek.wire.messages.controlled_shutdown import ControlledShutdownResponse, RemainingPartition
from odradek.wire.schema.compile import encode
from support.channel_peer import Peer, ReceivedRequest, Writer, framed, run
from support.in_memory import US, Harness

pytestmark = pytest.mark.waits

LATER_SECONDS = 0.2
OTHER, DEAD = BrokerId(US + 1), BrokerId(US + 2)
HOUR_MS = "3600000"
FAST = {"controlled.shutdown.retry.backoff.ms": "1"}


class Controller:
    """Another broker that responds with each of `left` in turn; None closes the connection."""

    def __init__(self, left: Sequence[int | ErrorCode | None], after: Callable[[], object] = lambda: None) -> None:
        """Call `after` after each response."""
        self._left = list(left)
        self._after = after
        self.peer = Peer(self._answer)

    async def _answer(self, request: ReceivedRequest, writer: Writer) -> None:
        assert (request.api_key, request.version) == (7, 3)
        left = self._left.pop(0)
        if left is None:
            writer.close()
            return
        is_error = isinstance(left, ErrorCode)
        remaining = [RemainingPartition(topic_name="t", partition_index=one) for one in range(0 if is_error else left)]
        response = ControlledShutdownResponse(error_code=left if is_error else 0, remaining_partitions=remaining)
        writer.write(framed(request.correlation_id, b"\0" + encode(response, 3)))
        await writer.drain()
        self._after()


def request_count(
    folder: Path,
    left: Sequence[int | ErrorCode | None],
    *,
    replicas: Sequence[BrokerId] = (US, OTHER),
    others: Sequence[BrokerId] = (),
    then: Callable[[ClusterView], None] = lambda view: None,
    **configs: str,
) -> int:
    """Stop a broker whose topic has these replicas; return the number of requests to the controller.

    `others` are alive next to the controller. `then` may change the broker's view shortly after each response.
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
            requests = BrokerRequests(SimpleNamespace(loop=loop), broker, channels)  # type: ignore[arg-type]
            await controlled_shutdown(
                broker, lambda then: requests.shut_down(broker.view.controller, ShutDown(US, 5), then)
            )
            channels.close()
            return len(peer.requests)

    found: list[int] = []

    async def kept() -> None:
        found.append(await work())

    run(kept)
    return found[0]


@pytest.mark.parametrize(
    ("left", "times"),
    [
        ([0], 1),
        ([2, 0], 2),  # The remaining partitions are requested again.
        ([None, ErrorCode.NOT_CONTROLLER, 0], 3),  # The controller may have changed.
        ([2, 2, 2], 3),  # controlled.shutdown.max.retries
    ],
)
def test_shutdown_request_is_repeated_until_no_partition_remains(
    tmp_path: Path, left: list[int | ErrorCode | None], times: int
) -> None:
    assert request_count(tmp_path, left) == times


def test_shutdown_requests_are_limited_by_configuration(tmp_path: Path) -> None:
    assert request_count(tmp_path, [1], controlled_shutdown_max_retries="1") == 1


def test_disabled_controlled_shutdown_sends_no_request(tmp_path: Path) -> None:
    assert request_count(tmp_path, [], controlled_shutdown_enable="false") == 0


@pytest.mark.parametrize("replicas", [(US,), (US, DEAD), (OTHER,)])
def test_shutdown_without_possible_leaders_sends_no_request(tmp_path: Path, replicas: tuple[BrokerId, ...]) -> None:
    assert request_count(tmp_path, [], replicas=replicas) == 0


def test_backoff_ends_when_all_other_brokers_are_dead(tmp_path: Path) -> None:
    """As when all brokers are stopped at once."""

    def others_die(view: ClusterView) -> None:
        view.brokers = {US: view.brokers[US]}

    assert request_count(tmp_path, [1], then=others_die, controlled_shutdown_retry_backoff_ms=HOUR_MS) == 1


def test_shutdown_request_is_repeated_when_another_broker_dies(tmp_path: Path) -> None:
    """The remaining brokers may stop too; such a retry is not counted."""
    others = [BrokerId(DEAD + number) for number in range(4)]

    def one_dies(view: ClusterView) -> None:
        view.brokers = {number: one for number, one in view.brokers.items() if number != max(view.brokers)}

    left = [1, 1, 1, 1, 0]
    found = request_count(tmp_path, left, others=others, then=one_dies, controlled_shutdown_retry_backoff_ms=HOUR_MS)
    assert found == len(left)


def test_new_controller_gets_the_shutdown_request_immediately(tmp_path: Path) -> None:
    changes = iter((DEAD, OTHER))

    def elected(view: ClusterView) -> None:
        view.brokers = {**view.brokers, DEAD: BrokerInfo(DEAD, view.brokers[OTHER].endpoints)}
        view.controller = next(changes, view.controller)

    assert request_count(tmp_path, [1, 1, 0], then=elected, controlled_shutdown_retry_backoff_ms=HOUR_MS) == 3
