"""Threads that keep a processor for long have longer slices, and nothing else of theirs is changed."""

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
def test_it_doubles() -> None:
    assert in_thread(lambda: (double_slice(), double_slice())) == (DOUBLED_NS, 2 * DOUBLED_NS)


@knows_slices
def test_it_is_the_calling_thread_alone() -> None:
    """Neither one beside it nor one that it starts."""
    assert in_thread(lambda: (double_slice(), in_thread(double_slice))) == (DOUBLED_NS, DOUBLED_NS)


@knows_slices
@pytest.mark.parametrize("pool", Pool)
def test_pools(pool: Pool) -> None:
    pools = Pools()
    found = pools.submit(pool, double_slice).result()
    pools.stop()
    keeps_long = pool in (Pool.LOADS, Pool.WORK, Pool.CLEANER, Pool.MOVES)
    assert found == (2 * DOUBLED_NS if keeps_long else DOUBLED_NS)


def test_the_rest_is_as_before() -> None:
    def scheduled() -> tuple[int, int]:
        return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, os.getpriority(os.PRIO_PROCESS, 0)

    before = scheduled()

    def doubled() -> tuple[int, int]:
        double_slice()
        return scheduled()

    assert in_thread(doubled) == before


def test_another_policy_is_left_alone() -> None:
    def of_batch() -> tuple[int, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return double_slice(), os.sched_getscheduler(0)

    assert in_thread(of_batch) == (0, os.SCHED_BATCH)
