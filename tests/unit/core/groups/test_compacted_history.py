"""Random histories of groups, offsets and transactions with compaction: replay restores the state.

Members of both protocols join and leave; groups are upgraded, downgraded and deleted. The log is compacted up to any
point, also amid a change, fully or partly, with tombstones kept or removed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from odradek.base.units import DAY_MS, TimestampMs, TopicPartition
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.transactions.transaction_states import Transaction
from odradek.log.compaction import cleaner
from odradek.log.compaction.replacement import swap_in
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.record.kernels.compact import SLOT_BYTES
from scenario.interpreter import outcomes
from scenario.world import World
from support.cleaning import begin, compact
from support.kept import kept, pending, said_by

pytestmark = pytest.mark.slow

SLOTS = 8  # Slots of the offset map: a pass ends amid a segment, or a batch, after seven keys.
GROUPS, CLASSIC, CONSUMERS, PRODUCERS = ("g", "h"), ("a", "b", "s"), ("m", "n", "x", "y"), ("p", "q")
STATIC = ("s", "x", "y")  # Static members of one instance.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.retention.minutes": "30",
    "log.cleaner.enable": "false",  # The history controls the time.
}


class History:
    """A random history from one seed; `story` lists its steps."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(directory)
        self.world.configure(SETTINGS)
        self.story: list[str] = []
        self.offset = 0
        for line in ("topic t partitions=4", "topic tt", "init p", "init q"):
            self.happens(line)

    @property
    def shard(self) -> GroupShard:
        return self.world.harness.broker.groups.shards.shard(0)

    @property
    def transactions(self) -> dict[str, Transaction]:
        return dict(self.world.harness.broker.transactions.shards.shard(0).transactions)

    def log(self, topic: str = CONSUMER_OFFSETS) -> Log:
        return self.world.harness.broker.partitions[TopicPartition(topic, 0)].log  # type: ignore[arg-type]

    def happens(self, line: str) -> None:
        self.story.append(line)
        self.story += [f"  -> {outcome}" for outcome in outcomes(self.world, line)]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            what = self.random.choice(ANYTHING)
            what(self, self.random.choice(GROUPS))
            if self.random.random() < 0.2:
                self.log().roll(self.world.harness.now.wall)
            if self.random.random() < 0.06:
                self.compaction()

    # Client requests.

    def joins(self, group: str) -> None:
        """Join a classic member, which assigns everything to itself if it leads."""
        name = self.random.choice(CLASSIC)
        instance = " instance=i" if name in STATIC else ""
        self.happens(f"join {group} {name} topics=t session=30s{instance}")
        self.shares(group)

    def shares(self, group: str) -> None:
        for name in self.random.sample(CLASSIC, 2):
            self.happens(f"share {group} {name} {name}=t-{self.random.randrange(4)}")

    def leaves(self, group: str) -> None:
        self.happens(f"leave {group} {self.random.choice(CLASSIC)}")

    def enters(self, group: str) -> None:
        """Join a member of the consumer protocol, which upgrades a classic group."""
        name = self.random.choice(CONSUMERS)
        instance = " instance=i" if name in STATIC else ""
        to = self.random.choice(["topics=t", "topics=t,tt", "regex=t+", "regex=tt"])
        self.happens(f"enter {group} {name} {to}{instance}")

    def settles(self, group: str) -> None:
        for name in CONSUMERS:
            self.happens(f"settle {group} {name}")

    def changes(self, group: str) -> None:
        to = self.random.choice(["topics=t regex=", "topics=tt", "regex=t+", "regex="])
        self.happens(f"poll {group} {self.random.choice(CONSUMERS)} {to}")

    def quits(self, group: str) -> None:
        """Remove a member; without consumer members a group with classic members is downgraded."""
        name = self.random.choice(CONSUMERS)
        self.happens(f"quit {group} {name}{self.random.choice(['', ' for=while']) if name in STATIC else ''}")

    def all_quit(self, group: str) -> None:
        self.happens(f"quit {group} {' '.join(CONSUMERS)}")

    def commits(self, group: str) -> None:
        self.offset += 1
        place = self.random.choice(["t-0", "t-1", "tt-0"])
        self.happens(self.random.choice(["commit {} {}={}", "commit {} a {}={}"]).format(group, place, self.offset))

    def commits_in_a_transaction(self, group: str) -> None:
        self.offset += 1
        self.happens(f"offsets {self.random.choice(PRODUCERS)} {group} t-{self.random.randrange(3)}={self.offset}")

    def ends(self, group: str) -> None:
        self.happens(f"end {self.random.choice(PRODUCERS)} {self.random.choice(['commit', 'abort'])}")

    def begins(self, group: str) -> None:
        """Start a transaction, which aborts the open one."""
        self.happens(f"init {self.random.choice(PRODUCERS)}")

    def drops(self, group: str) -> None:
        self.happens(f"drop {group} {self.random.choice(['t-0', 't-1', 'tt-0'])}")

    def is_deleted(self, group: str) -> None:
        self.happens(f"delete {group}")

    def time_passes(self, group: str) -> None:
        self.happens(f"after {self.random.choice(['1s', '5s', '20s', '61s', '40min'])}")

    # Compaction, and the checks after it.

    def compaction(self) -> None:
        """Compact the sealed segments; usually kill the broker, and check that the state is unchanged."""
        was_kept, was_pending, were_transactions = kept(self.shard), pending(self.shard.offsets), self.transactions
        before = said_by(self.log())
        assert was_kept._replace(classic={}) == before._replace(classic={})
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            self._compact(self.log(topic))
        assert said_by(self.log()) == before
        if self.random.random() < 0.8:
            were_producers = self.producers()
            self.happens("kill")
            assert self.producers() == were_producers
            assert said_by(self.log()) == before
            assert kept(self.shard) == before
            assert pending(self.shard.offsets) == was_pending
            # Decided transactions are completed, and the epoch before the current one is not stored.
            assert {name: one.producer for name, one in self.transactions.items()} == {
                name: one.producer for name, one in were_transactions.items()
            }

    def producers(self) -> list[ProducerStateEntry]:
        """Return the producers without earlier batches, and without those known only from a marker."""
        return [one._replace(batches=one.batches[-1:], coordinator_epoch=-1) for one in sorted(self.log().producers)]

    def _compact(self, log: Log) -> None:
        later = self.random.choice([0, 0, 2 * DAY_MS])  # By then all tombstones seen by a pass are removed.
        now = TimestampMs(self.world.harness.now.wall + later)
        memory = self.random.choice([SLOTS * SLOT_BYTES, 1 << 20])
        self.story.append(f"# compacted with {memory} bytes, {later} ms later")
        log.reaper.reap(now)
        for _ in range(self.random.randrange(3)):
            compact(log, now, memory)
        if self.random.random() < 0.5:
            self._compact_part(log, now, memory)

    def _compact_part(self, log: Log, now: TimestampMs, memory: int) -> None:
        """Compact as much as a pass completes before the broker is killed."""
        flush_now(log, now)
        cleaning, _ = begin(log, now, memory)
        cleaning.build_map(lambda _: None)
        for _ in range(self.random.randrange(3)):
            if not cleaning.is_over:
                group = cleaning.clean(lambda _: None)
                if group.segments:
                    assert swap_in(log, [one.segment for one in group.sources], group.segments, now)
                    cleaning.swapped_in()


ANYTHING: list[Callable[[History, str], None]] = [
    *[History.joins] * 6,
    *[History.shares] * 2,
    *[History.leaves] * 2,
    *[History.enters] * 6,
    *[History.settles] * 4,
    *[History.changes] * 2,
    *[History.quits] * 3,
    *[History.all_quit] * 2,
    *[History.commits] * 5,
    *[History.commits_in_a_transaction] * 5,
    *[History.ends] * 3,
    History.begins,
    *[History.drops] * 2,
    *[History.is_deleted] * 2,
    *[History.time_passes] * 3,
]


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(24))
def test_replay_of_a_compacted_log_restores_the_state(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "SLOTS_MIN", SLOTS)
    history = History(tmp_path, seed)
    try:
        history.run(150)
        history.compaction()
    except BaseException:
        print("\n".join(history.story))
        raise
