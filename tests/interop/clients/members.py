"""The interface of a group member under test."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Way = Literal["range", "roundrobin", "cooperative-sticky", "consumer"]  # The last is the protocol of KIP-848.

HEARTBEAT_MS = 200
SESSION_TIMEOUT_MS = 10_000
FETCH_WAIT_MS = 100
LEAVE_SECONDS_MAX = 150


class Place(NamedTuple):
    """A record read by a member, and its position."""

    partition: int
    offset: int
    value: bytes


class Committed(NamedTuple):
    """A group's committed offset of a partition. Metadata is None if the client does not report it."""

    offset: int
    metadata: str | None


class Joining(NamedTuple):
    """The settings of a new member. `name` is the client id, `instance` its group.instance.id."""

    name: str
    group: str
    topic: str
    way: Way
    instance: str = ""

    @property
    def metadata(self) -> str:
        """Return the metadata to commit with offsets, if the client supports it."""
        return f"read by {self.name}"


class Member(Protocol):
    """A member that starts at the committed offsets or the beginning, and commits read records at once."""

    def places(self) -> Sequence[Place]:
        """Return all read records in order, or raise the error that ended the member."""

    def leave(self) -> None:
        """Leave the group as the client does when it is closed; `places` remains available."""


class PollingMember(ABC):
    """A member in its own thread, started with `start`."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._is_over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def places(self) -> Sequence[Place]:
        if self._failure:
            raise self._failure
        return list(self._places)

    def leave(self) -> None:
        self._is_over.set()
        self._thread.join(LEAVE_SECONDS_MAX)
        assert not self._thread.is_alive(), "it can't leave"

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self._failure = error

    @property
    def is_running(self) -> bool:
        return not self._is_over.is_set()

    def add(self, places: Sequence[Place]) -> None:
        self._places.extend(places)

    @abstractmethod
    def work(self) -> None:
        """Run as a member until the stop is requested; then leave."""


def positions(places: Sequence[Place]) -> dict[int, int]:
    """Return the offsets to commit: the next one after the last read record of each partition."""
    return {place.partition: place.offset + 1 for place in places}
