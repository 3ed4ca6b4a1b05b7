"""Simulated worlds, one per seed: a broker, its clients and faults; Kafka's promises hold in all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.base.units import DAY_MS, TimestampMs, TopicPartition
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.disks.flushes import Sync, Synced
from odradek.core.kernel.moment import Moment
from odradek.core.transactions.transaction_markers import Marker
from odradek.log.files.disk import DiskFailed, FileSlice
from odradek.log.log.durability import synced_to
from sim.history import failure
from sim.play import World
from sim.simbroker import Prepare
from sim.simkeys import is_tombstone
from sim.simshell import SimShell, clean
from support.seeds import seeds

TESTS = Path(__file__).parents[1]
HASH_SEEDS = ("0", "1", "4711")
SEEDS, SOAK_SEEDS = seeds(range(24)), range(24, 4_000)
COMPACTED_SEED = 1
FOUND_WITHIN = 12

pytestmark = pytest.mark.slow


def check(seed: int) -> None:
    found = World(seed).play()
    assert not found, failure(seed, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_breaks_no_promise(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_worlds_break_no_promise() -> None:
    for seed in SOAK_SEEDS:
        check(seed)


@pytest.mark.nightly
@pytest.mark.waits
def test_a_seed_determines_the_history() -> None:
    """It does not depend on the order of sets in a process, and each seed has a history of its own."""
    histories = [digests_under(hash_seed) for hash_seed in HASH_SEEDS]
    assert histories[1:] == [histories[0]] * (len(HASH_SEEDS) - 1)
    assert len({line.split()[2] for line in histories[0]}) == len(histories[0]) == 3


def digests_under(hash_seed: str) -> list[str]:
    path = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-m", "sim.play", "1", "2", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_compaction_removes_many_records() -> None:
    world = World(COMPACTED_SEED)
    assert not world.play()
    history = world.history
    lost = history.sent.keys() - {seen.value for records in history.final.values() for seen in records}
    assert history.dropped_records > len(history.sent) // 2
    assert {is_tombstone(value) for value in lost} == {True, False}


# A check must be able to fail: injected bugs are found.


def reports_syncs_that_never_ran(shell: SimShell) -> None:
    """Report syncs as done that never ran."""

    def report_done(sync: Sync) -> Synced:
        return Synced(dict(sync.flushes))

    shell.run_sync = report_done


def forgets_producers(shell: SimShell) -> None:
    """Make a new process forget the producers in its logs."""
    for directory in shell.broker.storage:
        for one in directory.logs.values():
            one.producers._by_id.clear()


def skips_an_offset(shell: SimShell) -> None:
    """Return a fetch response now and then whose first batch is one offset further."""

    def read(records: FileSlice) -> bytes:
        data = bytearray(records.read())
        if data and shell.random.random() < 0.02:
            data[:8] = (int.from_bytes(data[:8]) + 1).to_bytes(8)
        return bytes(data)

    shell.read_slice = read


def reports_failed_syncs_as_done(shell: SimShell) -> None:
    """Report failed syncs as done."""

    def report_done(sync: Sync) -> Synced:
        for name, ended in sync.run().flushes.items():
            if isinstance(ended, DiskFailed):
                sync.flushes[name].has_failed = False
        return Synced(dict(sync.flushes))

    shell.run_sync = report_done


def commits_aborted_transactions(shell: SimShell) -> None:
    """Write commit markers for all transactions, whatever was decided."""
    completions = shell.broker.transactions.completions
    write = completions._write_marker

    def mark(name: TopicPartition, marker: Marker, now: Moment) -> PendingWrite | None:
        return write(name, marker._replace(is_commit=True), now)

    completions._write_marker = mark


def forgets_a_marker(shell: SimShell) -> None:
    """Skip the marker of the first partition of each transaction."""
    completions = shell.broker.transactions.completions
    write = completions._write_marker

    def mark(name: TopicPartition, marker: Marker, now: Moment) -> PendingWrite | None:
        return write(name, marker, now) if name.partition else None

    completions._write_marker = mark


def deletes_tombstones_at_once(shell: SimShell) -> None:
    """Make the cleaner ignore delete.retention.ms."""

    def broken(step: Clean) -> Cleaned:
        options = step.cleaning._options
        later = TimestampMs(options.rules.now + 100 * DAY_MS)
        step.cleaning._options = options._replace(rules=options.rules._replace(now=later))
        return clean(step)

    shell.run_clean = broken


def compacts_by_aborted_records(shell: SimShell) -> None:
    """Make the cleaner take every transaction for a committed one."""

    def broken(step: Clean) -> Cleaned:
        step.cleaning._indexes.clear()
        return clean(step)

    shell.run_clean = broken


def compacts_beyond_open_transactions(shell: SimShell) -> None:
    """Make the cleaner go beyond the start of the first open transaction."""

    def broken(step: Clean) -> Cleaned:
        cleaning = step.cleaning
        end = min(cleaning._sources[-1].next_base, synced_to(step.partition.log))
        cleaning._found = cleaning._found._replace(first_uncleanable=end)
        return clean(step)

    shell.run_clean = broken


def reports_passes_that_remove_nothing(shell: SimShell) -> None:
    """Report a pass as done that removes nothing."""

    def broken(step: Clean) -> Cleaned:
        if not step.cleaning.is_mapped:
            return clean(step)
        step.cleaning._groups.clear()
        return Cleaned(step, None, None)

    shell.run_clean = broken


BROKEN: list[tuple[Prepare, str, str]] = [
    (reports_syncs_that_never_ran, "power", ""),  # Groups fail before any check looks for records.
    (forgets_producers, "kill", "times"),
    (skips_an_offset, "reset", "there is a gap"),
    (reports_failed_syncs_as_done, "disk", "is lost"),
    (commits_aborted_transactions, "reset", "checker: aborted read"),
    (forgets_a_marker, "reset", "not come to an end"),
    (deletes_tombstones_at_once, "reset", "is lost"),
    (compacts_by_aborted_records, "reset", "is lost"),
    (
        compacts_beyond_open_transactions,
        "reset",
        "",
    ),  # A consumer may miss lost records before any check looks for them.
    (reports_passes_that_remove_nothing, "reset", "is compacted to"),
]


@pytest.mark.share(5)
@pytest.mark.parametrize(("breaks", "fault", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_an_injected_bug_is_found(breaks: Prepare, fault: str, message: str) -> None:
    for seed in range(FOUND_WITHIN):
        found = World(seed, breaks, [fault]).play()
        if any(message in line for line in found):
            return
    raise AssertionError(f"{FOUND_WITHIN} seeds were not enough to find it")
