"""Throttle that limits all log cleaner threads together to log.cleaner.io.max.bytes.per.second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AHEAD_SECONDS = 0.1  # Time by which threads may be ahead of the rate, so that a chunk does not wait for its own bytes.
WAIT_SECONDS_MAX = 1.0  # The rate may change while a thread waits.


class CleanerThrottle:
    """Throttle called in the cleaner's threads with the number of bytes read or written."""

    def __init__(self, rate: Callable[[], float]) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ahead = 0.0  # Bytes processed before the rate allowed them, as of `_at`.
        self._at = time.monotonic()

    def __call__(self, count: int) -> None:
        wait = self._ahead_seconds(count) - AHEAD_SECONDS
        while wait > 0 and not self._stopped.wait(min(wait, WAIT_SECONDS_MAX)):
            wait = self._ahead_seconds() - AHEAD_SECONDS

    def _ahead_seconds(self, count: int = 0) -> float:
        """Count processed bytes, and return how long the current rate takes for all bytes ahead of it."""
        with self._lock:
            now, rate = time.monotonic(), max(self._rate(), 1.0)
            self._ahead = max(self._ahead - (now - self._at) * rate, 0.0) + count
            self._at = now
            return self._ahead / rate

    def stop(self) -> None:
        """Release all waiting threads."""
        self._stopped.set()
