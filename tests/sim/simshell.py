"""The shell around the core in the simulation, like net/shell/shell with asyncio and threads.

Effects of the core are executed as in net/shell/effect_executor, in simulated threads; parked requests complete and
time passes as in net/shell/completed_requests and net/loop/broker_timer. Long work is done in slices, between which
other work runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from random import Random
from typing import TypeVar, cast

from odradek.api.conversation import Dispatch
from odradek.api.dispatch import dispatch
from odradek.api.request.gate import Gate, OpenGate
from odradek.base.units import SECOND_MS
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import AlterConfigs, Altered, Change, Changed, none_altered
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.disks.flushes import Sync, Synced
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.storage import NoDirectory
from odradek.log.files.disk import FileSlice
from odradek.net.cluster.tree_metadata import Metadata
from odradek.net.loop.broker_timer import Ticking
from odradek.net.loop.pools import Pool
from odradek.net.loop.traffic import Latencies
from odradek.net.shell.completed_requests import ANSWERING_SECONDS, CompletedRequests
from odradek.net.shell.effect_executor import Effects, Writers
from odradek.wire.request import Request
from sim.simclock import Action, SimNode
from sim.simconnection import SimConnection
from sim.simcontrollerupdates import SimControllerUpdates
from sim.simloop import SimLoop
from sim.simthreads import CHANGES, SimThreads
from support.at_once import done

T = TypeVar("T")

HOUSEKEEPING_MS = SECOND_MS
GATHERED_SHARE = 0.3  # Connections with a deferred commit.
GATHERED_US = 300


class SimShell:
    """One process of a broker; implements api.conversation.Host."""

    def __init__(
        self,
        node: SimNode,
        random: Random,
        broker: Broker,
        epoch: int,
        *,
        metadata: Metadata,
        change: Callable[[Change], Changed],
    ) -> None:
        """Create a process; `epoch` increases with each process of the broker, `change` writes to the tree."""
        self.random = random
        self.broker = broker
        self.dispatch: Dispatch = dispatch
        self.gate: Gate = OpenGate()
        # A test may inject bugs here.
        self.run_sync: Callable[[Sync], Synced] = Sync.run
        self.read_slice: Callable[[FileSlice], bytes] = FileSlice.read
        self.run_clean: Callable[[Clean], Cleaned] = clean
        self.watch_cleaner: Callable[[Clean | Cleaned], None] = lambda _: None  # Notified before and after each step.
        self.connections: dict[SimConnection, None] = {}
        self.threads = SimThreads(node, random)
        self.end_process: Action = lambda: None  # Called when the last data directory has failed.
        self._node = node
        self._gathered: list[SimConnection] = []
        self._slices: deque[Iterator[None]] = deque()  # Controller updates; the first one is being applied.
        self._controller_updates = SimControllerUpdates(broker, epoch, self.threads, self.now, self.add_slices)
        self._house: Iterator[None] | None = None
        writers = Writers(change, partial(metadata.take_producer_ids, broker.id), _alters_nothing)
        self._effects = Effects(self, broker, self._controller_updates, writers, clean=self._clean, syncs=Latencies())
        self._effects.begin_sync = self._begin_sync
        self._answering = CompletedRequests(
            broker.purgatory, self.now, self.settle, soon=self.soon, around=nullcontext(), seconds=self._seconds
        )
        self._ticking = Ticking(
            SimLoop(node),
            broker,
            self.now,
            self.settle,
            start_housekeeping=self._begin_house,
            housekeeping_ms=HOUSEKEEPING_MS,
        )
        self.is_stopped = False

    # Called by connections.

    def now(self) -> Moment:
        return self._node.now()

    def soon(self, action: Action) -> None:
        self._node.soon(action)

    def after(self, delay_us: int, action: Action) -> None:
        self._node.after(delay_us, action)

    def must_dispatch_each(self, api_key: int) -> bool:
        return False

    def on_answered(self, request: Request, began: float) -> None:
        """Ignore the response, since there are no metrics."""

    def forget(self, connection: SimConnection) -> None:
        self.connections.pop(connection, None)
        if connection in self._gathered:
            self._gathered.remove(connection)

    def gathers(self, connection: SimConnection) -> bool:
        """Return True if the connection's staged batches are written later, with others (net/loop/group_commit)."""
        if self.random.random() >= GATHERED_SHARE:
            return False
        if not self._gathered:
            self._node.after(self.random.randrange(GATHERED_US), self.flush_gathered)
        self._gathered.append(connection)
        return True

    def flush_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        for connection in gathered:
            connection.commit()
        if gathered:
            self.settle()

    # Events.

    def settle(self) -> None:
        """Complete requests, execute effects of the core, and set the timer, after any event."""
        if self._gathered:
            return  # The connection returns after the responses.
        completed = self.broker.purgatory.take_completed()
        if completed:
            self._answering.answer(completed)
        if self.is_stopped:
            return
        for effect in self.broker.take_effects():
            if isinstance(effect, Clean):
                self.watch_cleaner(effect)
            self._effects.start(effect)
        self._ticking.set()

    # Work outside the loop.

    def in_thread(self, work: Callable[[], T], then: Callable[[Future[T]], None], pool: Pool) -> None:
        self.threads.submit(pool, partial(done, work), partial(self._ended, then, pool))

    def _ended(self, then: Callable[[Future[T]], None], pool: Pool, future: Future[T]) -> None:
        then(future)
        if pool is Pool.CLEANER:
            self.watch_cleaner(cast("Cleaned", future.result()))

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        self.threads.submit(CHANGES, partial(done, work), then)

    def _begin_sync(self, sync: Sync) -> bool:
        self.threads.submit(
            Pool.SYNCS, lambda: self.run_sync(sync), lambda synced: self._effects.on_synced(synced, 0.0)
        )
        return True

    def _clean(self, step: Clean) -> Cleaned:
        return self.run_clean(step)

    def _seconds(self) -> float:
        """Return a random duration of answering, so that turns are long or short independently of their work."""
        return self.random.random() * 2 * ANSWERING_SECONDS

    def announce_topics(self, topics: Iterable[TopicInfo]) -> None:
        """Announce the existing topics as the controller does, now that the process has started."""
        self._controller_updates.begin(topics)
        self.settle()

    def add_slices(self, slices: Iterator[None]) -> None:
        self._slices.append(slices)
        if len(self._slices) == 1:
            self._next_slices()

    def _next_slices(self) -> None:
        """Run some slices of pending work."""
        for _ in range(self.random.randrange(1, 6)):
            if next(self._slices[0], self) is self:
                self._slices.popleft()
                break
        self.settle()
        if self._slices:
            self.soon(self._next_slices)

    # Time.

    def _begin_house(self, now: Moment) -> None:
        if self._house is None:
            self._house = self.broker.run_housekeeping(now)
            self._keep_house()

    def _keep_house(self) -> None:
        """Run some steps of the periodic tasks."""
        house = self._house
        assert house is not None
        try:
            for _ in range(self.random.randrange(1, 20)):
                if next(house, self) is self:
                    self._house = None
                    break
        except NoDirectory:
            self._house = None
            self._node.after(0, self.end_process)
        self.settle()
        if self._house is not None:
            self.soon(self._keep_house)

    # The end.

    @property
    def is_writing(self) -> bool:
        return bool(self._effects.are_changing or self._slices or self._gathered or self.broker.is_writing)

    def stop_answering(self) -> None:
        """Complete all parked requests with their current results."""
        for slices in self._slices:
            for _ in slices:
                pass
        self.is_stopped = True
        self._ticking.stop()
        self._answering.finish()


def _alters_nothing(change: AlterConfigs, _: object) -> Altered:
    return none_altered(change)


def clean(step: Clean) -> Cleaned:
    """Run a step of a pass without any delays."""
    return step.run(lambda _: None)
