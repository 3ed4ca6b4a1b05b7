"""Thread pools for slow work, one for each kind, so that one kind never waits behind another.

A thread starts when it is first needed and then stays.
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


class PoolsClosed(Exception):
    """Raised when work is submitted after the pools were stopped or while the interpreter shuts down."""


class Pool(Enum):
    """Kind of work that has its own pool."""

    READS = "reads"  # Uncached slices and lookups in a log; clients wait for them.
    SYNCS = "syncs"  # Syncs before acknowledgements, where net/native/syncs.py is not available.
    CHORES = "chores"  # Checkpoints and unlinking; nobody waits for them.
    LOADS = "loads"  # State of coordinators; groups wait, and it executes Python.
    WORK = "work"  # Work of requests; mostly Python, so several threads would keep the interpreter from the loop.
    CLEANER = "cleaner"  # Log cleaning; log.cleaner.threads sets how many passes the broker starts at a time.
    MOVES = "moves"  # Copies of partitions to another data directory; Python and syncs.
    PRODUCER_IDS = "producer-ids"  # From the metadata tree, which may be busy creating a thousand topics.


THREADS_MAX = {
    Pool.READS: 8,
    Pool.SYNCS: 4,  # As many as the broker starts at a time.
    Pool.CHORES: 2,
    Pool.LOADS: 2,
    Pool.WORK: 1,
    Pool.CLEANER: 16,
    Pool.MOVES: 1,
    Pool.PRODUCER_IDS: 1,
}
# Pools that keep a processor busy for long; their threads yield to any that wakes, where the system supports it.
LONG = frozenset({Pool.LOADS, Pool.WORK, Pool.CLEANER, Pool.MOVES})


class Pools:
    """Thread pools of a broker, one for each kind of work."""

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
        """Run the work in a thread of the pool.  Raises PoolsClosed."""
        try:
            return self._pools[pool].submit(work)
        except RuntimeError as error:
            if "shutdown" in str(error):  # Other errors mean that the system cannot start more threads.
                raise PoolsClosed from error
            raise

    def stop(self, *, cancels: bool = False) -> None:
        """Wait for work that has started; other work is also completed, or cancelled if `cancels`."""
        for threads in self._pools.values():
            threads.shutdown(wait=False, cancel_futures=cancels)
        for threads in self._pools.values():
            threads.shutdown(wait=True)
