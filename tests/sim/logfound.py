"""The log found at a start, compared with all valid states: its last contents, or those before a truncation."""

from __future__ import annotations

from odradek.base.units import Offset
from sim.logchecks import CheckedLog
from sim.logcontents import check_batches
from sim.logmodel import Broken, Model, Written
from sim.logstate import NAME, ROOT
from support.cleaning import batches_of


class FoundLog(CheckedLog):
    """The checks of a reopened log; all methods raise Broken."""

    def restarted(self, *, clean: bool) -> None:
        log, end = self.log, self.log.end_offset
        self.was_cut |= self.is_shortening and end < self.high_watermark and self.cleaned_end > 0
        self.safe = 0 if self.was_cut else min(self.safe, self.model.end(self.safe))
        if end < self.safe:
            raise Broken(f"ends at {end}, and was synced up to {self.safe}")
        if clean and not self.was_cut and (end, log.start_offset) != (self.stopped_at, self.noted_start):
            raise Broken(f"{log.start_offset} to {end}, was {self.noted_start} to {self.stopped_at} at a clean stop")
        if log.start_offset < self.noted_start:
            raise Broken(f"starts at {log.start_offset}, and began at {self.noted_start} in a checkpoint")
        if min(log.start_offset, self.safe) > self.latest_start:  # Unsynced records may be missing.
            raise Broken(f"starts at {log.start_offset}, nobody asked for more than {self.latest_start}")
        self.latest_start = max(self.latest_start, log.start_offset)
        left = {entry.name.rpartition(".")[2] for entry in self.disk.entries(f"{ROOT}/{NAME}")}
        if left & {"cleaned", "swap", "deleted", "tmp"}:
            raise Broken(f"left in the directory: {left}")
        if log.aside is not None and log.aside.end_offset < self.safe:
            raise Broken(f"set aside: {log.aside}")
        self.may_forget |= end < self.producers_seen_to
        self.is_shortening = False
        self.match()
        self.empty_since = end
        self.high_watermark = end
        log.producers.high_watermark_advanced(end)
        self.leader_epoch += 1
        self.relearn()
        self.check_log()

    def match(self) -> None:
        """Find a former version of the log, including truncated and refused batches, that the log is now a part of."""
        end, batches, first = self.log.end_offset, batches_of(self.log), None
        for version in (self.model.batches, *reversed(self.versions)):
            found = Model([one for one in version if one.last < end], self.log.start_offset)
            try:
                is_empty_last = not self.log.segments[-1].size  # After a hole, which cannot be recognized.
                if not is_empty_last and found.end(end) < min(end, self.log.start_offset):
                    raise Broken(f"the log ends at {end}, its last batch at {found.end(0)}")
                self.leave_out(found, {batch.base_offset for batch in batches})
                found.settle()
                check_batches(found, batches, end)
            except Broken as broken:
                self.add_event("no version", broken)
                first = first or broken
                continue
            self.was_cut |= self.disk.reorders and self.is_cutting
            self.model, self.versions, self.is_cutting = found, [], False
            self.safe = end if self.log.recovery_point == end else min(self.safe, end)
            return
        raise first or Broken("no version")

    def leave_out(self, found: Model, there: set[Offset]) -> None:
        """Remove missing batches from the version, if the log may lack them.

        Whole unsynced segments may be missing, as a compacted log may have holes. Another log has none above
        its start. A log that lost the records just below its start may begin again there.
        """
        bases = [segment.base_offset for segment in self.log.segments]
        hole: list[Written] = []
        for one in [*found.batches, None]:
            base = self.log.end_offset if one is None else one.base
            if one is not None and one.base not in there:
                if one.base >= self.safe:
                    hole.append(one)
                is_above = one.last >= self.log.start_offset
                if self.disk.reorders and self.is_cutting and is_above and self.is_compacted:
                    found.batches.remove(one)  # A truncation relies on the journal's order.
                continue
            is_right = bool(hole) and (self.is_compacted or hole[-1].last < self.log.start_offset)
            if is_right and any(hole[-1].last < begin <= base for begin in bases):
                self.may_forget = True
                below = self.log.start_offset if hole[-1].last < self.log.start_offset else 0
                hole += [other for other in found.batches if other.last < below and other.base not in there]
                found.batches = [other for other in found.batches if other not in hole]
            hole = []

    def relearn(self) -> None:
        """Let producers continue from the state that the log has of them."""
        self.sequences.clear()
        self.epochs.clear()
        for one in self.log.producers:
            self.sequences[one.id] = (one.last_sequence + 1) & 0x7FFFFFFF
            self.epochs[one.id] = max(one.epoch, 0)
