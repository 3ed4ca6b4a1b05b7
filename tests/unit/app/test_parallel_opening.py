"""Parallel opening of many logs: on one thread, or on several if it waits for the disk."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.app.serve.data_dirs import ITEMS_PER_CHECK, OPENED_AT_ONCE, run_with_helpers


def test_work_without_waits_runs_on_the_calling_thread() -> None:
    done: list[tuple[int, str]] = []

    def compute(number: int) -> None:
        sum(range(20_000))
        done.append((number, threading.current_thread().name))

    with ThreadPoolExecutor(OPENED_AT_ONCE) as threads:
        list(run_with_helpers(threads, compute, range(20)))
    assert sorted(number for number, _ in done) == list(range(20))
    assert {name for _, name in done[:ITEMS_PER_CHECK]} == {threading.current_thread().name}


def test_other_threads_help_with_work_that_waits() -> None:
    """All threads help: each of the last items waits until the maximum number runs at the same time."""
    works, together = 200, threading.Barrier(OPENED_AT_ONCE)
    done: list[int] = []

    def wait(number: int) -> None:
        threading.Event().wait(0.002)
        if number >= works - OPENED_AT_ONCE:
            together.wait(60)
        done.append(number)

    with ThreadPoolExecutor(OPENED_AT_ONCE) as threads:
        list(run_with_helpers(threads, wait, range(works)))
    assert sorted(done) == list(range(works)), "each is done once"


@pytest.mark.parametrize("broken", [0, 99])
def test_error_of_any_thread_is_raised(broken: int) -> None:
    def fail(number: int) -> None:
        threading.Event().wait(0.002)
        if number == broken:
            raise OSError(number)

    with ThreadPoolExecutor(OPENED_AT_ONCE) as threads, pytest.raises(OSError, match=str(broken)):
        list(run_with_helpers(threads, fail, range(100)))
