"""Holds the log cleaner's threads back to log.cleaner.io.max.bytes.per.second, of all of them together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AHEAD_SECONDS = 0.1  # So far may they be ahead of the rate: a chunk does not wait for its own bytes.
WAIT_SECONDS_MAX = 1.0  # The rate may be altered while one waits.


class CleanerThrottle:
    """Called in the cleaner's threads with how many bytes were read or written."""

    def __init__(self, rate: Callable[[], float]) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._due = 0.0  # When all that was done is allowed, at the rate of its time.

    def __call__(self, count: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._due = max(self._due, now) + count / max(self._rate(), 1.0)
            wait = self._due - now - AHEAD_SECONDS
        while wait > 0 and not self._stopped.wait(min(wait, WAIT_SECONDS_MAX)):
            wait -= WAIT_SECONDS_MAX

    def stop(self) -> None:
        """Lets all threads go on."""
        self._stopped.set()
