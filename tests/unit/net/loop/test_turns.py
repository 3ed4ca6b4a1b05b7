"""Turns of long requests: one request runs in each round of the loop."""

from __future__ import annotations

import asyncio

import pytest

from odradek.net.loop.turns import Turns


def test_one_request_runs_in_each_round() -> None:
    done: list[str] = []

    async def run() -> None:
        turns = Turns(asyncio.get_running_loop())

        def again(name: str, left: int) -> None:
            done.append(name)
            if left:
                turns.wait(lambda: again(name, left - 1))

        for name in "abc":
            turns.wait(lambda name=name: again(name, 2))  # type: ignore[misc]
        for _ in range(12):
            done.append(".")
            await asyncio.sleep(0)

    asyncio.run(run())
    assert "".join(done).rstrip(".") == ".a.b.c.a.b.c.a.b.c"


def test_failed_request_does_not_delay_others() -> None:
    done: list[str] = []
    loop = asyncio.new_event_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns = Turns(loop)

    def fail() -> None:
        raise RuntimeError("a bug")

    turns.wait(fail)
    turns.wait(lambda: done.append("second"))
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    loop.close()
    assert done == ["second"]
    assert len(failures) == 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_turns_resume_after_an_idle_time(rounds: int) -> None:
    done: list[int] = []

    async def run() -> None:
        turns = Turns(asyncio.get_running_loop())
        for number in range(rounds):
            turns.wait(lambda number=number: done.append(number))  # type: ignore[misc]
            for _ in range(3):
                await asyncio.sleep(0)

    asyncio.run(run())
    assert done == list(range(rounds))
