"""Fault injection: the requested faults, the requests they match, and their history.

A fault applies to one API, and optionally to one topic or some clients. It affects the next `times` matching requests,
one fault per request, in the order of their creation. The test's thread adds faults while the broker's event loop takes
them, so one lock protects all state. injection.py executes the faults.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

from odradek.base.errors import ErrorCode
from odradek.testing.api_names import api_named, error_named
from odradek.testing.request_topics import FIELDS
from odradek.wire.schema.api_keys import ApiKey

WAIT_SECONDS = 10.0

ClientId = str | Callable[[str], bool]


class Effect(Enum):
    ANSWER = "answered with an error"
    DELAY = "answered late"
    DROP_BEFORE = "dropped before it was handled"
    DROP_AFTER = "dropped after it was handled"


class Seen(NamedTuple):
    """One request affected by a fault."""

    api: str
    client_id: str
    topics: tuple[str, ...]  # The topics that the request names, if any.
    fault: Fault


class Fault:
    """One fault; as a context manager it ends with the block, and `clear` ends it at any time."""

    def __init__(
        self,
        faults: Faults,
        api: ApiKey,
        effect: Effect,
        *,
        times: int | None,
        topic: str | None,
        client_id: ClientId | None,
        error: ErrorCode = ErrorCode.NONE,
        seconds: float = 0,
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: must be at least 1, or None to keep the fault until it is cleared")
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: must not be negative")
        self.api = api
        self.effect = effect
        self.times = times
        self.topic = topic
        self.error = error
        self.seconds = seconds
        self._faults = faults
        self._client_id = client_id

    @property
    def count(self) -> int:
        """Return the number of affected requests."""
        return sum(one.fault is self for one in self._faults.seen)

    def wait(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the fault has occurred `times` times (once if unlimited), or raise TimeoutError."""
        self._faults.wait(self, seconds)

    def clear(self) -> None:
        self._faults.remove(self)

    def matches(self, client_id: str, topics: Collection[str]) -> bool:
        if self.topic is not None and self.topic not in topics:
            return False
        expected = self._client_id
        return expected is None or (client_id == expected if isinstance(expected, str) else expected(client_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __repr__(self) -> str:
        occurrences = "until cleared" if self.times is None else f"{self.times} times"
        return f"Fault({self.api.title} {self.effect.value}, {occurrences}, {self.count} so far)"


class Faults:
    """All faults of one broker, which outlive its restarts.

    `times` None: until cleared. `topic`: only requests that name it. `client_id`: a client's id, or a predicate on it.
    Names are Kafka's, in any spelling: "ListOffsets" or "list_offsets".
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: dict[Fault, int | None] = {}  # Remaining occurrences of each fault, in the order of creation.
        self._seen: list[Seen] = []

    def answer(
        self,
        api: str | ApiKey,
        *,
        error: str | ErrorCode,
        times: int | None = 1,
        topic: str | None = None,
        client_id: ClientId | None = None,
    ) -> Fault:
        """Return this error without executing the request.

        With a `topic`, the other topics of the request are served. Raise ValueError for unknown names.
        """
        return self._add(api, Effect.ANSWER, times=times, topic=topic, client_id=client_id, error=error_named(error))

    def delay(
        self,
        api: str | ApiKey,
        *,
        seconds: float,
        times: int | None = 1,
        topic: str | None = None,
        client_id: ClientId | None = None,
    ) -> Fault:
        """Execute the request immediately, but delay its answer.

        Answers of one connection keep their order, so later answers are delayed too.
        """
        return self._add(api, Effect.DELAY, times=times, topic=topic, client_id=client_id, seconds=seconds)

    def drop(
        self,
        api: str | ApiKey,
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        client_id: ClientId | None = None,
    ) -> Fault:
        """Close the connection instead of answering.

        With `after` False, the request is not executed. With True, it is executed, but the client can't know.
        """
        effect = Effect.DROP_AFTER if after else Effect.DROP_BEFORE
        return self._add(api, effect, times=times, topic=topic, client_id=client_id)

    def clear(self) -> None:
        """Remove all faults; the history is kept."""
        with self._changed:
            self._left.clear()

    @property
    def left(self) -> list[Fault]:
        """Return the faults that may still occur, in the order of creation."""
        with self._changed:
            return list(self._left)

    @property
    def seen(self) -> list[Seen]:
        """Return all occurrences of faults, in order, since the broker was created."""
        with self._changed:
            return list(self._seen)

    def _add(
        self,
        api: str | ApiKey,
        effect: Effect,
        *,
        times: int | None,
        topic: str | None,
        client_id: ClientId | None,
        error: ErrorCode = ErrorCode.NONE,
        seconds: float = 0,
    ) -> Fault:
        key = api_named(api)
        if topic is not None and key not in FIELDS:
            raise ValueError(f"{key.title} requests contain no topics; remove topic={topic!r}")
        fault = Fault(self, key, effect, times=times, topic=topic, client_id=client_id, error=error, seconds=seconds)
        with self._changed:
            self._left[fault] = times
        return fault

    def remove(self, fault: Fault) -> None:
        with self._changed:
            self._left.pop(fault, None)

    def wait(self, fault: Fault, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._changed:
            while (count := sum(one.fault is fault for one in self._seen)) < (fault.times or 1):
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(
                        f"{fault.api.title} was {fault.effect.value} {count} times in {seconds:g} s, "
                        f"not {fault.times or 1}"
                    )

    # Called from the event loop.

    def is_armed(self, api_key: int) -> bool:
        """Return whether a fault is armed for the API; called for every request, and cheap."""
        if not self._left:
            return False
        with self._changed:
            return any(fault.api == api_key for fault in self._left)

    def claim_fault(self, api_key: int, client_id: str, topics: Collection[str]) -> Fault | None:
        """Return the fault for this request and record it, or return None."""
        with self._changed:
            due = (one for one in self._left if one.api == api_key and one.matches(client_id, topics))
            fault = next(due, None)
            if fault is None:
                return None
            left = self._left[fault]
            if left is not None:
                self._left[fault] = left - 1
                if left == 1:
                    del self._left[fault]
            self._seen.append(Seen(fault.api.title, client_id, tuple(topics), fault))
            self._changed.notify_all()
            return fault
