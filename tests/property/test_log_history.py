"""Histories of a log on a disk that tears and loses writes, compared with a plain list of batches.

After a crash at any moment the log is a run of appended batches from its start without a gap, and has every batch below
the last recovery point. After a kill it has all batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simdisk import SimDisk

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import begin_flush, close_log, end_flush, flush_now
from odradek.log.log.flush import Flush
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.timestamp_search import begin_search, lookup_timestamp
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.log.segment.search import UnfinishedSearch
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from support.invariants import check

DIRECTORY = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=300, segment_index_bytes=80, retention_bytes=4000)


class Written(NamedTuple):
    base: int
    last: int
    raw: bytes


class History(RuleBasedStateMachine):
    """One log; `versions` are its possible contents after a crash, and the last is the current one."""

    @initialize(preallocate=st.booleans(), seed=st.integers(0, 1 << 30))
    def start(self, preallocate: bool, seed: int) -> None:
        self.random = Random(seed)
        self.config = replace(CONFIG, preallocate=preallocate)
        self.disk = SimDisk()
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("")
        self.disk.sync_directory("/data")
        self.now = TimestampMs(1_700_000_000_000)
        self.epoch = LeaderEpoch(0)
        self.versions: list[list[Written]] = [[]]
        self.safe = 0  # End offset of the durable part.
        self.begun: list[Flush] = []
        self.checkpoint = (Offset(0), Offset(0))  # Recovery point and start offset, as a restart reads them.
        self.open(clean=False)
        self.first = 0  # Start of what a version's list holds.

    def open(self, *, clean: bool) -> None:
        recovery_point, start = self.checkpoint
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            self.now,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            start_offset=start,
        )
        self.log.on_recovery_point_lowered = lambda _: self.write_checkpoint()
        self.begun.clear()

    @property
    def batches(self) -> list[Written]:
        return self.versions[-1]

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else self.first

    def change(self, batches: list[Written]) -> None:
        self.versions.append(batches)

    def batch(self, records: int, size: int) -> Batch:
        self.now = TimestampMs(self.now + 7)
        raw = encode_batch([(None, b"v" * size, (), self.now + i) for i in range(records)])
        return Batch.checked(memoryview(raw))

    # ---------------------------------------------------------------- what a broker does

    @rule(shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 380)), min_size=1, max_size=3))
    def append(self, shapes: list[tuple[int, int]]) -> None:
        batches = [self.batch(*shape) for shape in shapes]
        if sum(batch.size for batch in batches) > self.config.segment_bytes:
            batches = batches[:1]
        base = self.end
        self.log.append(batches if len(batches) > 1 else batches[0], self.epoch, self.now)
        assert batches[0].base_offset == base
        self.change([*self.batches, *(Written(b.base_offset, b.last_offset, bytes(b.view)) for b in batches)])
        assert batches[-1].next_offset == self.end == self.log.end_offset

    @rule(room=st.integers(0, 600), shapes=st.lists(st.integers(0, 300), min_size=1, max_size=3))
    def append_to_a_full_disk(self, room: int, shapes: list[int]) -> None:
        batches = [self.batch(2, size) for size in shapes]
        self.disk.room = room
        try:
            self.log.append(batches, self.epoch, self.now)
        except DiskFailed as failed:
            assert failed.is_full
            # A refused batch that was written and truncated may come back in a crash. Not here: it would be unknown
            # then which batches were appended.
            self.disk.open(self.log.segments[-1].path).sync()
        else:
            self.change([*self.batches, *(Written(b.base_offset, b.last_offset, bytes(b.view)) for b in batches)])
        self.disk.room = None

    @rule()
    def new_leader(self) -> None:
        self.epoch = LeaderEpoch(self.epoch + 1)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def begin_flush(self) -> None:
        self.begun.append(begin_flush(self.log))

    @precondition(lambda self: self.begun)
    @rule()
    def finish_flush(self) -> None:
        flush = self.begun.pop(0)
        flush.run()
        end_flush(self.log, flush)
        self.note_safe()

    @rule()
    def flush(self) -> None:
        flush_now(self.log)
        self.note_safe()
        assert self.log.recovery_point == self.end
        if not self.begun:
            self.versions = [self.batches]

    def note_safe(self) -> None:
        self.safe = max(self.safe, self.log.recovery_point)

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = (self.log.recovery_point, self.log.start_offset)

    @rule(offset=st.floats(0, 1))
    def truncate(self, offset: float) -> None:
        low, high = self.log.start_offset, self.end
        self.cut(Offset(round(low + (high - low) * offset)))

    def cut(self, offset: Offset) -> None:
        changed = truncate_to(self.log, offset, self.now)
        assert changed == (offset < self.end)
        if changed:
            self.safe = min(self.safe, self.log.end_offset)
            self.change([batch for batch in self.batches if batch.last < offset])
            self.epoch = LeaderEpoch(self.epoch + 1)
            if not self.batches:
                self.first = self.log.end_offset
            self.first = min(self.first, self.log.end_offset)

    @rule(ahead=st.integers(0, 50))
    def start_over(self, ahead: int) -> None:
        start = Offset(self.end + ahead)
        truncate_fully(self.log, start, self.now)
        self.versions, self.first, self.safe = [[]], start, start
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.checkpoint = (min(self.checkpoint[0], start), self.checkpoint[1])

    @rule(offset=st.floats(0, 1))
    def delete_records(self, offset: float) -> None:
        low, high = self.log.start_offset, self.end
        advance_start(self.log, Offset(round(low + (high - low) * offset)))

    @rule()
    def retention(self) -> None:
        start = self.log.start_offset
        delete_old_segments(self.log, self.now, Offset(self.end))
        assert start <= self.log.start_offset <= self.end
        self.log.reaper.reap(TimestampMs(self.now + 100_000))

    # ---------------------------------------------------------------- what happens to it

    @rule()
    def stop_and_start(self) -> None:
        start, end, epochs = self.log.start_offset, self.end, self.log.epochs.entries
        close_log(self.log, self.now)
        self.write_checkpoint()
        self.open(clean=True)
        assert (self.log.start_offset, self.log.end_offset, self.log.recovery_point) == (start, end, end)
        assert self.log.epochs.entries == [entry for entry in epochs if entry[1] < end]
        self.versions, self.safe = [self.batches], end

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.kill()
        self.open(clean=False)
        assert self.log.end_offset == self.end
        assert contents(self.log) == [batch for batch in self.batches if batch.last >= self.log.start_offset]

    @rule()
    def crash(self) -> None:
        self.disk = self.disk.crash(self.random)
        self.open(clean=False)
        self.restarted()

    def restarted(self) -> None:
        """Check that the log is a run of one of the versions, and keep only that one."""
        found = contents(self.log)
        assert self.log.end_offset >= min(self.safe, self.end)
        start = self.log.start_offset
        for version in reversed(self.versions):
            expected = [batch for batch in version if batch.last >= start]
            if expected[: len(found)] == found:
                break
        else:
            pytest.fail(f"{[f[:2] for f in found]} from {start} is a run of none of {self.versions}")
        assert self.log.end_offset == (found[-1].last + 1 if found else max(start, self.log.end_offset))
        kept = [batch for batch in version if batch.last < self.log.end_offset]
        if not found:  # It is empty, and may begin beyond the remaining data, at the checkpoint's offset.
            kept = []
        self.versions = [kept]
        self.first = self.log.end_offset if not kept else self.first
        self.safe = min(self.safe, self.log.end_offset)
        self.epoch = LeaderEpoch(self.epoch + 1)

    # ---------------------------------------------------------------- what always holds

    @invariant()
    def reads_are_correct(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        visible = [batch for batch in self.batches if batch.last >= log.start_offset]
        assert contents(log) == visible
        if visible:
            self.read_somewhere(visible)
        for offset in (log.start_offset - 1, log.end_offset + 1):
            with pytest.raises(Refused) as refused:
                log.read(Offset(offset), 1, log.end_offset)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def read_somewhere(self, visible: list[Written]) -> None:
        log = self.log
        offset = Offset(self.random.randint(log.start_offset, log.end_offset - 1))
        upto = Offset(self.random.randint(offset, log.end_offset))
        max_bytes = self.random.choice([0, 1, 100, 1000, 5000])
        expected = [batch for batch in visible if batch.last >= offset and batch.last < upto]
        piece = log.read(offset, max_bytes, upto)
        data = piece.read()
        got = [bytes(batch.view) for batch in iter_batches(data)]
        assert b"".join(got) == data, "whole batches only"
        assert got == [batch.raw for batch in expected[: len(got)]]
        assert bool(got) == bool(expected), "at least one if there is one"
        assert len(data) <= max_bytes or len(got) == 1

    @invariant()
    def log_is_consistent(self) -> None:
        if hasattr(self, "log"):
            check(self.log)

    @invariant()
    def times_are_found(self) -> None:
        if hasattr(self, "log") and self.batches:
            timestamp = self.random.randint(1_700_000_000_000 - 5, self.now + 20)
            records = [
                (record.timestamp, record.offset)
                for batch in self.batches
                for record in decode(Batch.trusted(batch.raw))
                if record.offset >= self.log.start_offset
            ]
            expected = next((record for record in records if record[0] >= timestamp), None)
            found = lookup_timestamp(self.log, TimestampMs(timestamp))
            assert (found[:2] if found else None) == expected
            self.times_are_found_below(Offset(self.random.choice(self.batches).base), records, timestamp)

    def times_are_found_below(self, end: Offset, records: list[tuple[TimestampMs, Offset]], timestamp: int) -> None:
        """Check that lookups by time see the log up to a batch's border."""
        below = [record for record in records if record[1] < end]
        first = next((record for record in below if record[0] >= timestamp), None)
        assert search_below(self.log, TimestampMs(timestamp), end) == first
        greatest = max(below, key=lambda record: record[0], default=None)
        assert search_below(self.log, None, end) == greatest


def search_below(log: Log, timestamp: TimestampMs | None, end: Offset) -> tuple[TimestampMs, Offset] | None:
    """Return the results of the search steps, each with the small candidates first."""
    start, is_large = log.start_offset, False
    while (search := begin_search(log, timestamp, start, end, is_large=is_large)) is not None:
        found = search.run()
        if not isinstance(found, UnfinishedSearch):
            return found and (found.timestamp, found.offset)
        start, is_large = found
    return None


def contents(log: Log) -> list[Written]:
    """Return all records from the start, as a consumer reads them."""
    found: list[Written] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 700, log.end_offset).read()
        if not data:
            break
        for batch in iter_batches(data):
            found.append(Written(batch.base_offset, batch.last_offset, bytes(batch.view)))
            offset = batch.next_offset
    return found


History.TestCase.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHistory = History.TestCase

# Hypothesis makes short histories and shrinks them; these are long, and of a broker's proportions.
STEPS = 60
WEIGHTS = {
    "append": 12.0,
    "append_to_a_full_disk": 1,
    "new_leader": 1,
    "roll": 1,
    "begin_flush": 1,
    "finish_flush": 1,
    "flush": 1,
    "write_checkpoint": 2,
    "truncate": 1,
    "start_over": 0.2,
    "delete_records": 0.6,
    "retention": 1,
    "stop_and_start": 0.5,
    "kill": 0.5,
    "crash": 1.2,
}


def one_history(seed: int) -> None:
    random = Random(seed)
    history = History()
    history.start(preallocate=random.random() < 0.3, seed=seed)
    arguments: dict[str, Callable[[], dict[str, object]]] = {
        "append": lambda: {
            "shapes": [(random.randint(1, 6), random.randint(0, 380)) for _ in range(random.randint(1, 3))]
        },
        "append_to_a_full_disk": lambda: {
            "room": random.randint(0, 600),
            "shapes": [random.randint(0, 300) for _ in range(random.randint(1, 3))],
        },
        "truncate": lambda: {"offset": random.random()},
        "delete_records": lambda: {"offset": random.random()},
        "start_over": lambda: {"ahead": random.randint(0, 50)},
    }
    for name in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        if name != "finish_flush" or history.begun:
            getattr(history, name)(**arguments.get(name, dict)())
            history.log_is_consistent()
            history.reads_are_correct()
            history.times_are_found()


@pytest.mark.parametrize("seed", range(40))
def test_long_histories_match_a_list(seed: int) -> None:
    one_history(seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_more_long_histories_match_a_list() -> None:
    for seed in range(10_000, 15_000):
        try:
            one_history(seed)
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure
