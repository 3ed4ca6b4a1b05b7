"""Faults for a loader, by name, each with the permitted messages and exit statuses."""

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
    assert "the next run continues after them" in days.load.output()
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
    """Start a second loader: both continue in turns, or one ends with a message and the other one continues."""
    first, second = days.load, days.start(*STEADY)
    second.until(lambda: bool(second.workers()) or one_ended(first, second), "the second loader")
    time.sleep(days.random.uniform(1, 4))
    if not one_ended(first, second):
        assert second.terminate() == 0 or "another loader" in second.output().lower()
    else:
        days.load, refused = (first, second) if first.status is None else (second, first)
        assert refused.status == 1
        assert "another loader" in refused.output().lower()
    days.continues_or_fails_with(
        "Another loader"
    )  # The other loader's last batch may have been faster than this one's.


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
# Before it loads, it handles no signal, does not count as a second loader, and waits for no store.
NOT_AT_THE_START = ("loader terminated", "second loader", "store killed")
OF_THE_STORE = ("store killed", "store paused")


def plan(kinds: Sequence[str], count: int, random: Random) -> list[str]:
    """Return this number of faults of these kinds, with about equal frequency."""
    faults = [kinds[number % len(kinds)] for number in range(count)]
    random.shuffle(faults)
    return faults


def befall(days: BadDays, name: str) -> None:
    """Inject one of FAULTS, usually during a batch, sometimes as early as possible."""
    if days.random.random() < 0.8 or name in NOT_AT_THE_START:
        days.progress()
        time.sleep(days.random.uniform(0, 1))
    FAULTS[name](days)
