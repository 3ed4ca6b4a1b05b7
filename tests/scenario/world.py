"""World of a story: a broker in memory, clients with their state, and parked requests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.in_memory import Harness, frame_of

Answer = TypeVar("Answer")

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
_NUMBERED = re.compile(r"(.*?)(\d+)")
HOUSEKEEPING_MS, HOUSEKEEPINGS_MAX = 1000, 100
UNITS_MS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}


class Waiting(NamedTuple):
    """A request that was not answered at once."""

    client: str
    handle: Callable[[Encoded], None]


class World:
    """Verbs speak for clients through `send`; `report` collects their outcomes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._settings = dict(SETTINGS)
        self._harness: Harness | None = None
        self._correlation = itertools.count(1)
        self._outcomes: list[tuple[str, str]] = []
        self._waiting: dict[ParkedRequest[object], Waiting] = {}
        self._unanswered: list[str] = []  # In this action, and not answered yet.
        self.memory: dict[object, object] = {}  # Of the clients: verbs keep there what they need.
        self.is_stalled = False  # The disk takes writes, and no sync ends.

    def configure(self, settings: dict[str, str]) -> None:
        assert self._harness is None, "settings come first"
        self._settings.update(settings)

    @property
    def harness(self) -> Harness:
        if self._harness is None:
            self._harness = Harness(self._directory, **self._settings)
            for key_type in (0, 1):
                self._harness.request(FindCoordinatorRequest(key="any", key_type=key_type), 3, FindCoordinatorResponse)
        return self._harness

    # Speaking.

    def send(
        self,
        client: str,
        message: object,
        version: int,
        answer: type[Answer],
        outcome_of: Callable[[Answer], str | None],
    ) -> None:
        """Send a request on a connection of its own.

        `outcome_of` describes the response if it is worth a word, and stores what the client needs of it.
        """

        def handle(encoded: Encoded) -> None:
            outcome = outcome_of(self.harness.decoded(encoded, version, answer))
            if outcome is not None:
                self.report(client, outcome)

        talk = self.harness.talk()
        talk.receive_data(frame_of(message, version, next(self._correlation), client))
        self.harness.resume(talk)
        for parked in talk.parked:
            self._waiting[cast("ParkedRequest[object]", parked)] = Waiting(client, handle)
            self._unanswered.append(client)
            return
        handle(talk.data_to_send() or None)

    def report(self, client: str, what: str) -> None:
        self._outcomes.append((client, what))

    def take_outcomes(self) -> list[tuple[str, str]]:
        """Return the outcomes since the last action, including requests that wait since then."""
        self.settle()
        still = [waiting.client for waiting in self._waiting.values()]
        outcomes, self._outcomes = self._outcomes, []
        outcomes += [(client, "waits") for client in self._unanswered if client in still]
        self._unanswered = []
        return outcomes

    @property
    def waiting(self) -> Collection[ParkedRequest[object]]:
        """Return the requests that were not answered yet."""
        return self._waiting.keys()

    # What goes on by itself.

    def settle(self) -> None:
        """Complete everything that takes no time, and collect the responses."""
        while True:
            if not self.is_stalled:
                self.harness.settle()
            completed = self.harness.broker.purgatory.take_completed()
            if not completed:
                return
            for parked in completed:
                waiting = self._waiting.pop(parked, None)
                if waiting is not None:
                    with self.harness.callback():
                        answer = cast(Encoded, parked.then())
                    waiting.handle(answer)

    def pass_time(self, ms: int) -> None:
        """Advance time from one deadline to the next, with some housekeeping between."""
        end = self.harness.now.steady + ms
        house_ms = max(HOUSEKEEPING_MS, ms // HOUSEKEEPINGS_MAX)
        next_house = self.harness.now.steady + house_ms
        self.settle()
        while self.harness.now.steady < end:
            due = self.harness.broker.next_due()
            now = self.harness.now.steady
            step = min(end, next_house) if due is None else min(max(due, now + 1), end, next_house)
            self.harness.pass_time(step - now)
            if step == next_house:
                self.harness.run_housekeeping_in_slices()
                next_house += house_ms
            self.settle()

    def hang_up(self, client: str) -> None:
        """Break the client's connections: its parked requests are not answered."""
        for parked in [parked for parked, waiting in self._waiting.items() if waiting.client == client]:
            self.harness.broker.purgatory.forget(parked)
            del self._waiting[parked]

    def hang_up_all(self) -> None:
        self._waiting.clear()
        self._unanswered.clear()


def options(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Split arguments into plain ones and named ones."""
    plain = [one for one in arguments if "=" not in one]
    return plain, dict(one.split("=", 1) for one in arguments if "=" in one)


def clients(text: str) -> list[str]:
    """Return the clients of `a`, or of a range such as m1..m100."""
    first, dots, last = text.partition("..")
    if not dots:
        return [first]
    stem = first.rstrip("0123456789")
    return [f"{stem}{number}" for number in range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)]


def names(clients: list[str]) -> str:
    """Format clients, with consecutive numbers as a range: a m1..m3."""
    runs: list[list[str]] = []
    for client in clients:
        if runs and client == _next(runs[-1][-1]):
            runs[-1].append(client)
        else:
            runs.append([client])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def _next(client: str) -> str | None:
    numbered = _NUMBERED.fullmatch(client)
    return f"{numbered[1]}{int(numbered[2]) + 1}" if numbered else None


def milliseconds(text: str) -> int:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(number) * UNITS_MS[text[len(number) :]]


def error(code: int) -> str:
    """Format an error code: ok, or for example unknown member id."""
    return ErrorCode(code).name.lower().replace("_", " ") if code else "ok"


def partition_of(text: str) -> tuple[str, int]:
    """Parse a partition such as t-0."""
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)
