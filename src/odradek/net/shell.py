"""The shell around the core: it owns the loop, the clock and the threads, and carries out what the core asks.

    bytes ──> Connection ──> dispatch ──> Broker
                                            │ take_effects(): syncs and changes, done in threads
    answers <── Connection <── settle() <───┘ take_completed(): requests that can be answered now

Everything but the effects happens on the loop's thread, so the core needs no lock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.api.conversation import Dispatch
from odradek.api.dispatch import dispatch
from odradek.api.gate import Gate, OpenGate
from odradek.api.outcome import Encoded
from odradek.api.table import BY_KEY, Api
from odradek.base.tuples import new_tuple
from odradek.base.units import INT32_MAX, SECOND_MS, TimestampMs
from odradek.core import topic_log
from odradek.core.altering import put_in_force, put_news_in_force
from odradek.core.broker import Broker
from odradek.core.cleaning import Clean, Cleaned
from odradek.core.coordinators.shards import Load, Loaded
from odradek.core.effects import (
    AlterConfigs,
    Altered,
    Change,
    Changed,
    Chores,
    DiskWait,
    Effect,
    TakeProducerIds,
    Work,
    all_refused,
    none_altered,
)
from odradek.core.flushes import Sync, Synced
from odradek.core.log_starts import WriteStarts, WroteStarts
from odradek.core.lookups import LookedUp, Lookup
from odradek.core.moment import Moment
from odradek.core.moving import Copying
from odradek.core.parked import Parked
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.net.busy_poll import BusyPoll
from odradek.net.cleaning import CleanerThrottle
from odradek.net.descriptors import are_short, has_run_out
from odradek.net.gathering import Gathered
from odradek.net.heard import Heard
from odradek.net.movers import Movers
from odradek.net.outbox import Copies
from odradek.net.pools import Closed, Pool, Pools
from odradek.net.room import Room
from odradek.net.slices import Slices
from odradek.net.syncs import Syncs
from odradek.net.traffic import Traffic
from odradek.net.turns import Turns

if TYPE_CHECKING:
    from odradek.net.cluster_member import ClusterMember
    from odradek.net.config_watch import ConfigWatch

log = logging.getLogger(__name__)

HOUSEKEEPING_MS = SECOND_MS
HEAR_AGAIN_SECONDS = 1.0  # After the tree could not be reached.
# By then a request has no client any more: request.timeout.ms is 30 s by default.
FINISH_SECONDS_MAX = 30
# What one event has completed, a record that a thousand wait for, is answered in slices; each answer takes 50 us.
ANSWERING_SECONDS = 0.003  # Sending them takes as long again.
ANSWERS_PER_LOOK = 16  # Before the clock is looked at.
LATE_MS = 100  # A timer that is so late shows that the loop was held up.
CLOSING_THREADS_MAX = 8
MOVERS_DEFAULT = 3  # num.network.threads

Result = TypeVar("Result")


class Answerable(Protocol):
    """A conversation as the shell sees it: the owner of parked requests."""

    def answer_parked(self, parked: Parked[Encoded], now: Moment) -> None: ...

    def send(self) -> None: ...


class Shell:
    """The loop's side of one broker.  Listeners are bound before there is a broker; `run` gives it.

    `dispatch` may be replaced by a wrapper: a request log, a fault that a test injects.  Large requests pass it by
    (intake.py), except for APIs for which `wants_each` is True.
    """

    broker: Broker
    member: ClusterMember  # Set before `run`.
    _change_metadata: Callable[[Change], Changed]
    _alter_configs: Callable[[AlterConfigs, TimestampMs], Altered]
    _take_ids: Callable[[TakeProducerIds], ProducerIdBlock | None]
    _cleaner_throttle: CleanerThrottle

    def __init__(self, loop: asyncio.AbstractEventLoop, movers: int = MOVERS_DEFAULT) -> None:
        self.loop = loop
        self.movers = Movers(loop, movers)
        self.long_turns = Turns(loop)
        self.gathered = Gathered(self.settle)
        self._syncs = Syncs(loop, self._synced)
        self.dispatch: Dispatch = dispatch
        self.wants_each: Callable[[int], bool] = _wants_none
        self.gate: Gate = OpenGate()
        self.around_entries: AbstractContextManager[None] = nullcontext()  # Entered around each turn of accepting.
        self.busy_poll: BusyPoll | None = None  # Set in a process that has nothing else to do.
        self.heard = Heard()
        self.traffic = Traffic()
        self.answered = self.traffic.answered
        self.copies = Copies()
        self.room = Room(loop, self._release_files)
        self._pools = Pools()
        self._slices = Slices(loop, self.settle)
        # One at a time, so that changes end, and come back, in the order in which they were asked for.
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="odradek-metadata")
        self._config_watch: ConfigWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._is_late = False
        self._next_housekeeping = 0
        self._completed: deque[Parked[object]] = deque()  # Requests that are completed and not answered yet.
        self._answers_on = False  # `_answer_on` is scheduled.
        self._housekeeping = Slices(loop, self.settle)  # Apart from `_slices`: neither waits for the other.
        self._is_running = self._is_stopped = False
        self._lacks_descriptors = False  # The last chores found none left, and it was logged.
        self._changes_under_way = 0  # Changes of the metadata tree, and blocks of producer ids.
        self._all_finished: asyncio.Future[None] | None = None  # Set while the broker stops.

    def run(
        self,
        broker: Broker,
        change_metadata: Callable[[Change], Changed],
        take_ids: Callable[[TakeProducerIds], ProducerIdBlock | None],
        alter_configs: Callable[[AlterConfigs, TimestampMs], Altered],
    ) -> None:
        """Takes the broker and begins to work; the others write to the metadata tree, in a thread."""
        self.broker = broker
        self._change_metadata = change_metadata
        self._alter_configs = alter_configs
        self._cleaner_throttle = CleanerThrottle(lambda: broker.configs.float("log.cleaner.io.max.bytes.per.second"))
        self._take_ids = take_ids
        self._is_running = True
        self.settle()
        self._load_next(list(reversed(BY_KEY.values())))

    def watch_configs(self, watch: ConfigWatch) -> None:
        """Puts in force what other brokers change in the configurations, from now on until the broker stops."""
        self._config_watch = watch
        watch.start(self._configs_changed)

    def _configs_changed(self) -> None:
        if not self._is_stopped:
            self.loop.call_soon_threadsafe(self._hear_configs)

    def _hear_configs(self) -> None:
        if self._config_watch is not None:
            self.in_order(self._config_watch.read, self._heard_configs)

    def _heard_configs(self, done: Future[Altered | None]) -> None:
        failure = done.exception()
        if isinstance(failure, AssertionError):
            raise failure
        if failure is not None:
            log.error("changed configurations could not be read here", exc_info=failure)
        heard = None if failure is not None else done.result()
        if heard is None:
            self.loop.call_later(HEAR_AGAIN_SECONDS, self._hear_configs)
        else:
            self._slices.add(put_news_in_force(self.broker, heard, self.now()))

    def _load_next(self, apis: list[Api]) -> None:
        """Loads the code of one API after the other, in a thread: some take 20 ms, and nobody waits for all of them."""
        if apis:
            with suppress(Closed):
                self._when_done(self._pools.submit(Pool.CHORES, apis[-1].load), partial(self._loaded, apis))

    def _loaded(self, apis: list[Api], done: Future[None]) -> None:
        failure = done.exception()
        if failure is None:
            apis.pop()
            self._load_next(apis)
        elif isinstance(failure, OSError):  # No descriptor is left to read the code with.
            log.warning("code for %s could not be loaded and will be: %s", apis[-1].key.title, failure)
            self.loop.call_later(HOUSEKEEPING_MS / SECOND_MS, self._load_next, apis)
        else:
            raise failure

    def now(self) -> Moment:
        # As Moment(...), in half of the time: every turn begins with it.
        return new_tuple(Moment, (time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000))

    def settle(self) -> None:
        """Called after anything happened: answers completed requests, starts the core's effects, sets the timer."""
        if self.gathered.is_waited_for:
            self.gathered.flush_if_many()
            return  # Called again when the gathered connections are answered.
        if not self._is_stopped:
            self.member.take()
        completed = self.broker.lot.take_completed()
        if completed:
            self._completed.extend(completed)
            self._answer()
        if self._is_stopped:
            return  # Threads take nothing more.
        for effect in self.broker.take_effects():
            self._start(effect)
        self._set_timer()
        if self._all_finished is not None and not (self._is_writing or self._completed or self._all_finished.done()):
            self._all_finished.set_result(None)

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Future[Result]], None], pool: Pool = Pool.READS
    ) -> None:
        """Does slow work beside the loop; `then` gets its future, done, back on the loop."""
        if self._is_stopped:
            return
        try:
            future = self._pools.submit(pool, work)
        except Closed:  # The interpreter ends, and stops the broker last: there is nobody else to be served.
            future = _done_here(work)
        self._when_done(future, then)

    def _when_done(self, future: Future[Result], then: Callable[[Future[Result]], None]) -> None:
        future.add_done_callback(lambda done: self._back_on_loop(then, done))

    def in_order(self, work: Callable[[], Result], then: Callable[[Future[Result]], None]) -> None:
        """Does work in the thread of the metadata tree, behind all that it has to do; `then` is as of `in_thread`."""
        if not self._is_stopped:
            self._when_done(self._changes.submit(work), then)

    def add_slices(self, work: Iterator[None]) -> None:
        """Does long work of the core in slices, behind other such work."""
        self._slices.add(work)

    def soon(self, work: Callable[[], None]) -> None:
        """Calls `work` when everybody else has had a turn."""
        self.loop.call_soon(work)

    def _release_files(self, count: int, below: int) -> int:
        if not self._is_running:
            return 0
        released = self.broker.release_files(count, below)
        self.soon(self.settle)  # Some may have to be synced first.
        return released

    def read_failed(self, path: str, error: OSError) -> None:
        """Takes the partition of this file offline, unless it was cut since; requests that wait for it are told."""
        directory = path.rpartition("/")[0]
        for name, partition in self.broker.partitions.items():
            if partition.is_online and partition.log.directory == directory:
                if partition.was_cut_since(path, error):
                    return
                log.error("%s goes offline, it can't be read: %s", name, error)
                partition.take_offline(error)
                self.broker.lot.happened(name)
                self.soon(self.settle)

    async def hand_over(self) -> None:
        """Has other brokers of the cluster lead what this one leads; it serves meanwhile."""
        await self.member.hand_over()

    async def finish_writing(self) -> None:
        """Returns when all that was written is synced, all changes of the metadata have ended, and both are answered.

        Nothing new may be taken in any more.  A broker that stops sooner tells an idempotent producer to send again
        what the next start finds in the log.  It gives up when a disk hangs.
        """
        self._all_finished = self.loop.create_future()
        self.settle()
        await asyncio.wait([self._all_finished], timeout=FINISH_SECONDS_MAX)
        if not self._all_finished.done():
            log.error("%d s were not enough to sync what was written; who waits for it is told so", FINISH_SECONDS_MAX)

    @property
    def _is_writing(self) -> bool:
        return self._changes_under_way > 0 or self._slices.is_under_way or self.broker.is_writing

    def leave(self) -> None:
        """Hears and says nothing more as a member of a cluster."""
        self.member.close()

    def stop_answering(self) -> None:
        """Completes all parked requests with what is known now."""
        self._stop_config_watch()
        self._slices.finish()
        self._housekeeping.drop()
        self._is_stopped = True
        self.room.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.broker.lot.complete_all()
        self._completed.extend(self.broker.lot.take_completed())
        while self._completed:
            self._answer()

    def stop(self) -> None:
        """Waits for all threads, then closes the logs.  The loop may end afterwards."""
        self.movers.stop()
        self._syncs.stop()
        self._stop_cleaner()
        self._changes.shutdown(wait=True)
        self._pools.stop()
        now = self.now()
        if are_short():  # Each log opens some files as it closes.
            self.broker.release_files(len(self.broker.partitions), INT32_MAX)
        with ThreadPoolExecutor(CLOSING_THREADS_MAX, thread_name_prefix="odradek-closing") as threads:
            closings = [closing for directory in self.broker.storage for closing in directory.begin_close(now.wall)]
            for _ in threads.map(lambda closing: closing.run(), closings):
                pass
        for problem in self.broker.stop(now):
            log.error("not stopped cleanly: %s", problem)

    def _stop_cleaner(self) -> None:
        self.broker.cleaner.stop()
        self._cleaner_throttle.stop()

    def _stop_config_watch(self) -> None:
        if self._config_watch is not None:
            self._config_watch.stop()

    def abandon(self) -> None:
        """Ends without a word to anybody: threads finish what they have begun, and the logs are left as they are."""
        self._stop_config_watch()
        self._is_stopped = True
        self.room.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.movers.stop()
        self._syncs.stop()
        self._stop_cleaner()
        self._slices.drop()
        self._housekeeping.drop()
        self._changes.shutdown(wait=True, cancel_futures=True)
        self._pools.stop(cancels=True)
        for directory in self.broker.storage:
            directory.abandon()

    def _back_on_loop(self, then: Callable[[Future[Result]], None], done: Future[Result]) -> None:
        if not self._is_stopped:
            self.loop.call_soon_threadsafe(self._deliver, then, done)

    def _deliver(self, then: Callable[[Future[Result]], None], done: Future[Result]) -> None:
        if not self._is_stopped:
            then(done)

    def _answer(self) -> None:
        """Answers completed requests, first come, first served, until none is left or the slice is over."""
        owners: dict[Answerable, None] = {}
        now, end = self.now(), time.monotonic() + ANSWERING_SECONDS
        completed, lot = self._completed, self.broker.lot
        while completed:
            for _ in range(min(len(completed), ANSWERS_PER_LOOK)):
                parked = completed.popleft()
                owner: Answerable = parked.owner  # type: ignore[assignment]  # Only conversations park requests.
                owner.answer_parked(parked, now)  # type: ignore[arg-type]  # Dispatch encoded what they park.
                owners[owner] = None
            completed.extend(lot.take_completed())
            if time.monotonic() > end:
                break
        with self.copies:
            for owner in owners:
                owner.send()
        if completed and not self._answers_on and not self._is_stopped:
            self._answers_on = True
            self.loop.call_soon(self._answer_on)

    def _answer_on(self) -> None:
        self._answers_on = False
        if not self._is_stopped:
            self._answer()
            self.settle()

    def _start(self, effect: Effect) -> None:
        match effect:
            case Sync():
                if not self._syncs.begin(effect):
                    self.in_thread(lambda: _timed(effect), lambda done: self._synced(*done.result()), Pool.SYNCS)
            case Chores():
                self.in_thread(effect.run, self._chores_ended, Pool.CHORES)
            case Work():
                pool = Pool.READS if isinstance(effect, DiskWait) else Pool.WORK
                self.in_thread(effect.run, lambda _: self._worked(effect), pool)
            case Load():
                self.in_thread(effect.run, self._load_ended, Pool.LOADS)
            case Lookup():
                self.in_thread(effect.run, self._looked_up, Pool.READS)
            case Clean():
                self.in_thread(lambda: effect.run(self._cleaner_throttle), self._cleaned, Pool.CLEANER)
            case Copying():
                self.in_thread(effect.run, self._copied, Pool.MOVES)
            case WriteStarts():
                self.in_thread(effect.run, self._wrote_starts, Pool.SYNCS)
            case _:
                self._start_change(effect)

    def _start_change(self, effect: TakeProducerIds | Change | AlterConfigs) -> None:
        self._changes_under_way += 1
        match effect:
            case TakeProducerIds():
                self.in_thread(lambda: self._take_ids(effect), self._took_ids, Pool.PRODUCER_IDS)
            case AlterConfigs():
                altering = self._changes.submit(lambda: self._alter_configs(effect, self.now().wall))
                self._when_done(altering, partial(self._alter_ended, effect))
            case _ if self.member.forwards(effect):
                self._changes_under_way -= 1
            case _:
                changing = self._changes.submit(lambda: self._change(effect))
                self._when_done(changing, partial(self._change_ended, effect))

    def _change(self, change: Change) -> Changed:
        changed = self._change_metadata(change)
        topic_log.tell(change, changed)
        return changed

    def _synced(self, synced: Synced, seconds: float) -> None:
        self.traffic.syncs.add(seconds)
        self.broker.synced(synced, self.now())
        self.settle()

    def _chores_ended(self, done: Future[list[OSError]]) -> None:
        """Logs errors of chores, which the next round does again; that descriptors have run out is logged once."""
        lacked, self._lacks_descriptors = self._lacks_descriptors, False
        for failed in done.result():
            is_lack = has_run_out(failed)
            if not (is_lack and (lacked or self._lacks_descriptors)):
                log.warning("housekeeping failed and will be tried again: %s", failed)
            self._lacks_descriptors |= is_lack
        self.broker.chores_ended(self.now())
        self.settle()

    def _worked(self, work: Work) -> None:
        work.ended()
        self.settle()

    def _load_ended(self, done: Future[Loaded]) -> None:
        self.broker.loaded(done.result(), self.now())
        self.settle()

    def _looked_up(self, done: Future[LookedUp]) -> None:
        self.broker.looked_up(done.result())
        self.settle()

    def _cleaned(self, done: Future[Cleaned]) -> None:
        self.broker.cleaned(done.result(), self.now())
        self.settle()

    def _copied(self, done: Future[Copying]) -> None:
        self.broker.copied(done.result(), self.now())
        self.settle()

    def _wrote_starts(self, done: Future[WroteStarts]) -> None:
        self._slices.add(self.broker.wrote_starts(done.result(), self.now()))

    def _took_ids(self, done: Future[ProducerIdBlock | None]) -> None:
        self._changes_under_way -= 1
        failure = done.exception()
        if failure is not None:  # Waiting requests are told so, and the next one asks again.
            log.error("no producer ids can be had: %s", failure)
        self.broker.took_ids(None if failure is not None else done.result())
        self.settle()

    def _change_ended(self, change: Change, done: Future[Changed]) -> None:
        changed = self._ended(change, done) or all_refused(change)
        self.member.changed(change, changed)
        self.settle()

    def _alter_ended(self, change: AlterConfigs, done: Future[Altered]) -> None:
        altered = self._ended(change, done) or none_altered(change)
        self._slices.add(put_in_force(self.broker, altered, self.now()))

    def _ended(self, change: Change | AlterConfigs, done: Future[Result]) -> Result | None:
        """Returns the end of a change; None if it failed here, for a reason that is no client's fault."""
        self._changes_under_way -= 1
        failure = done.exception()
        if isinstance(failure, AssertionError):
            raise failure
        if failure is not None:
            log.error("%s failed here", type(change).__name__, exc_info=failure)
            return None
        return done.result()

    # One timer for all deadlines.

    def _set_timer(self) -> None:
        deadline = self.broker.next_due()
        if self._timer is not None:
            # A timer that comes too early finds nothing to do and sets the next: cheaper than moving it each time.
            if deadline is None or self._timer_due <= deadline:
                return
            self._timer.cancel()
        due = self._next_housekeeping if deadline is None else min(deadline, self._next_housekeeping)
        self._timer_due = due
        self._timer = self.loop.call_later(max(due - self.now().steady, 0) / SECOND_MS, self._tick)

    def _tick(self) -> None:
        now = self.now()
        if now.steady - self._timer_due > LATE_MS and not self._is_late:
            # Requests that came while the loop was held up are read first: no session ends for a silence that was ours.
            self._is_late = True
            self._timer = self.loop.call_later(1 / SECOND_MS, self._tick)
            return
        self._timer, self._is_late = None, False
        self.broker.tick(now)
        if now.steady >= self._next_housekeeping:
            self._next_housekeeping = now.steady + HOUSEKEEPING_MS
            self.room.look()
            if not self._housekeeping.is_under_way:
                self._housekeeping.add(self.broker.keep_house(now))
        self.settle()


def _wants_none(api_key: int) -> bool:
    return False


def _done_here(work: Callable[[], Result]) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        future.set_result(work())
    except Exception as failure:
        future.set_exception(failure)
    return future


def _timed(sync: Sync) -> tuple[Synced, float]:
    """Does a round of syncs; returns its result and how long the disk took."""
    began = time.monotonic()
    return sync.run(), time.monotonic() - began
