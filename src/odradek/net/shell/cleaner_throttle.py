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
        self._ahead = 0.0  # Bytes that were done before the rate allowed them, as of `_at`.
        self._at = time.monotonic()

    def __call__(self, count: int) -> None:
        wait = self._ahead_seconds(count) - AHEAD_SECONDS
        while wait > 0 and not self._stopped.wait(min(wait, WAIT_SECONDS_MAX)):
            wait = self._ahead_seconds() - AHEAD_SECONDS

    def _ahead_seconds(self, count: int = 0) -> float:
        """Counts what was done, and returns how long the rate of now takes for all that is ahead of it."""
        with self._lock:
            now, rate = time.monotonic(), max(self._rate(), 1.0)
            self._ahead = max(self._ahead - (now - self._at) * rate, 0.0) + count
            self._at = now
            return self._ahead / rate

    def stop(self) -> None:
        """Lets all threads go on."""
        self._stopped.set()
