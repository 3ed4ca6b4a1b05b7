"""The kinds of anomaly, and one that was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from checker.history import Operation


class Anomaly(StrEnum):
    LOST_WRITE = "lost write"  # Committed, below what was read, and never read.
    UNSEEN = "unseen"  # Committed and never read, so far.
    DUPLICATE = "duplicate"  # One value at two places.
    INCONSISTENT_OFFSETS = "inconsistent offsets"  # Two values at one place.
    UNSENT_READ = "unsent read"  # A value that nobody sent.
    ABORTED_READ = "aborted read"  # G1a.
    PRECOMMITTED_READ = "precommitted read"  # Read before its commit was asked for.
    CONSUMED_TWICE = "consumed twice"  # By two transactions that both committed it for one group.
    NEVER_CONSUMED = "never consumed"  # By a group whose offsets transactions commit, though it went on beyond.
    COMMITTED_BACK = "committed back"  # A group is told less than it had committed before it was asked.
    COMMITTED_AGAIN = "committed again"  # The same, if a later transaction committed just that, which is less.
    COMMITTED_LATE = "committed late"  # The same, if it was a transaction's, and nobody had been told of it yet.
    # Within one operation (int) or from one to the next of a process.
    NONMONOTONIC_POLL = "nonmonotonic poll"
    INT_NONMONOTONIC_POLL = "int nonmonotonic poll"
    POLL_SKIP = "poll skip"
    INT_POLL_SKIP = "int poll skip"
    NONMONOTONIC_SEND = "nonmonotonic send"
    INT_NONMONOTONIC_SEND = "int nonmonotonic send"
    LATE_SEND = "late send"  # Acknowledged before another was begun, and yet after it in the log.
    # Circles of dependencies between transactions.
    G0 = "G0"  # Of writes.
    G1C = "G1c"  # Of reads of what others wrote.
    G1C_WW = "G1c-ww"  # Of such reads and of writes.
    G_SINGLE = "G-single"  # With one read of what another then changed.
    G2 = "G2"  # With more of them.


@dataclass(frozen=True, slots=True)
class Found:
    anomaly: Anomaly
    text: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.text}"
