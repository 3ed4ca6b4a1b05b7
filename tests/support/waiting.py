"""Waiting for what happens by itself, without a guess at how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS_MAX = 300  # Ends a hang, on a machine that is slow and busy too.
PAUSE_SECONDS = 0.05


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_SECONDS)
