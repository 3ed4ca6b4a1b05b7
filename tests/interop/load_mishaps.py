"""What is done to a loader on bad days, by name, each with what it may say to it and how it may end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from load_days import STEADY, BadDays
from load_process import Load


def loader_killed(days: BadDays) -> None:
    days.load.kill()
    days.again()


def all_killed(days: BadDays) -> None:
    days.load.kill_all()
    days.again()


def loader_terminated(days: BadDays) -> None:
    assert days.load.terminate() == 0
    assert "the next run continues after them" in days.load.said()
    days.again()


def java_killed(days: BadDays) -> None:
    os.kill(days.one_of(days.load.java, "Java"), signal.SIGKILL)
    days.ended_with(1, "Java process ended", "did not start")


def worker_killed(days: BadDays) -> None:
    with suppress(ProcessLookupError):  # They come and go.
        os.kill(days.one_of(days.load.workers, "a worker"), signal.SIGKILL)


def loader_paused(days: BadDays) -> None:
    days.pause(days.load.pid, days.random.uniform(0.5, 4))


def java_paused(days: BadDays) -> None:
    days.pause(days.one_of(days.load.java, "Java"), days.random.uniform(0.5, 4))


def worker_paused(days: BadDays) -> None:
    with suppress(ProcessLookupError):
        days.pause(days.one_of(days.load.workers, "a worker"), days.random.uniform(0.5, 4))


def broker_paused(days: BadDays) -> None:
    days.pause(days.broker.pid, days.random.uniform(0.5, 4))


def broker_killed(days: BadDays) -> None:
    days.broker.kill()
    time.sleep(days.random.uniform(0, 2))
    days.broker.start()


def second_loader(days: BadDays) -> None:
    """Both go on in turns, or one ends and says why; who is left goes on alone."""
    first, second = days.load, days.start(*STEADY)
    second.until(lambda: bool(second.workers()) or one_ended(first, second), "the second loader")
    time.sleep(days.random.uniform(1, 4))
    if not one_ended(first, second):
        assert second.terminate() == 0 or "another loader" in second.said()
    else:
        days.load, gave_way = (first, second) if first.status is None else (second, first)
        assert gave_way.status == 1
        assert "another loader" in gave_way.said()
    days.goes_on_or("another loader")  # The last batch of the other may have been faster than one on its way here.


def one_ended(*loads: Load) -> bool:
    return any(load.status is not None for load in loads)


def store_killed(days: BadDays) -> None:
    assert days.store is not None
    days.store.kill()
    time.sleep(days.random.uniform(0, 8))
    days.store.start()


def store_paused(days: BadDays) -> None:
    assert days.store is not None
    days.pause(days.store.pid, days.random.uniform(1, 8))


FAULTS: dict[str, Callable[[BadDays], None]] = {
    "loader killed": loader_killed,
    "all killed": all_killed,
    "loader terminated": loader_terminated,
    "Java killed": java_killed,
    "worker killed": worker_killed,
    "loader paused": loader_paused,
    "Java paused": java_paused,
    "worker paused": worker_paused,
    "broker paused": broker_paused,
    "broker killed": broker_killed,
    "second loader": second_loader,
    "store killed": store_killed,
    "store paused": store_paused,
}
# Until it loads, it answers no signal, is no second one, and does not wait for a store.
NOT_AT_THE_START = ("loader terminated", "second loader", "store killed")
OF_THE_STORE = ("store killed", "store paused")


def plan(kinds: Sequence[str], count: int, random: Random) -> list[str]:
    """So many faults of these kinds, each about as often as the others."""
    faults = [kinds[number % len(kinds)] for number in range(count)]
    random.shuffle(faults)
    return faults


def befall(days: BadDays, name: str) -> None:
    """Does one of FAULTS; most come when a batch is on its way, some as early as it goes."""
    if days.random.random() < 0.8 or name in NOT_AT_THE_START:
        days.progress()
        time.sleep(days.random.uniform(0, 1))
    FAULTS[name](days)
