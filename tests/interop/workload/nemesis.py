"""Kills the broker and starts it again, over and over."""

from __future__ import annotations

import time
from random import Random
from typing import Protocol


class Broker(Protocol):
    @property
    def address(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> object: ...


def kill_for(seconds: float, broker: Broker, between: tuple[float, float], seed: int) -> int:
    """How often; it is left alone for `between` seconds, at least and at most, and it is up afterwards."""
    random = Random(seed)
    until = time.monotonic() + seconds
    kills = 0
    while (pause := random.uniform(*between)) < until - time.monotonic():
        time.sleep(pause)
        broker.kill()
        broker.start()
        kills += 1
    time.sleep(max(0.0, until - time.monotonic()))
    return kills
