"""The history of one simulated world: a line for each event, and the values that the checks need.

An operation of a client is invoked, and ends `ok` or `unknown` (it may or may not have been executed, or may be later).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.base.units import TopicPartition
from sim.simclock import SECOND_US

Value = str  # Sent once in a history.


NO_ERA = -1


class Seen(NamedTuple):
    """A record as seen by a consumer.

    `era` counts the power failures before it; NO_ERA means that there was one between the fetch and its response.
    """

    reader: str
    era: int
    time_us: int
    partition: TopicPartition
    offset: int
    value: Value


@dataclass
class Committed:
    """An offset commit of a group, with the times of its invocation and acknowledgment, if any."""

    group: str
    member: str
    partition: TopicPartition
    offset: int
    invoked_us: int
    acknowledged_us: int | None = None


class Compaction(NamedTuple):
    """The configs that delay compaction, which are the same for all topics."""

    delete_retention_ms: int
    min_lag_ms: int


class Pass(NamedTuple):
    """A pass of the cleaner over a log: it removes no record before this time, nor from `end` on."""

    time_us: int
    end: int


class Moved(NamedTuple):
    """A change of a consumer's positions, after the first `seen` records of the history."""

    reader: str
    seen: int
    time_us: int
    positions: dict[TopicPartition, int]


class Identity(NamedTuple):
    """An identity that InitProducerId returned to a transactional producer."""

    transactional_id: str
    producer: tuple[int, int]  # Its id and epoch: a later producer has greater ones.
    returned_us: int


class Fetched(NamedTuple):
    """A committed offset returned to a group; -1 for none."""

    group: str
    partition: TopicPartition
    offset: int
    invoked_us: int
    returned_us: int


@dataclass
class Sent:
    """A record sent by a producer, and the outcome known to it."""

    producer: str
    number: int  # In the order in which the producer sent to the partition.
    partition: TopicPartition
    value: Value
    is_durable: bool  # acks=all.
    is_idempotent: bool
    invoked_us: int
    acknowledged_us: int | None = None
    offset: int | None = None  # The acknowledged offset, if known.
    is_given_up: bool = False
    transaction: Transaction | None = None


@dataclass(eq=False)
class Transaction:
    """A transaction of a producer: the records read and sent in it count as a whole, or not at all."""

    client: str
    identity: Identity
    invoked_us: int
    group: str | None = None  # The group whose offsets it commits.
    positions: dict[TopicPartition, int] = field(default_factory=dict)  # From which it reads.
    read: list[Seen] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    commit_requested_us: int | None = None
    is_committed: bool | None = None  # As EndTxn was answered.
    ended_us: int | None = None  # When its client gave it up.


@dataclass
class History:
    """Everything that the clients of one world saw. `final` and `committed` are readable at the end."""

    seed: int
    now_us: Callable[[], int]
    lines: list[str] = field(default_factory=list)
    sent: dict[Value, Sent] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    read_committed_readers: dict[str, None] = field(default_factory=dict)  # Read-committed consumers.
    transactions: list[Transaction] = field(default_factory=list)
    identities: list[Identity] = field(default_factory=list)
    final: dict[TopicPartition, list[Seen]] = field(default_factory=dict)
    committed: dict[TopicPartition, list[Seen]] = field(default_factory=dict)
    commits: list[Committed] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    owners: dict[tuple[str, int, TopicPartition], str] = field(default_factory=dict)
    power_failures_us: list[int] = field(default_factory=list)
    walls_ahead_ms: list[int] = field(default_factory=lambda: [0])  # All offsets that the broker's clock ever had.
    compaction: Compaction | None = None  # None if topics are not compacted.
    passes: dict[TopicPartition, list[Pass]] = field(default_factory=dict)  # Passes beyond all earlier ones.
    compacted_to: dict[TopicPartition, int] = field(default_factory=dict)  # The response at the end.
    dropped_records: int = 0  # By compaction.
    files: str = ""  # A digest of the disks at the end,
    traffic: str = ""  # and of every byte on every connection.

    def add(self, actor: str, event: str, detail: str = "") -> None:
        self.lines.append(f"{self.now_us() / SECOND_US:11.6f} {actor:<12} {event:<9} {detail}".rstrip())

    @property
    def era(self) -> int:
        return len(self.power_failures_us)

    def passed(self, partition: TopicPartition, end: int) -> None:
        """Note that a pass of the cleaner is about to remove records below `end`."""
        passes = self.passes.setdefault(partition, [])
        if not passes or passes[-1].end < end:
            passes.append(Pass(self.now_us(), end))

    @property
    def digest(self) -> str:
        found = hashlib.sha256("\n".join(self.lines).encode())
        found.update(f"{self.files} {self.traffic}".encode())
        return found.hexdigest()

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.lines, f"digest {self.digest}"])


def failure(seed: int, found: list[str]) -> str:
    """Return the text of a failed assertion: the seed first, and how to see the history."""
    shown = "\n".join(found[:10])
    return f"seed {seed}: {shown}\nThe history: PYTHONPATH=tests .venv/bin/python -m sim.play {seed}"
