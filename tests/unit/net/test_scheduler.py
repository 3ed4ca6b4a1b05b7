"""Longer scheduler slices for threads that use a processor for long; other scheduling properties stay unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from odradek.net.loop.pools import HAS_SCHEDULER, Pool, Pools

if not HAS_SCHEDULER:  # pragma: no cover
    pytest.skip("built without a compiler", allow_module_level=True)

from odradek.net.native.scheduler import double_slice

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> Result:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


DOUBLED_NS = in_thread(double_slice)
knows_slices = pytest.mark.skipif(not DOUBLED_NS, reason="before Linux 6.12, slices are all alike")


@knows_slices
def test_slice_is_doubled() -> None:
    assert in_thread(lambda: (double_slice(), double_slice())) == (DOUBLED_NS, 2 * DOUBLED_NS)


@knows_slices
def test_only_the_calling_thread_gets_longer_slices() -> None:
    """Neither other threads nor threads that it starts."""
    assert in_thread(lambda: (double_slice(), in_thread(double_slice))) == (DOUBLED_NS, DOUBLED_NS)


@knows_slices
@pytest.mark.parametrize("pool", Pool)
def test_pools_with_long_work_have_longer_slices(pool: Pool) -> None:
    pools = Pools()
    found = pools.submit(pool, double_slice).result()
    pools.stop()
    keeps_long = pool in (Pool.LOADS, Pool.WORK, Pool.CLEANER, Pool.MOVES)
    assert found == (2 * DOUBLED_NS if keeps_long else DOUBLED_NS)


def test_policy_and_priority_are_unchanged() -> None:
    def scheduled() -> tuple[int, int]:
        return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, os.getpriority(os.PRIO_PROCESS, 0)

    before = scheduled()

    def doubled() -> tuple[int, int]:
        double_slice()
        return scheduled()

    assert in_thread(doubled) == before


def test_threads_with_another_policy_are_unchanged() -> None:
    def of_batch() -> tuple[int, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return double_slice(), os.sched_getscheduler(0)

    assert in_thread(of_batch) == (0, os.SCHED_BATCH)
