"""A nemesis that repeatedly kills and restarts the broker."""

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
    """Kill the broker repeatedly, with pauses within the limits of `between`; return how often. It runs at the end."""
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
