"""Threads for what is slow, a pool for each kind of work, so that one kind never waits behind another.

A thread begins when it is needed, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

try:
    from odradek.net.native.scheduler import double_slice
except ImportError:  # pragma: no cover
    HAS_SCHEDULER = False
else:
    HAS_SCHEDULER = True

Result = TypeVar("Result")


class Closed(Exception):
    """Raised when work is given to pools that were stopped, or when the interpreter ends."""


class Pool(Enum):
    """A kind of work."""

    READS = "reads"  # Cold slices, lookups in a log: clients wait for them.
    SYNCS = "syncs"  # Before acknowledgements, where net/native/syncs can't do it.
    CHORES = "chores"  # Checkpoints, unlinking: nobody waits.
    LOADS = "loads"  # State of coordinators: groups wait, and it is Python that runs.
    WORK = "work"  # What requests ask for: much of it is Python, and several would keep the loop from the interpreter.
    CLEANER = "cleaner"  # Passes of compaction: log.cleaner.threads says how many the broker asks for at a time.
    MOVES = "moves"  # Partitions that are copied to another data directory: Python, and syncs.
    PRODUCER_IDS = "producer-ids"  # From the metadata tree; a thousand topics may just be written to it.


THREADS_MAX = {
    Pool.READS: 8,
    Pool.SYNCS: 4,  # As many as the broker asks for at a time.
    Pool.CHORES: 2,
    Pool.LOADS: 2,
    Pool.WORK: 1,
    Pool.CLEANER: 16,
    Pool.MOVES: 1,
    Pool.PRODUCER_IDS: 1,
}
# What keeps a processor for long: whoever wakes goes before it, where the system can do that.
LONG = frozenset({Pool.LOADS, Pool.WORK, Pool.CLEANER, Pool.MOVES})


class Pools:
    """A broker's thread pools, one for each kind of work."""

    def __init__(self) -> None:
        self._pools = {
            pool: ThreadPoolExecutor(
                threads,
                thread_name_prefix=f"odradek-{pool.value}",
                initializer=double_slice if HAS_SCHEDULER and pool in LONG else None,
            )
            for pool, threads in THREADS_MAX.items()
        }

    def submit(self, pool: Pool, work: Callable[[], Result]) -> Future[Result]:
        """Has a thread of the pool do the work.  Raises Closed."""
        try:
            return self._pools[pool].submit(work)
        except RuntimeError as error:
            if "shutdown" in str(error):  # Others say that the system gives no more threads.
                raise Closed from error
            raise

    def stop(self, *, cancels: bool = False) -> None:
        """Waits for work that has begun; other work is done too, or cancelled."""
        for threads in self._pools.values():
            threads.shutdown(wait=False, cancel_futures=cancels)
        for threads in self._pools.values():
            threads.shutdown(wait=True)
