"""Execution of the core's effects (core/broker/effects.py); each result returns to the broker.

    take_effects() ──> start ──> a thread: run() ──> the loop: an event of the broker's, then settle
                         └──> a change ──> the thread of the metadata tree ──> the member, which waits until it is seen

This module does not choose threads, loop or clock: the shell provides real ones, and simulated brokers provide
simulated ones. Everything else is the same for both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from odradek.base.units import TimestampMs
from odradek.core.broker import topic_log_lines as topic_log
from odradek.core.broker.broker import Broker
from odradek.core.broker.config_handlers import apply_altered_configs
from odradek.core.broker.effects import (
    AllocateProducerIds,
    AlterConfigs,
    Altered,
    Change,
    Changed,
    Effect,
    Event,
    all_refused,
    none_altered,
)
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.coordinators.shards import Load
from odradek.core.disks.flushes import Sync, Synced
from odradek.core.disks.log_dir_moves import Copying
from odradek.core.fetch.disk_waits import DiskWait
from odradek.core.kernel.chores import Chores, ChoresRun
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.work import Work
from odradek.core.partition.log_starts import StartsWritten, WriteStarts
from odradek.core.partition.lookups import Lookup
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.net.loop.descriptors import has_run_out
from odradek.net.loop.pools import Pool
from odradek.net.loop.traffic import Latencies

log = logging.getLogger(__name__)

T = TypeVar("T")


class Shell(Protocol):
    """Threads, loop and clock that execute the effects."""

    def now(self) -> Moment: ...

    def settle(self) -> None:
        """Process the consequences of an effect; called after each one ends."""

    def in_thread(self, work: Callable[[], T], then: Callable[[Future[T]], None], pool: Pool) -> None:
        """Run work in a thread; `then` receives its completed future on the loop."""

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Run work in the metadata tree's thread, after all work queued there; `then` as in in_thread."""

    def add_slices(self, work: Iterator[None]) -> None: ...


class Member(Protocol):
    """This broker's part in its cluster."""

    def forwards(self, change: Change) -> bool:
        """Forward the change to another broker, or return False if this broker makes it."""

    def changed(self, change: Change, changed: Changed) -> None:
        """Pass the result of a change on to its requester."""


class Writers(NamedTuple):
    """Functions that write to the metadata tree, in a thread."""

    change: Callable[[Change], Changed]
    take_ids: Callable[[AllocateProducerIds], ProducerIdBlock | None]
    alter_configs: Callable[[AlterConfigs, TimestampMs], Altered]


class Effects:
    """Effects of one broker that are under way."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        member: Member,
        writers: Writers,
        *,
        clean: Callable[[Clean], Cleaned],
        syncs: Latencies,
    ) -> None:
        """Create an executor without effects.

        `clean` runs a step of the log cleaner, in a thread; `syncs` records how long the disk takes.
        """
        self._shell = shell
        self._broker = broker
        self._member = member
        self.writers = writers
        self._clean = clean
        self._syncs = syncs
        # Starts a sync without a thread of a pool and calls `on_synced` at its end; False means that it needs a thread.
        self.begin_sync: Callable[[Sync], bool] = _needs_thread
        self._changes_under_way = 0
        self._lacks_descriptors = False  # The last chores found no descriptor left, and this was logged.

    @property
    def are_changing(self) -> bool:
        """Return whether a metadata tree change or a producer id allocation is under way."""
        return self._changes_under_way > 0

    def start(self, effect: Effect) -> None:
        """Start executing the effect."""
        shell = self._shell
        match effect:
            case Sync():
                if not self.begin_sync(effect):
                    shell.in_thread(lambda: _timed(effect), lambda done: self.on_synced(*done.result()), Pool.SYNCS)
            case Chores():
                shell.in_thread(effect.run, self._on_chores_run, Pool.CHORES)
            case Work():
                pool = Pool.READS if isinstance(effect, DiskWait) else Pool.WORK
                shell.in_thread(effect.run, lambda _: self._on_worked(effect), pool)
            case Load():
                shell.in_thread(effect.run, self._on_completed, Pool.LOADS)
            case Lookup():
                shell.in_thread(effect.run, self._on_completed, Pool.READS)
            case Clean():
                shell.in_thread(lambda: self._clean(effect), self._on_completed, Pool.CLEANER)
            case Copying():
                shell.in_thread(effect.run, self._on_completed, Pool.MOVES)
            case WriteStarts():
                shell.in_thread(effect.run, self._on_starts_written, Pool.SYNCS)
            case _:
                self._start_change(effect)

    def _start_change(self, effect: AllocateProducerIds | Change | AlterConfigs) -> None:
        self._changes_under_way += 1
        shell, writers = self._shell, self.writers
        match effect:
            case AllocateProducerIds():
                shell.in_thread(lambda: writers.take_ids(effect), self._on_ids_allocated, Pool.PRODUCER_IDS)
            case AlterConfigs():
                work = partial(self._alter, effect)
                shell.in_order(work, partial(self._on_altered, effect))
            case _ if self._member.forwards(effect):
                self._changes_under_way -= 1
            case _:
                shell.in_order(lambda: self._change(effect), partial(self._on_changed, effect))

    # Executed in threads.

    def _change(self, change: Change) -> Changed:
        changed = self.writers.change(change)
        topic_log.log_topic_change(change, changed)
        return changed

    def _alter(self, change: AlterConfigs) -> Altered:
        return self.writers.alter_configs(change, self._shell.now().wall)

    # End of each effect.

    def on_synced(self, synced: Synced, seconds: float) -> None:
        """Process the end of a sync and the time that the disk took."""
        self._syncs.add(seconds)
        self._complete(synced)

    def _on_completed(self, done: Future[Event]) -> None:
        self._complete(done.result())

    def _complete(self, event: Event) -> None:
        self._broker.on_event(event, self._shell.now())
        self._shell.settle()

    def _on_chores_run(self, done: Future[ChoresRun]) -> None:
        """Log errors of chores, which the next round retries; log a lack of descriptors only once."""
        lacked, self._lacks_descriptors = self._lacks_descriptors, False
        for failed in done.result().failures:
            is_lack = has_run_out(failed)
            if not (is_lack and (lacked or self._lacks_descriptors)):
                log.warning("housekeeping failed (will retry): %s", failed)
            self._lacks_descriptors |= is_lack
        self._complete(done.result())

    def _on_worked(self, work: Work) -> None:
        work.on_finished()
        self._shell.settle()

    def _on_starts_written(self, done: Future[StartsWritten]) -> None:
        self._shell.add_slices(self._broker.log_starts.on_starts_written(done.result(), self._shell.now()))

    def _on_ids_allocated(self, done: Future[ProducerIdBlock | None]) -> None:
        self._changes_under_way -= 1
        failure = done.exception()
        if failure is not None:  # Waiting requests fail, and the next one tries again.
            log.error("failed to allocate producer ids: %s", failure)
        self._broker.transactions.ids.on_block_allocated(None if failure is not None else done.result())
        self._shell.settle()

    def _on_changed(self, change: Change, done: Future[Changed]) -> None:
        changed = self._result_of(change, done) or all_refused(change)
        self._member.changed(change, changed)
        self._shell.settle()

    def _on_altered(self, change: AlterConfigs, done: Future[Altered]) -> None:
        altered = self._result_of(change, done) or none_altered(change)
        self._shell.add_slices(apply_altered_configs(self._broker, altered, self._shell.now()))

    def _result_of(self, change: Change | AlterConfigs, done: Future[T]) -> T | None:
        """Return the result of a change, or None if it failed here for a reason that is no client's fault."""
        self._changes_under_way -= 1
        failure = done.exception()
        if isinstance(failure, AssertionError):
            raise failure
        if failure is not None:
            log.error("unexpected error in %s", type(change).__name__, exc_info=failure)
            return None
        return done.result()


def _needs_thread(_: Sync) -> bool:
    return False


def _timed(sync: Sync) -> tuple[Synced, float]:
    """Run a round of syncs, and return its result and how long the disk took."""
    began = time.monotonic()
    return sync.run(), time.monotonic() - began
