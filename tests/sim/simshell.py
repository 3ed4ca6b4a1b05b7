"""The shell around the core in the simulation: what net/shell is to asyncio and threads.

It carries out what the core asks (core/effects) in simulated threads, answers what was completed, ticks, and has the
periodic tasks done, in slices between which others have their turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random

from odradek.api.conversation import Conversation, Dispatch
from odradek.api.dispatch import dispatch
from odradek.api.gate import Gate, OpenGate
from odradek.base.units import SECOND_MS
from odradek.core.broker import Broker
from odradek.core.cleaning import Clean, Cleaned
from odradek.core.cluster import TopicInfo
from odradek.core.coordinators.shards import Load
from odradek.core.effects import (
    Change,
    Changed,
    Chores,
    CreateTopics,
    DeleteTopics,
    Effect,
    GrowTopics,
    TakeProducerIds,
    Work,
)
from odradek.core.flushes import Sync, Synced
from odradek.core.log_starts import WriteStarts, WroteStarts
from odradek.core.lookups import Lookup
from odradek.core.moment import Moment
from odradek.core.moving import Copying
from odradek.core.storage import NoDirectory
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.log.disk import FileSlice
from odradek.net.metadata import Metadata
from odradek.net.pools import Pool
from odradek.wire.request import Request
from sim.simclock import MILLISECOND_US, Action, SimNode, Timer
from sim.simconnection import SimConnection
from sim.simtelling import SimTelling
from sim.simthreads import CHANGES, SimThreads

HOUSEKEEPING_MS = SECOND_MS
GATHERED_SHARE = 0.3  # Of turns whose commit is put off.
GATHERED_US = 300


class SimShell:
    """One process of a broker.  Satisfies api.conversation.Host."""

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
        """`epoch` rises with each process of the broker; `change` writes to the metadata tree."""
        self.random = random
        self.broker = broker
        self.dispatch: Dispatch = dispatch
        self.gate: Gate = OpenGate()
        # A test breaks these on purpose.
        self.run_sync: Callable[[Sync], Synced] = Sync.run
        self.read_slice: Callable[[FileSlice], bytes] = FileSlice.read
        self.run_clean: Callable[[Clean], Cleaned] = clean
        self.watch_cleaner: Callable[[Clean | Cleaned], None] = lambda _: None  # Told before and after each step.
        self.connections: dict[SimConnection, None] = {}
        self.threads = SimThreads(node, random)
        self.end_process: Action = lambda: None  # Called when the last data directory has failed.
        self._node = node
        self._metadata = metadata
        self._change = change
        self._gathered: list[SimConnection] = []
        self._timer: Timer | None = None
        self._timer_due = 0
        self._next_housekeeping = 0
        self._slices: deque[Iterator[None]] = deque()  # Of what the controller tells; the first is under way.
        self._telling = SimTelling(broker, epoch, self.threads, self.now, self._add_slices)
        self._house: Iterator[None] | None = None
        self._changes_under_way = 0
        self.is_stopped = False

    # What connections ask of it.

    def now(self) -> Moment:
        return self._node.now()

    def soon(self, action: Action) -> None:
        self._node.soon(action)

    def after(self, delay_us: int, action: Action) -> None:
        self._node.after(delay_us, action)

    def wants_each(self, api_key: int) -> bool:
        return False

    def answered(self, request: Request, began: float) -> None:
        """Nobody counts."""

    def forget(self, connection: SimConnection) -> None:
        self.connections.pop(connection, None)
        if connection in self._gathered:
            self._gathered.remove(connection)

    def gathers(self, connection: SimConnection) -> bool:
        """True if what the connection has staged is written later, with what others stage (net/gathering)."""
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
        """After anything happened: answer what can be answered, start what the core asked for, set the timer."""
        if self._gathered:
            return  # It comes back when they have been answered.
        self._answer()
        if self.is_stopped:
            return
        for effect in self.broker.take_effects():
            self._start(effect)
        self._set_timer()

    def _answer(self) -> None:
        now, owners = self.now(), dict[Conversation, None]()
        while completed := self.broker.lot.take_completed():
            for parked in completed:
                owner = parked.owner
                assert isinstance(owner, Conversation), "only conversations park requests"
                owner.answer_parked(parked, now)  # type: ignore[arg-type]  # What they park was encoded by dispatch.
                owners[owner] = None
        for owner in owners:
            owner.send()

    def _start(self, effect: Effect) -> None:
        match effect:
            case Sync():
                self.threads.submit(Pool.SYNCS, lambda: self.run_sync(effect), self._synced)
            case Chores():
                self.threads.submit(Pool.CHORES, effect.run, self._chores_ended)
            case Work():
                self.threads.submit(Pool.WORK, effect.run, lambda _: self._worked(effect))
            case Load():
                self.threads.submit(Pool.LOADS, effect.run, self._then(self.broker.loaded))
            case Lookup():
                self.threads.submit(Pool.READS, effect.run, self._then(lambda found, _: self.broker.looked_up(found)))
            case Clean() | Copying() | WriteStarts():
                self._start_on_logs(effect)
            case TakeProducerIds():
                self._changes_under_way += 1
                self.threads.submit(Pool.PRODUCER_IDS, lambda: self._take_ids(effect), self._took_ids)
            case CreateTopics() | GrowTopics() | DeleteTopics():
                self._changes_under_way += 1
                self.threads.submit(CHANGES, lambda: self._change(effect), self._change_ended)

    def _start_on_logs(self, effect: Clean | Copying | WriteStarts) -> None:
        match effect:
            case Clean():
                self.watch_cleaner(effect)
                self.threads.submit(Pool.CLEANER, lambda: self.run_clean(effect), self._then(self._cleaned))
            case Copying():
                self.threads.submit(Pool.MOVES, effect.run, self._then(self.broker.copied))
            case WriteStarts():
                self.threads.submit(Pool.SYNCS, effect.run, self._then(self._wrote_starts))

    def _then(self, event: Callable[..., None]) -> Callable[[object], None]:
        """Tells the broker of what has ended."""

        def ended(result: object) -> None:
            event(result, self.now())
            self.settle()

        return ended

    def _cleaned(self, cleaned: Cleaned, now: Moment) -> None:
        self.broker.cleaned(cleaned, now)
        self.watch_cleaner(cleaned)

    def _wrote_starts(self, wrote: WroteStarts, now: Moment) -> None:
        for _ in self.broker.wrote_starts(wrote, now):
            pass

    def _synced(self, synced: Synced) -> None:
        self.broker.synced(synced, self.now())
        self.settle()

    def _chores_ended(self, failures: list[OSError]) -> None:
        """What failed is tried again by the next round."""
        self.broker.chores_ended(self.now())
        self.settle()

    def _worked(self, work: Work) -> None:
        work.ended()
        self.settle()

    def _take_ids(self, effect: TakeProducerIds) -> ProducerIdBlock | None:
        return self._metadata.take_producer_ids(self.broker.id, effect)

    def _took_ids(self, block: ProducerIdBlock | None) -> None:
        self._changes_under_way -= 1
        self.broker.took_ids(block)
        self.settle()

    def _change_ended(self, changed: Changed) -> None:
        self._changes_under_way -= 1
        self._telling.add(changed)
        self.settle()

    def hear(self, topics: Iterable[TopicInfo]) -> None:
        """Has the controller tell what there is, now that the process has started."""
        self._telling.begin(topics)
        self.settle()

    def _add_slices(self, slices: Iterator[None]) -> None:
        self._slices.append(slices)
        if len(self._slices) == 1:
            self._next_slices()

    def _next_slices(self) -> None:
        """Some slices of what is under way."""
        for _ in range(self.random.randrange(1, 6)):
            if next(self._slices[0], self) is self:
                self._slices.popleft()
                break
        self.settle()
        if self._slices:
            self.soon(self._next_slices)

    # Time.

    def _set_timer(self) -> None:
        deadline = self.broker.next_due()
        due = self._next_housekeeping if deadline is None else min(deadline, self._next_housekeeping)
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._node.after(max(due - self.now().steady, 0) * MILLISECOND_US, self._tick)

    def _tick(self) -> None:
        now = self.now()
        self._timer = None
        self.broker.tick(now)
        if now.steady >= self._next_housekeeping:
            self._next_housekeeping = now.steady + HOUSEKEEPING_MS
            if self._house is None:
                self._house = self.broker.keep_house(now)
                self._keep_house()
        self.settle()

    def _keep_house(self) -> None:
        """Some steps of the periodic tasks."""
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
        return bool(self._changes_under_way or self._slices or self._gathered or self.broker.is_writing)

    def stop_answering(self) -> None:
        """Completes all parked requests with what is known now."""
        for slices in self._slices:
            for _ in slices:
                pass
        self.is_stopped = True
        self.broker.lot.complete_all()
        self._answer()


def clean(step: Clean) -> Cleaned:
    """Takes a step of a pass that nothing holds back."""
    return step.run(lambda _: None)
