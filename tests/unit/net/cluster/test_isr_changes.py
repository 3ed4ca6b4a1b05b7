"""ISR changes of a leader: through its own controller, another broker's on a real socket, or the tree.

The leader is a broker in memory, whose follower is simulated by fetches; controller, tree, threads and sockets are
real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.api.cluster.alter_partition import from_message
from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Create, Operation, Result, Unavailable
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest, UpdateMetadata
from odradek.core.controller.controller import Controller
from odradek.core.kernel.cluster_view import BrokerInfo, LeaderAndIsr, TopicAssignment
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.cluster import isr_changes
from odradek.net.cluster.broker_requests import BrokerRequests
from odradek.net.cluster.isr_changes import IsrChanges
from odradek.net.controller.controller_thread import ControllerThread
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.wire.schema.compile import decode, encode
from support.channel_peer import Peer, ReceivedRequest, Writer, framed, run, until
from support.in_memory import NOW_MS, US, Harness
from support.logs import batch

pytestmark = pytest.mark.waits

OTHER = BrokerId(US + 1)
T = TopicName("t")
NAME = TopicPartition(T, 0)
PARTITIONS = 3
TOPIC_ID = Uuid(b"t" * 16)
LAG_MS_MAX = 10_000
STATE = layout.partition_state(*NAME)

Value = TypeVar("Value")


class Tree(SqliteTree):
    """A tree that may execute a request and lose the response, or be unreachable."""

    loses_answers = 0
    is_down = False

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.is_down:
            raise Unavailable(detail="the network is down")
        results = super().multi(operations)
        if self.loses_answers and operations[0].path == STATE:
            self.loses_answers -= 1
            raise Unavailable(detail="the answer was lost")
        return results


class World:
    """Partitions with two replicas led here; either broker's controller runs in a thread."""

    def __init__(self, folder: Path, version: str, controller: BrokerId) -> None:
        self.harness = Harness(
            folder / "data",
            inter_broker_protocol_version=version,
            replica_lag_time_max_ms=str(LAG_MS_MAX),
        )
        self.broker = self.harness.broker
        self.tree = Tree(folder / "tree", durable=False)
        self.controller = Controller(controller, has_recovery=self.broker.protocol.has_leader_recovery)
        self.loop = asyncio.get_running_loop()
        self.pending: dict[events.ControllerQuery[Any], Callable[[events.ControllerQuery[Any]], None]] = {}
        self.faults: list[ErrorCode | None] = []  # The controller's first responses; None closes the connection.
        self.versions: list[int] = []  # AlterPartition requests.
        self.requested: list[list[int]] = []  # The partitions of each request.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._threads = ThreadPoolExecutor(1)
        self._failures: list[Exception] = []
        self._closes = False
        self._thread = ControllerThread(
            self.controller,
            self.tree,
            controller,
            now=lambda: TimestampMs(NOW_MS),
            may_be_unclean=lambda config: False,
            send=lambda requests: self.on_loop(self._sent, requests),
            answered=lambda query: self.on_loop(self._answered, query),
            failed=self._failures.append,
        )

    # The part of a shell.

    def now(self) -> Moment:
        return self.harness.now

    def settle(self) -> None:
        self.harness.settle()
        self.changes.send_proposals()

    def add_slices(self, work: object) -> None:
        raise AssertionError("nothing is long here")

    def in_order(self, work: Callable[[], Value], then: Callable[[Future[Value]], None]) -> None:
        self._threads.submit(work).add_done_callback(partial(self.on_loop, then))

    def on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        if not self._closes:
            self.loop.call_soon_threadsafe(call, *arguments)

    # The controller.

    def _sent(self, requests: Sequence[ControlRequest]) -> None:
        for request in requests:
            errors = (
                whole(self.broker.apply_controller_request(request, {T: {}}, self.now()))
                if request.broker == US
                else {}
            )
            self._thread.put_event(events.Answered(request, errors))
        self.settle()

    def send_to_own_controller(self, query: events.AlterPartitions, ended: Callable[[object], None]) -> None:
        assert self.controller_id == US
        if self.faults:
            query.error = self.faults.pop(0) or ErrorCode.NETWORK_EXCEPTION
            self.loop.call_soon(ended, query)
            return
        self.pending[query] = ended
        self._thread.put_event(query)

    def _answered(self, query: events.ControllerQuery[Any]) -> None:
        self.pending.pop(query)(query)

    @property
    def controller_id(self) -> BrokerId:
        return self.broker.view.controller

    async def answer(self, received: ReceivedRequest, writer: Writer) -> None:
        """Serve a connection of the other broker."""
        assert received.api_key == 56
        self.versions.append(received.version)
        fault = self.faults.pop(0) if self.faults else ErrorCode.NONE
        if fault is None:
            writer.close()
            return
        topics: list[ResponseTopicData] = []
        if not fault:
            request = decode(AlterPartitionRequest, received.version, received._rest, 1)
            query, _ = from_message(request, received.version, {TOPIC_ID: T})
            self.requested.append([one.partition for one in query.proposals])
            await self.may_answer.wait()
            done: asyncio.Future[object] = self.loop.create_future()
            self.pending[query] = done.set_result
            self._thread.put_event(query)
            await done
            fault, answers = query.error, query.answer or {}
            parts = [_part(one.partition, partition) for one, partition in answers.items()]
            topics = [ResponseTopicData(topic_name=T, topic_id=TOPIC_ID, partitions=parts)]
        response = AlterPartitionResponse(throttle_time_ms=0, error_code=fault, topics=topics)
        writer.write(framed(received.correlation_id, b"\0" + encode(response, received.version)))
        await writer.drain()

    # Start and stop.

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        async with Peer(self.answer) as peer:
            layout.ensure_startup_paths(self.tree)
            for one in (US, OTHER):
                info = layout.encode_broker(BrokerInfo(one, (peer.endpoint,)), TimestampMs(NOW_MS))
                self.tree.create(layout.broker(one), info, ephemeral=True)
            stat = self.tree.exists(layout.broker(US))
            assert stat is not None
            self.broker.controlled.broker_epoch = stat.czxid
            topic = TopicAssignment(dict.fromkeys(range(PARTITIONS), (US, OTHER)), TOPIC_ID)
            self.tree.multi([Create(layout.topic(T), layout.encode_topic(topic))])
            channels = BrokerChannels(self.loop, f"broker-{US}", self.broker.view, "PLAINTEXT", None)
            senders = BrokerRequests(self, self.broker, channels).alter_partitions, self.send_to_own_controller
            self.changes = IsrChanges(self, self.broker, self.tree, self._unless_closed, *senders)
            self._thread.start()
            try:
                await until(lambda: len(self.broker.partitions) == PARTITIONS and T in self.broker.view.topics)
                yield self
            finally:
                self._closes = True
                self._thread.close()
                channels.close()
                self._threads.shutdown()
                self.tree.close()
            assert not self._failures

    def _unless_closed(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._closes:
            call(*arguments)
            self.settle()

    # Events.

    @property
    def leading(self) -> Leading:
        return self.broker.leader(T, 0)

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """Return the committed ISR as known by the leader."""
        assert self.leading.in_sync is not None
        return self.leading.in_sync.committed.isr

    @property
    def shown(self) -> tuple[BrokerId, ...]:
        """Return the ISR that clients see."""
        return self.broker.view.topics[T].partitions[0].isr

    def state(self, index: int = 0) -> LeaderAndIsr:
        data, stat = self.tree.get(layout.partition_state(T, index))
        found = layout.decode_partition_state(data)
        return LeaderAndIsr(
            found.leader, found.leader_epoch, found.isr, found.recovery, found.controller_epoch, stat.version
        )

    def produce(self, index: int = 0) -> None:
        leading = self.broker.leader(T, index)
        self.broker.stage(leading, batch(b"a"), self.now(), all_replicas=False)
        self.broker.commit(self.now())

    def follower_fetches(self, *indexes: int) -> None:
        for index in indexes or range(PARTITIONS):
            leading = self.broker.leader(T, index)
            leading.fetched(OTHER, leading.log.end_offset, Offset(0), self.now())
        self.settle()

    def time_passes(self, ms: int = 1000) -> None:
        self.harness.pass_time(ms)
        self.settle()

    def follower_falls_behind(self, *indexes: int) -> None:
        """Let the follower lag in one partition, and fetch all others."""
        self.follower_fetches()
        for index in indexes or (0,):
            self.produce(index)
        self.time_passes(LAG_MS_MAX + 1000)
        self.harness.run_housekeeping()
        self.settle()

    async def becomes(self, *isr: BrokerId) -> None:
        """Wait until the leader knows this ISR, while time passes."""

        def is_so() -> bool:
            if self.isr != isr:
                self.time_passes(50)
            return self.isr == isr

        await until(is_so)

    async def is_shown(self, *isr: BrokerId) -> None:
        def is_so() -> bool:
            self.time_passes(500)
            return self.shown == isr

        await until(is_so)


def _part(index: int, answer: events.AlteredPartition) -> ResponsePartitionData:
    state = answer.state or LeaderAndIsr(US, 0, ())  # type: ignore[arg-type]
    return ResponsePartitionData(
        partition_index=index,
        error_code=answer.error,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
    )


def play_story(folder: Path, version: str, controller: BrokerId, story: Callable[[World], Any]) -> None:
    async def work() -> None:
        async with World(folder, version, controller).running() as world:
            await story(world)

    run(work)


WAYS = [
    pytest.param("3.9", US, set(), id="our own controller"),
    pytest.param("3.9", OTHER, {3}, id="another broker"),
    pytest.param("2.7", OTHER, {0}, id="another broker, of 2.7"),
    pytest.param("2.6", OTHER, set(), id="the tree"),
    pytest.param("0.11.0", US, set(), id="the tree, and our own controller reads it"),
]


@pytest.mark.parametrize(("version", "controller", "versions"), WAYS)
def test_isr_shrinks_and_expands(tmp_path: Path, version: str, controller: BrokerId, versions: set[int]) -> None:
    async def story(world: World) -> None:
        world.follower_falls_behind()
        assert world.leading.positions.high_watermark == 0
        await world.becomes(US)
        assert world.leading.positions.high_watermark == 1
        await world.is_shown(US)
        world.follower_fetches()
        await world.becomes(US, OTHER)
        await world.is_shown(US, OTHER)
        state = world.state()
        assert (state.isr, state.partition_epoch, state.controller_epoch) == ((US, OTHER), 2, 1)
        await until(lambda: not world.tree.children(layout.ISR_CHANGES))
        assert set(world.versions) == (
            {3 if version == "3.9" else 0} if controller == OTHER and version > "2.6" else set()
        )

    play_story(tmp_path, version, controller, story)


def test_a_leader_keeps_the_epoch_of_the_controller_that_elected_it(tmp_path: Path) -> None:
    """As in Kafka: controllers that the leader has learned of since do not matter."""

    async def story(world: World) -> None:
        newer = UpdateMetadata({}, {}, tuple(world.broker.view.brokers.values()), is_full=False)
        whole(world.broker.apply_controller_request(ControlRequest(US, -1, OTHER, 7, newer), {}, world.now()))
        world.follower_falls_behind()
        await world.becomes(US)
        assert (world.state().isr, world.state().controller_epoch) == ((US,), 1)

    play_story(tmp_path, "2.6", OTHER, story)


@pytest.mark.parametrize("controller", [US, OTHER])
def test_failed_isr_request_is_retried(tmp_path: Path, controller: BrokerId) -> None:
    async def story(world: World) -> None:
        world.faults = [ErrorCode.NOT_CONTROLLER, None, ErrorCode.STALE_BROKER_EPOCH, None]
        world.follower_falls_behind()
        await world.becomes(US)
        assert not world.faults
        assert world.state().partition_epoch == 1

    play_story(tmp_path, "3.9", controller, story)


def test_proposals_during_a_request_are_batched_into_the_next(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.may_answer.clear()
        world.follower_falls_behind(0)
        await until(lambda: bool(world.requested))
        for index in (1, 2):
            world.produce(index)
        world.time_passes(LAG_MS_MAX + 1000)
        world.harness.run_housekeeping()
        world.settle()
        assert world.broker.alter_partition.has_proposals
        world.may_answer.set()
        await world.becomes(US)
        await until(lambda: all(_isr_of(world, index) == (US,) for index in range(PARTITIONS)))
        assert world.requested == [[0], [1, 2]]

    play_story(tmp_path, "3.9", OTHER, story)


def _isr_of(world: World, index: int) -> tuple[BrokerId, ...]:
    return world.state(index).isr


def test_proposals_wait_for_a_known_controller(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.broker.view.controller = BrokerId(-1)
        world.follower_falls_behind()
        for _ in range(3):
            await asyncio.sleep(0)
            world.time_passes(60)
        assert world.isr == (US, OTHER)
        world.broker.view.controller = OTHER
        await world.becomes(US)

    play_story(tmp_path, "3.9", OTHER, story)


def test_lost_response_of_the_tree_is_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_SECONDS", 0.01)

    async def story(world: World) -> None:
        world.tree.loses_answers = 2
        world.follower_falls_behind()
        await world.becomes(US)
        assert world.state().partition_epoch == 1, "it is written once"
        await world.is_shown(US)

    play_story(tmp_path, "2.6", OTHER, story)


def test_unreachable_tree_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_SECONDS", 0.01)

    async def story(world: World) -> None:
        world.tree.is_down = True
        world.follower_falls_behind()
        for _ in range(20):
            await asyncio.sleep(0.01)
            world.time_passes(100)
        assert world.isr == (US, OTHER)
        assert world.leading.positions.high_watermark == 0
        world.tree.is_down = False
        await world.becomes(US)

    play_story(tmp_path, "2.6", OTHER, story)


def test_partition_with_another_leader_in_the_tree_is_not_written(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        theirs = layout.encode_partition_state(layout.PartitionState(OTHER, 5, 1, (OTHER,)))  # type: ignore[arg-type]
        world.tree.set(STATE, theirs)
        world.follower_falls_behind()
        await until(lambda: not world.broker.alter_partition.has_proposals)
        for _ in range(20):
            await asyncio.sleep(0.01)
            world.time_passes(100)
        assert world.isr == (US, OTHER), "that stands until the controller says who leads"
        assert world.leading.positions.high_watermark == 0
        assert world.tree.get(STATE)[0] == theirs

    play_story(tmp_path, "2.6", OTHER, story)
