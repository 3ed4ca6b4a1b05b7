"""Consumers that read from a follower (KIP-392): they see a list of batches up to one high watermark.

Leaders come and go, and the follower truncates records that they lack: none of those was ever visible.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from odradek.api.request.outcome import Encoded
from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from support.fetching_follower import offsets_of
from support.followed import Followed, batch
from support.in_memory import NOW_MS

STEPS = 250
WAIT_MS = 3_600_000
PRODUCERS = (1, 2)
CONSUMERS = 4


class Stored(NamedTuple):
    """One batch of a log; transactional ones name their producer, and markers their outcome."""

    base: int
    end: int
    epoch: int
    raw: bytes
    producer: int = -1
    commits: bool | None = None


class Transaction(NamedTuple):
    producer: int
    first: int
    marker: int | None
    commits: bool | None


def transactions(log: list[Stored]) -> list[Transaction]:
    """Return all transactions that begin in a log."""
    begun: dict[int, int] = {}
    found = []
    for one in log:
        if one.commits is not None:
            found.append(Transaction(one.producer, begun.pop(one.producer), one.base, one.commits))
        elif one.producer >= 0:
            begun.setdefault(one.producer, one.base)
    return found + [Transaction(producer, first, None, None) for producer, first in begun.items()]


class Leader:
    """The log of an epoch's leader."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log: list[Stored] = []
        self.epoch = 0
        self.high_watermark = 0
        self.start = 0

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def append(self) -> None:
        base, producer = self.end, self.random.choice((-1, *PRODUCERS))
        if producer >= 0 and self._is_open(producer) and self.random.random() < 0.6:
            commits = self.random.random() < 0.5
            marker = end_marker_batch(
                EndMarker(commits, 0), ProducerId(producer), ProducerEpoch(0), TimestampMs(NOW_MS)
            )
            marker.stamp(base, self.epoch)  # type: ignore[arg-type]
            self.log.append(Stored(base, base + 1, self.epoch, bytes(marker.view), producer, commits))
            return
        records = self.random.randint(1, 3)
        sequence = base if producer >= 0 else -1
        raw = batch(base, self.epoch, records=records, producer=producer, sequence=sequence)
        self.log.append(Stored(base, base + records, self.epoch, raw, producer))

    def _is_open(self, producer: int) -> bool:
        return any(one.producer == producer and one.marker is None for one in transactions(self.log))

    def commit(self) -> None:
        ends = [one.end for one in self.log if one.end > self.high_watermark]
        if ends:
            self.high_watermark = self.random.choice(ends)

    def fail_over(self) -> None:
        """Return the next leader, which has all committed records, and perhaps no others."""
        self.epoch += 1
        while self.log and self.log[-1].base >= self.high_watermark and self.random.random() < 0.7:
            self.log.pop()


class Seen:
    """The follower as a list."""

    def __init__(self) -> None:
        self.log: list[Stored] = []
        self.high_watermark = 0
        self.start = 0

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    @property
    def last_stable_offset(self) -> int:
        high_watermark = self.high_watermark
        unstable = [
            one.first
            for one in transactions(self.log)
            if one.first < high_watermark and (one.marker is None or one.marker >= high_watermark)
        ]
        return max(min([high_watermark, *unstable]), self.start)

    def bound(self, *, committed: bool) -> int:
        return self.last_stable_offset if committed else self.high_watermark


class Reader:
    """A consumer without a session; every second one reads committed records only."""

    def __init__(self, number: int) -> None:
        self.committed = bool(number % 2)
        self.version = 11 + number % 4 // 2
        self.offset = 0
        self.outcome: Encoded | ParkedRequest[Encoded] = None
        self.epoch = -1
        self.is_waiting = False


class Story:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.followed = Followed(directory)
        self.leader = Leader(self.random)
        self.seen = Seen()
        self.readers = [Reader(number) for number in range(CONSUMERS)]
        self.cuts = self.waits = self.read = self.aborted = 0

    def play(self) -> None:
        chances = {
            self.leader.append: 6,
            self.leader.commit: 3,
            self.replicate: 6,
            self.elect: 1.5,
            self.delete: 0.4,
            self.fetch: 6,
        }
        for _ in range(STEPS):
            (step,) = self.random.choices([*chances], [*chances.values()])
            step()
            self.check()

    def replicate(self) -> None:
        """Fetch the next records, or learn from the new leader where the logs diverge."""
        seen, leader = self.seen, self.leader
        common = [one for one, other in zip(seen.log, leader.log, strict=False) if one == other]
        if len(common) < len(seen.log):
            self.cut(common)
            return
        batches = leader.log[len(common) :][: self.random.randint(0, 2)]
        high_watermark, start = leader.high_watermark, leader.start
        self.followed.replicate(*(one.raw for one in batches), high_watermark=high_watermark, start=start)
        seen.log += batches
        seen.high_watermark = max(seen.high_watermark, min(high_watermark, seen.end))
        seen.start = max(seen.start, min(start, seen.high_watermark))

    def cut(self, common: list[Stored]) -> None:
        self.followed.diverges(common[-1].epoch if common else 0, common[-1].end if common else 0)
        end = common[-1].end if common else 0
        assert end >= self.seen.high_watermark, "what is visible is never cut"
        self.seen.log = common
        self.cuts += 1

    def elect(self) -> None:
        self.leader.fail_over()
        self.followed.start_leader_epoch()
        for reader in self.readers:
            if reader.is_waiting and reader.epoch >= 0:
                assert not self.followed.is_waiting(reader.outcome), "its epoch is over"
                assert self.followed.response_of(reader.outcome, reader.version).error_code
                reader.is_waiting = False

    def delete(self) -> None:
        """Delete records that all readers have passed, so that none is out of range."""
        most = min(self.leader.high_watermark, *(reader.offset for reader in self.readers))
        self.leader.start = max(self.leader.start, self.random.randint(0, most))

    def fetch(self) -> None:
        reader = self.random.choice(self.readers)
        if not reader.is_waiting:
            reader.epoch = self.random.choice((-1, self.followed.epoch))
            reader.outcome = self.followed.fetch(
                reader.offset,
                wait_ms=WAIT_MS,
                isolation_level=int(reader.committed),
                leader_epoch=reader.epoch,
                version=reader.version,
            )
            reader.is_waiting = True
            self.waits += isinstance(reader.outcome, ParkedRequest)

    def check(self) -> None:
        for reader in self.readers:
            if reader.is_waiting:
                bound = self.seen.bound(committed=reader.committed)
                assert self.followed.is_waiting(reader.outcome) == (bound <= reader.offset)
                if bound > reader.offset:
                    self.take(reader, bound)

    def take(self, reader: Reader, bound: int) -> None:
        response = self.followed.response_of(reader.outcome, reader.version)
        reader.is_waiting = False
        assert not response.error_code
        assert response.high_watermark == self.seen.high_watermark
        assert response.last_stable_offset == self.seen.last_stable_offset
        assert response.log_start_offset == self.seen.start
        expected = [one for one in self.seen.log if reader.offset < one.end and one.base < bound]
        assert offsets_of(response) == [one.base for one in expected]
        if reader.committed:
            self.check_aborted(reader.offset, expected, response.aborted_transactions)
        reader.offset = expected[-1].end
        self.read += len(expected)

    def check_aborted(self, offset: int, read: list[Stored], aborted: object) -> None:
        overlapping = {
            (one.producer, one.first)
            for one in transactions(self.seen.log)
            if one.commits is False and one.marker is not None and one.marker >= offset and one.first < read[-1].end
        }
        found = {(one.producer_id, one.first_offset) for one in aborted}  # type: ignore[attr-defined]
        assert found == overlapping
        self.aborted += len(found)


@pytest.mark.parametrize("seed", range(12))
def test_a_follower_returns_committed_records_only(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    story.play()
    assert min(story.waits, story.read, story.aborted), "some of it has happened"
