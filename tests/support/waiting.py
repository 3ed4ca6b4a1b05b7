"""Waits for events, without assumptions about their duration."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

SECONDS_MAX = 300  # Ends a hang, but suffices on a slow and busy machine.
PAUSE_SECONDS = 0.05


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_SECONDS)


class HasFileno(Protocol):
    def fileno(self) -> int: ...


Stream = TypeVar("Stream", bound=HasFileno)


def readable(*streams: Stream, seconds: float = SECONDS_MAX) -> list[Stream]:
    """Return the streams that can be read, or have ended; none on a timeout.

    It does not use `select`, which supports no descriptor above 1,023: other tests may have left many open.
    """
    poll = select.poll()
    for one in streams:
        poll.register(one, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
    return [one for one in streams if one.fileno() in ready]
