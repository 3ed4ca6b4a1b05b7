"""Simulated histories of one log and its cleaner, one per seed, on a disk that fails, loses and reorders writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.units import Offset, TimestampMs
from odradek.log.compaction.cleanable import LogToClean, cleanable
from odradek.log.compaction.cleaned_batches import CleanedBatches
from odradek.log.compaction.cleaned_segments import CleanedSegments
from odradek.log.compaction.cleaned_transactions import CleanedTransactions
from odradek.log.compaction.cleaner import Cleaning, Group, Throttle
from odradek.log.files.disk import Disk
from odradek.log.log.log import Log
from odradek.log.recovery import stray_files as leftovers
from odradek.log.removal.swap import Publication, Swap, ViewedDisk
from odradek.record.batch_filter import BatchFilter, RetentionRules
from odradek.record.crc import Buffer
from odradek.record.record_batch import Batch
from sim import logcompaction
from sim.logplay import LogPlay, failure
from support.seeds import seeds

Breaks = Callable[[pytest.MonkeyPatch], None]

SEEDS_PER_TEST = 100
TESTS, SOAK_SEEDS = 25, range(10_000, 60_000)


def check(seed: int) -> None:
    play = LogPlay(seed)
    found = play.play()
    assert found is None, failure(play, found)


# Found by seeds beyond the first ones, each with a cause of its own.
FOUND = {
    27619: "files below the log start come back, the index of one beside another's log",
    30389: "of a segment below the log start only the size was on the disk",
    41326: "a marker below the log start is gone, and what it ended was taken for open",
    44984: "the segment from which the last of a producer was read anew is gone",
    5160: "of a log that is not compacted one of them is gone: it ended there, and all the rest was set aside",
    34451: "a start over that is stopped half-way is a cut below the high watermark",
    43498: "the same, of which only the log's first segment is left",
    27632: "a cut above the high watermark made a transaction stable that had ended between the two",
    70221: "a cut whose sync had failed was owed for ever, though the next cut took the segment away",
    36953: "an epoch that a follower could not append behind a gap stayed noted beyond the log's end",
}


@pytest.mark.parametrize("seed", FOUND, ids=str)
def test_formerly_failed_log_histories_break_no_promise(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", seeds(range(TESTS)))
def test_log_histories_break_no_promise(hundred: int) -> None:
    for seed in range(hundred * SEEDS_PER_TEST, (hundred + 1) * SEEDS_PER_TEST):
        check(seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_log_histories_break_no_promise() -> None:
    for seed in SOAK_SEEDS:
        check(seed)


def test_a_seed_determines_the_log_history() -> None:
    first, second, other = LogPlay(1), LogPlay(1), LogPlay(2)
    for play in (first, second, other):
        play.play()
    assert str(first) == str(second) != str(other)


# A check must be able to fail: injected bugs of the cleaner are found.

FOUND_WITHIN = 1_000


class Unsynced(ViewedDisk):
    def sync_directory(self, path: str) -> None:
        """Sync nothing."""


def swaps_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync that orders the removal of sources before the new names."""
    run = Swap.run
    patch.setattr(Swap, "run", lambda self, disk, turns: run(self, Unsynced(disk), turns))


def publishes_the_first_segment_early(patch: pytest.MonkeyPatch) -> None:
    """Give the first of several new segments its .swap name before the others are complete."""
    init = Publication.__init__

    def reversed_bases(self: Publication, disk: Disk, directory: str, bases: list[Offset], turns: Any) -> None:
        init(self, disk, directory, [*bases[1:], bases[0]], turns)

    patch.setattr(Publication, "__init__", reversed_bases)


def keeps_no_end(patch: pytest.MonkeyPatch) -> None:
    kept = CleanedBatches.kept
    patch.setattr(
        CleanedBatches, "kept", lambda self, batch, rules, *, keeps_header: kept(self, batch, rules, keeps_header=False)
    )


def keeps_no_last_of_a_producer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CleanedBatches, "_is_last_of_producer", lambda self, batch: False)


def drops_markers_at_once(patch: pytest.MonkeyPatch) -> None:
    """Remove an empty transaction's marker in the pass that finds it, not once its horizon has passed."""

    def marker(batch: Batch, rules: RetentionRules, *, is_void: bool, keeps_header: bool) -> Buffer | None:
        return None if is_void and not keeps_header else batch.view

    patch.setattr(CleanedBatches, "_marker", staticmethod(marker))


def drops_markers_before_their_records(patch: pytest.MonkeyPatch) -> None:
    passes = CleanedTransactions.passes_control
    patch.setattr(CleanedTransactions, "passes_control", lambda self, batch: passes(self, batch) or True)


def forgets_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CleanedSegments, "end_aborted", lambda self, aborted: None)


def ends_one_too_far(patch: pytest.MonkeyPatch) -> None:
    """Make a pass cover one offset more than is in its map."""
    build = Cleaning.build_map

    def one_more(self: Cleaning, throttle: Throttle) -> None:
        build(self, throttle)
        self.end = Offset(self.end + 1)

    patch.setattr(Cleaning, "build_map", one_more)


def drops_tombstones_too_early(patch: pytest.MonkeyPatch) -> None:
    keep = BatchFilter.keep_latest
    patch.setattr(
        BatchFilter,
        "keep_latest",
        lambda self, batch, end, rules: keep(self, batch, end, rules._replace(horizon=rules.now)),
    )


def cleans_open_transactions(patch: pytest.MonkeyPatch) -> None:
    def all_of_it(log: Log, now: TimestampMs, high_watermark: Offset) -> LogToClean:
        upper = min(log.segments[-1].base_offset, log.recovery_point, high_watermark)
        found = cleanable(log, now, high_watermark)
        return found._replace(first_uncleanable=max(upper, found.first_uncleanable))

    patch.setattr(logcompaction, "cleanable", all_of_it)


def notes_the_end_too_early(patch: pytest.MonkeyPatch) -> None:
    """Write a pass to the checkpoint as soon as its map is built."""
    took = LogPlay.took

    def early(self: LogPlay, cleaning: Cleaning, log: Log, group: Group | None) -> None:
        if group is None:
            log.compaction.cleaned(cleaning.end)
        took(self, cleaning, log, group)

    patch.setattr(LogPlay, "took", early)


def leaves_what_a_failed_pass_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publication, "undo", lambda self: None)


def replaces_one_segment_too_many(patch: pytest.MonkeyPatch) -> None:
    """Make a start that completes a swap take the segment after the sources for one of them, and leave a gap."""
    end_of = leftovers._end_of
    patch.setattr(leftovers, "_end_of", lambda disk, path, base: Offset(end_of(disk, path, base) + 1))


# With the first seed to try: rare histories appear soon after it.
BROKEN = {
    replaces_one_segment_too_many: 0,
    swaps_without_a_sync: 740,
    publishes_the_first_segment_early: 600,
    keeps_no_end: 0,
    keeps_no_last_of_a_producer: 0,
    drops_markers_at_once: 0,
    drops_markers_before_their_records: 0,
    forgets_aborted_transactions: 240,
    ends_one_too_far: 0,
    drops_tombstones_too_early: 40,
    cleans_open_transactions: 0,
    notes_the_end_too_early: 0,
    leaves_what_a_failed_pass_made: 360,
}


@pytest.mark.slow
@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_an_injected_cleaner_bug_is_found(breaks: Breaks, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    first = BROKEN[breaks]
    for seed in range(first, first + FOUND_WITHIN):
        if LogPlay(seed).play() is not None:
            return
    raise AssertionError(f"{FOUND_WITHIN} seeds were not enough to find it")
