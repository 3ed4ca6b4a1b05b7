"""Faults on demand: what a test asks for, which request gets it, and what has happened so far.

A fault is for one API, and may be for one topic or for some clients; it hits the next `times` requests that match, one
fault a request, the one that was asked for first.  The test's thread sets them while the broker's loop takes them, so
all state is under one lock.  injection.py carries them out.
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
from odradek.testing.topics_named import FIELDS
from odradek.wire.schema.api_keys import ApiKey

WAIT_SECONDS = 10.0

ClientId = str | Callable[[str], bool]


class Effect(Enum):
    ANSWER = "answered with an error"
    DELAY = "answered late"
    DROP_BEFORE = "dropped before it was handled"
    DROP_AFTER = "dropped after it was handled"


class Seen(NamedTuple):
    """One request that a fault has hit."""

    api: str
    client_id: str
    topics: tuple[str, ...]  # Those that the request names, if any.
    fault: Fault


class Fault:
    """One fault.  As a context manager it ends with the block; `clear` ends it at any time."""

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
            raise ValueError(f"times={times}: a fault happens once at least; None is until it is cleared")
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: nobody can be answered before asking")
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
        """How many requests it has hit."""
        return sum(one.fault is self for one in self._faults.seen)

    def wait(self, seconds: float = WAIT_SECONDS) -> None:
        """Waits until it has hit all its `times`, or once if it has no end.  Raises TimeoutError."""
        self._faults.wait(self, seconds)

    def clear(self) -> None:
        self._faults.remove(self)

    def matches(self, client_id: str, topics: Collection[str]) -> bool:
        if self.topic is not None and self.topic not in topics:
            return False
        wanted = self._client_id
        return wanted is None or (client_id == wanted if isinstance(wanted, str) else wanted(client_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __repr__(self) -> str:
        often = "until cleared" if self.times is None else f"{self.times} times"
        return f"Fault({self.api.title} {self.effect.value}, {often}, {self.count} so far)"


class Faults:
    """Every fault of one broker; they outlive its restarts.

    `times` None: until cleared.  `topic`: only requests that name it.  `client_id`: a client's own id, or a function
    of it that says whether it is meant.  Names are Kafka's, in any spelling: "ListOffsets" or "list_offsets".
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: dict[Fault, int | None] = {}  # How often each may still happen, in the order they were asked for.
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
        """Answers with this error instead of doing what was asked.

        With a `topic` the request's other topics are served.  Raises ValueError for names that nobody knows.
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
        """Does what was asked at once, and answers so much later than otherwise.

        Answers of one connection keep their order, so those behind it wait too.
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
        """Closes the connection instead of answering.

        `after` False: nothing was done.  True: all was done, and the client can't know.
        """
        effect = Effect.DROP_AFTER if after else Effect.DROP_BEFORE
        return self._add(api, effect, times=times, topic=topic, client_id=client_id)

    def clear(self) -> None:
        """Removes all faults; what was seen is kept."""
        with self._changed:
            self._left.clear()

    @property
    def left(self) -> list[Fault]:
        """Lists the faults that may still hit a request, in the order they were asked for."""
        with self._changed:
            return list(self._left)

    @property
    def seen(self) -> list[Seen]:
        """Lists what every fault has hit, in order, since the broker was made."""
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
            raise ValueError(f"{key.title} names no topics; leave topic={topic!r} out")
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

    # The loop's side.

    def is_armed(self, api_key: int) -> bool:
        """True if a fault is armed for the API; cheap, as it is asked for every request and nearly always False."""
        if not self._left:
            return False
        with self._changed:
            return any(fault.api == api_key for fault in self._left)

    def take(self, api_key: int, client_id: str, topics: Collection[str]) -> Fault | None:
        """Returns the fault of this request, which counts as seen from here on; None if there is none."""
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
