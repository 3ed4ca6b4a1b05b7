"""Shell around the core: owns the loop, the clock and the threads, and executes the core's effects.

    bytes ──> Connection ──> dispatch ──> Broker
                                            │ take_effects(): syncs and changes, run in threads (effect_executor.py)
    answers <── Connection <── settle() <───┘ take_completed(): requests to answer now (completed_requests.py)

Everything except the effects runs on the loop's thread, so the core needs no lock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from odradek.api.conversation import Dispatch
from odradek.api.dispatch import dispatch
from odradek.api.request.gate import Gate, OpenGate
from odradek.base.tuples import new_tuple
from odradek.base.units import INT32_MAX, SECOND_MS, TimestampMs
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import AllocateProducerIds, AlterConfigs, Altered, Change, Changed
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.kernel.moment import Moment
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.net.cluster.config_watch import ConfigWatch, WatchedConfigs
from odradek.net.loop.active_connections import ActiveConnections
from odradek.net.loop.broker_timer import Ticking
from odradek.net.loop.descriptor_room import DescriptorRoom
from odradek.net.loop.descriptors import are_short
from odradek.net.loop.group_commit import GroupCommit
from odradek.net.loop.pools import Pool
from odradek.net.loop.slices import Slices
from odradek.net.loop.threads import Threads
from odradek.net.loop.traffic import Traffic
from odradek.net.loop.turns import Turns
from odradek.net.native.busy_poll import BusyPoll
from odradek.net.native.movers import Movers
from odradek.net.native.syncs import Syncs
from odradek.net.shell.cleaner_throttle import CleanerThrottle
from odradek.net.shell.completed_requests import CompletedRequests
from odradek.net.shell.effect_executor import Effects, Writers
from odradek.net.shell.outbox import Copies

if TYPE_CHECKING:
    from odradek.net.cluster.cluster_member import ClusterMember

log = logging.getLogger(__name__)

HOUSEKEEPING_MS = SECOND_MS
# A request no longer has a client after this time: request.timeout.ms is 30 s by default.
FINISH_SECONDS_MAX = 30
CLOSING_THREADS_MAX = 8
MOVERS_DEFAULT = 3  # num.network.threads

Result = TypeVar("Result")


class Shell:
    """Loop-side runtime of one broker; listeners are bound before `run` provides the broker.

    A wrapper may replace `dispatch`: a request log, or a fault that a test injects. Large requests bypass it
    (net/clients/large_produce_intake.py), except for APIs for which `must_dispatch_each` returns True.
    """

    broker: Broker
    member: ClusterMember  # Set before `run`.
    effects: Effects
    _answering: CompletedRequests
    _ticking: Ticking
    _syncs: Syncs
    _cleaner_throttle: CleanerThrottle

    def __init__(self, loop: asyncio.AbstractEventLoop, movers: int = MOVERS_DEFAULT) -> None:
        self.loop = loop
        self.movers = Movers(loop, movers)
        self.long_turns = Turns(loop)
        self.gathered = GroupCommit(self.settle)
        self.dispatch: Dispatch = dispatch
        self.must_dispatch_each: Callable[[int], bool] = _dispatches_none
        self.gate: Gate = OpenGate()
        self.around_entries: AbstractContextManager[None] = nullcontext()  # Entered around each turn of accepting.
        self.busy_poll: BusyPoll | None = None  # Set in a process that runs nothing else.
        self.active_connections = ActiveConnections()
        self.traffic = Traffic()
        self.on_answered = self.traffic.on_answered
        self.copies = Copies()
        self.room = DescriptorRoom(loop, self._release_files)
        self._threads = Threads(loop)
        self._slices = Slices(loop, self.settle)
        self._housekeeping = Slices(loop, self.settle)  # Separate from `_slices`, so that neither waits for the other.
        self._watched_configs: WatchedConfigs | None = None
        self._is_running = self._is_stopped = False
        self._all_finished: asyncio.Future[None] | None = None  # Set while the broker stops.

    def run(
        self,
        broker: Broker,
        change_metadata: Callable[[Change], Changed],
        take_ids: Callable[[AllocateProducerIds], ProducerIdBlock | None],
        alter_configs: Callable[[AlterConfigs, TimestampMs], Altered],
    ) -> None:
        """Start working with this broker; the other arguments write to the metadata tree, in a thread."""
        self.broker = broker
        self._cleaner_throttle = CleanerThrottle(lambda: broker.configs.float("log.cleaner.io.max.bytes.per.second"))
        writers = Writers(change_metadata, take_ids, alter_configs)
        self.effects = Effects(self, broker, self.member, writers, clean=self._clean, syncs=self.traffic.syncs)
        self._syncs = Syncs(self.loop, self.effects.on_synced)
        self.effects.begin_sync = self._syncs.start_sync
        self._answering = CompletedRequests(broker.purgatory, self.now, self.settle, soon=self.soon, around=self.copies)
        self._ticking = Ticking(
            self.loop,
            broker,
            self.now,
            self.settle,
            start_housekeeping=self._start_housekeeping,
            housekeeping_ms=HOUSEKEEPING_MS,
        )
        self._is_running = True
        self.settle()
        self._threads.load_code()

    def watch_configs(self, watch: ConfigWatch) -> None:
        """Apply configuration changes made by other brokers, until this broker stops."""
        self._watched_configs = WatchedConfigs(self, self.broker, watch)

    def now(self) -> Moment:
        # Equivalent to Moment(...) in half the time, as every turn begins with it.
        return new_tuple(Moment, (time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000))

    def settle(self) -> None:
        """Answer completed requests, start the core's effects and set the timer; called after every event."""
        if self.gathered.has_waiting:
            self.gathered.flush_if_many()
            return  # Called again when the gathered connections are answered.
        if not self._is_stopped:
            self.member.start_requested_work()
        completed = self.broker.purgatory.take_completed()
        if completed:
            self._answering.answer(completed)
        if self._is_stopped:
            return  # Threads accept no more work.
        for effect in self.broker.take_effects():
            self.effects.start(effect)
        self._ticking.set()
        if self._all_finished is not None and not (self._is_finishing or self._all_finished.done()):
            self._all_finished.set_result(None)

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Future[Result]], None], pool: Pool = Pool.READS
    ) -> None:
        """Run slow work in a thread; `then` receives its completed future on the loop."""
        self._threads.in_thread(work, then, pool)

    def in_order(self, work: Callable[[], Result], then: Callable[[Future[Result]], None]) -> None:
        """Run work in the metadata tree's thread, after all work queued there; `then` as in `in_thread`."""
        self._threads.in_order(work, then)

    def add_slices(self, work: Iterator[None]) -> None:
        """Run long work of the core in slices, after other such work."""
        self._slices.add(work)

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` after all other pending work has had a turn."""
        self.loop.call_soon(work)

    def _release_files(self, count: int, below: int) -> int:
        if not self._is_running:
            return 0
        released = self.broker.release_files(count, below)
        self.soon(self.settle)  # Some files may have to be synced first.
        return released

    def read_failed(self, path: str, error: OSError) -> None:
        """Take this file's partition offline, unless it was truncated since; fail its waiting requests."""
        directory = path.rpartition("/")[0]
        for name, partition in self.broker.partitions.items():
            if partition.is_online and partition.log.directory == directory:
                if partition.was_cut_since(path, error):
                    return
                log.error("%s is offline: failed to read its log: %s", name, error)
                partition.take_offline(error)
                self.broker.purgatory.happened(name)
                self.soon(self.settle)

    async def controlled_shutdown(self) -> None:
        """Move this broker's leaderships to other brokers of the cluster, while it continues to serve."""
        await self.member.controlled_shutdown()

    async def finish_writing(self) -> None:
        """Wait until all writes are synced, all metadata changes are complete, and both are answered.

        No new requests may be accepted any more. If a broker stops sooner, an idempotent producer sends batches again
        that are already in the log at the next start. This method stops waiting if a disk hangs.
        """
        # After their first start, logs that come from Kafka know only the last batch of each producer, as Kafka's
        # snapshots contain no more. The responses must therefore be sent before the connections close.
        self._all_finished = self.loop.create_future()
        self.settle()
        await asyncio.wait([self._all_finished], timeout=FINISH_SECONDS_MAX)
        if not self._all_finished.done():
            log.error("failed to sync all writes within %d s; requests that wait for them fail", FINISH_SECONDS_MAX)

    @property
    def _is_finishing(self) -> bool:
        is_writing = self.effects.are_changing or self._slices.is_under_way or self.broker.is_writing
        return is_writing or self._answering.is_under_way

    def leave(self) -> None:
        """Stop sending and receiving as a member of a cluster."""
        self.member.close()

    def stop_answering(self) -> None:
        """Complete all parked requests with their current result."""
        self._slices.finish()
        self._housekeeping.drop()
        self._stop_working()
        self._answering.finish()

    def _stop_working(self) -> None:
        if self._watched_configs is not None:
            self._watched_configs.stop()
        self._is_stopped = True
        self._threads.close()
        self.room.stop()
        self._ticking.stop()

    def stop(self) -> None:
        """Wait for all threads, then close the logs; the loop may stop afterwards."""
        self.movers.stop()
        self._syncs.stop()
        self._stop_cleaner()
        self._threads.stop()
        now = self.now()
        if are_short():  # Each log opens some files as it closes.
            self.broker.release_files(len(self.broker.partitions), INT32_MAX)
        with ThreadPoolExecutor(CLOSING_THREADS_MAX, thread_name_prefix="odradek-closing") as threads:
            closings = [closing for directory in self.broker.storage for closing in directory.begin_close(now.wall)]
            for _ in threads.map(lambda closing: closing.run(), closings):
                pass
        for problem in self.broker.stop(now):
            log.error("unclean shutdown: %s", problem)

    def _stop_cleaner(self) -> None:
        self.broker.cleaner.stop()
        self._cleaner_throttle.stop()

    def abandon(self) -> None:
        """Stop without notifying anyone: threads finish their current work, and the logs are left as they are."""
        self._stop_working()
        self._answering.stop()
        self.movers.stop()
        self._syncs.stop()
        self._stop_cleaner()
        self._slices.drop()
        self._housekeeping.drop()
        self._threads.stop(cancels=True)
        for directory in self.broker.storage:
            directory.abandon()

    def _clean(self, step: Clean) -> Cleaned:
        return step.run(self._cleaner_throttle)

    def _start_housekeeping(self, now: Moment) -> None:
        self.room.make_room_if_short()
        if not self._housekeeping.is_under_way:
            self._housekeeping.add(self.broker.run_housekeeping(now))


def _dispatches_none(api_key: int) -> bool:
    return False
