"""Time limit of an operation and the backoff between its attempts."""

from __future__ import annotations

import random
import time

from odradek.base.errors import ErrorCode
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ClientError, ErrorResponse, KafkaUnavailable

MARKERS_MS = 10  # The preceding transaction is only waiting for its markers, which takes a few milliseconds.
JITTER = 0.2  # Prevents all clients from contacting a recovered cluster in the same millisecond.


def is_retriable(error: ClientError) -> bool:
    """Return whether the request may succeed later: the error code is retriable or the broker unavailable."""
    if isinstance(error, ErrorResponse):
        return error.retriable
    return isinstance(error, KafkaUnavailable)


class Backoff:
    """Exponential backoff with jitter: retry_backoff_ms, twice that, ... retry_backoff_max_ms."""

    __slots__ = ("_attempts", "_config")

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._attempts = 0

    def next_ms(self) -> float:
        wait = min(self._config.retry_backoff_ms * 2.0 ** min(self._attempts, 30), self._config.retry_backoff_max_ms)
        self._attempts += 1
        return wait * random.uniform(1 - JITTER, 1 + JITTER)


class RetryDeadline:
    """The deadline of one operation and the backoff within it."""

    __slots__ = ("_backoff", "deadline")

    def __init__(self, config: ClientConfig, timeout_ms: int | None = None) -> None:
        timeout_ms = config.api_timeout_ms if timeout_ms is None else timeout_ms
        self.deadline = time.monotonic() + timeout_ms / 1000
        self._backoff = Backoff(config)

    def wait_or_raise(self, error: ClientError) -> None:
        """Wait before the next attempt; raise the error if it is not retriable or no time is left."""
        if not is_retriable(error):
            raise error
        self.wait(error)

    def try_wait(self, error: ClientError) -> bool:
        """Wait before the next attempt; return False if the error is not retriable or no time is left."""
        try:
            self.wait_or_raise(error)
        except ClientError:
            return False
        return True

    def wait(self, error: ClientError) -> None:
        """Wait like wait_or_raise(), but for any error."""
        wait = self._backoff.next_ms() / 1000
        if isinstance(error, ErrorResponse) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            wait = min(wait, MARKERS_MS / 1000)
        if time.monotonic() + wait > self.deadline:
            raise error
        time.sleep(wait)
