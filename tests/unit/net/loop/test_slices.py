"""Long work in slices, with turns for other work in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from odradek.net.loop.slices import SLICE_NS, STALL_NS, Slices


def part_of_a_slice() -> None:
    until = time.monotonic_ns() + SLICE_NS // 3
    while time.monotonic_ns() < until:
        pass


def work(done: list[str], name: str, parts: int) -> Iterator[None]:
    for number in range(parts):
        part_of_a_slice()
        done.append(f"{name}{number}")
        yield


def test_other_work_runs_between_slices() -> None:
    done: list[str] = []
    settled: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        slices = Slices(loop, lambda: settled.append(len(done)))

        def other() -> None:
            done.append("other")
            if len([one for one in done if one != "other"]) < 30:
                loop.call_soon(other)

        loop.call_soon(other)
        await asyncio.sleep(0)
        slices.add(work(done, "a", 20))
        slices.add(work(done, "b", 10))
        while len([one for one in done if one != "other"]) < 30:
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    worked = [one for one in done if one != "other"]
    assert worked == [f"a{number}" for number in range(20)] + [f"b{number}" for number in range(10)]
    places = [place for place, one in enumerate(done) if one == "other"]
    assert len(places) > 5
    assert all(later - before <= 5 for before, later in pairwise(places[1:]))
    assert len(settled) >= len(places) - 3, "what a slice made possible is answered at once"


def test_short_work_is_done_immediately() -> None:
    done: list[str] = []
    loop = asyncio.new_event_loop()
    Slices(loop, lambda: done.append("settled")).add(iter([]))
    loop.close()
    assert done == ["settled"]


def test_other_work_gets_many_turns_after_a_stall() -> None:
    """Work added in between waits too: the next fetch's response, which stalls again."""
    done: list[str] = []

    def stalled(name: str) -> Iterator[None]:
        time.sleep(STALL_NS / 1e9)
        done.append(name)
        yield

    async def run() -> None:
        slices = Slices(asyncio.get_running_loop(), lambda: None)
        slices.add(stalled("first"))
        slices.add(stalled("second"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert done == ["first"]
        while len(done) < 2:
            await asyncio.sleep(0.01)
        slices.add(stalled("third"))
        await asyncio.sleep(0)
        assert done == ["first", "second"]
        while len(done) < 3:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_remaining_work_is_finished_or_dropped() -> None:
    async def run(way: str) -> list[str]:
        done: list[str] = []
        slices = Slices(asyncio.get_running_loop(), lambda: None)
        slices.add(work(done, "a", 20))
        slices.add(work(done, "b", 2))
        assert len(done) < 20
        getattr(slices, way)()
        left = len(done)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(done) == left
        return done

    assert len(asyncio.run(run("finish"))) == 22
    assert len(asyncio.run(run("drop"))) < 20


def test_error_is_reported_to_the_loop_and_other_work_continues() -> None:
    def broken() -> Iterator[None]:
        yield
        raise AssertionError("broken")

    done: list[str] = []
    loop = asyncio.new_event_loop()
    slices = Slices(loop, lambda: None)
    with pytest.raises(AssertionError, match="broken"):
        slices.add(broken())
    slices.add(work(done, "a", 1))
    loop.close()
    assert done == ["a0"]


def test_failed_work_ends_without_delaying_others() -> None:
    done: list[str] = []
    failures: list[object] = []

    def failing() -> Iterator[None]:
        part_of_a_slice()
        yield
        raise RuntimeError("a bug")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        slices = Slices(loop, lambda: None)
        slices.add(work(done, "a", 10))
        slices.add(failing())
        slices.add(work(done, "b", 1))
        while slices.is_under_way:
            await asyncio.sleep(0)
        slices.add(work(done, "c", 1))

    asyncio.run(run())
    assert done == [*(f"a{number}" for number in range(10)), "b0", "c0"]
    assert [type(one) for one in failures] == [RuntimeError]
