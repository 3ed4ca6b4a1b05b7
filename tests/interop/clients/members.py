"""What the tests ask of a member of a group."""

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
    """A record that a member has read, and where it was."""

    partition: int
    offset: int
    value: bytes


class Committed(NamedTuple):
    """What a group has committed for a partition.  Metadata that the client does not tell is None."""

    offset: int
    metadata: str | None


class Joining(NamedTuple):
    """How to become a member.  `name` is the client's id, `instance` its group.instance.id."""

    name: str
    group: str
    topic: str
    way: Way
    instance: str = ""

    @property
    def metadata(self) -> str:
        """What it is to commit beside its offsets, where the client can."""
        return f"read by {self.name}"


class Member(Protocol):
    """Reads from the beginning unless its group has read before, and commits what it has read at once."""

    def places(self) -> Sequence[Place]:
        """All that it has read, in its order.  Raises what ended it, if it could not go on."""

    def leave(self) -> None:
        """As the client leaves when it is closed; `places` can still be asked for."""


class PollingMember(ABC):
    """A member in a thread of its own.  It starts with `start`."""

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
    def goes_on(self) -> bool:
        return not self._is_over.is_set()

    def add(self, places: Sequence[Place]) -> None:
        self._places.extend(places)

    @abstractmethod
    def work(self) -> None:
        """Be a member as long as it goes on; then leave."""


def positions(places: Sequence[Place]) -> dict[int, int]:
    """Behind the last of each partition: what there is to commit."""
    return {place.partition: place.offset + 1 for place in places}
