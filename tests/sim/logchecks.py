"""Invariants of a log: cheap checks after each step, and full ones after each step that may break it."""

from __future__ import annotations

from odradek.base.units import Offset, TimestampMs
from odradek.log.log.log import Log
from odradek.log.log.timestamp_search import lookup_timestamp
from sim.logcontents import (
    check_batches,
    check_committed,
    check_epochs,
    check_indexes,
    check_no_other_producers,
    check_producers,
    times,
)
from sim.logmodel import Broken
from sim.logstate import NAME, ROOT, LogState
from sim.simdisk import SimDisk
from support.cleaning import batches_of, committed
from support.invariants import check


class CheckedLog(LogState):
    """The invariant checks of a log; all methods raise Broken."""

    def check_bounds(self) -> None:
        log, model = self.log, self.model
        if log.end_offset not in (model.end(log.end_offset), self.empty_since):
            raise Broken(f"ends at {log.end_offset}, its last batch at {model.end(-1)}")
        if log.start_offset != model.start:
            raise Broken(f"starts at {log.start_offset}, not at {model.start}")
        if not log.compaction.cleaned_to <= self.cleaned_end:
            raise Broken(f"cleaned to {log.compaction.cleaned_to}, no pass went beyond {self.cleaned_end}")

    def check_log(self) -> None:
        """Check the whole log, with disk faults suspended."""
        trouble = self.disk.suspend()
        try:
            log, model = self.log, self.model
            model.settle()
            if not self.was_cut:
                check(log)
            batches = batches_of(log)
            check_batches(model, batches, log.end_offset)
            check_indexes(log, batches)
            check_epochs(log, batches)
            stable = min(log.producers.first_unstable, self.high_watermark)
            if not self.was_cut:
                self.check_stable(stable)
                if not self.may_forget:
                    check_producers(model.producers(), log)
                    check_no_other_producers(model.producers(), log)
                check_committed(
                    model,
                    committed(log, Offset(stable), self.random.choice([1, 700, 1 << 20])),
                    stable,
                    was_cut=self.was_cut,
                )
        finally:
            self.disk.resume(trouble)

    def check_stable(self, stable: int) -> None:
        unstable = self.model.first_open(1 << 62)
        if stable > unstable:
            raise Broken(f"stable up to {stable}, where a transaction is open since {unstable}")

    # ------------------------------------------------------------------ without its small files

    def check_rebuilt(self) -> None:
        """Check that the log is the same when reopened without its indexes and snapshots."""
        self.end_reap()
        log, disk = self.log, SimDisk()
        names = {segment.name for segment in log.segments}  # Other files may wait for the reaper.
        disk.make_directory(f"{ROOT}/{NAME}")
        for name, node in self.disk.folders[f"{ROOT}/{NAME}"].live.items():
            if (name in names or name.endswith("checkpoint")) and node is not None:
                disk.create(f"{ROOT}/{NAME}/{name}").write(0, bytes(node.live))
        again = Log.open(disk, log.directory, self.config, self.now, start_offset=log.start_offset)
        ends = log.end_offset, self.model.end(-1)
        if not self.was_cut and (again.start_offset != log.start_offset or again.end_offset not in ends):
            raise Broken(f"rebuilt from {again.start_offset} to {again.end_offset}")
        batches = batches_of(again)
        check_indexes(again, batches)
        if not (self.was_cut or self.may_forget):
            self.check_known(log.segments[0].base_offset, again)
        expected = list(times(batches, log.start_offset))
        for _ in range(0 if self.was_cut else 5):
            self.check_lookups(log, again, expected)

    def check_known(self, since: int, again: Log) -> None:
        """Check the producers, some of which may have only a marker, or nothing, since the log start moved."""
        known, rest = self.model.producers(), self.model.producers(since)
        lasts = {producer: one.last for producer, one in known.items()}
        check_producers({one: rest[one] for one in rest if lasts[one] == rest[one].last}, again)

    def check_lookups(self, log: Log, again: Log, expected: list[tuple[int, int]]) -> None:
        timestamp = TimestampMs(self.random.choice(expected)[0] + self.random.randrange(2)) if expected else self.now
        first = next((one for one in expected if one[0] >= timestamp), None)
        for one in (log, again):
            found = lookup_timestamp(one, timestamp)
            if (found and (found.timestamp, found.offset)) != first:
                raise Broken(f"{timestamp} is found at {found}, is at {first}")
        if log.start_offset < log.end_offset:
            offset = Offset(self.random.randrange(log.start_offset, log.end_offset))
            read = [one.read(offset, 1, log.end_offset).read() for one in (log, again)]
            if read[0] != read[1]:
                raise Broken(f"reads from {offset} differ")
