"""Truncation of the log at either end, and deletion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from odradek.base.units import Offset
from odradek.log.files.disk import DiskFailed
from odradek.log.log.retention import advance_start, delete_below_start, expired_upto
from odradek.log.log.truncation import truncate_fully, truncate_to
from sim.logmodel import Broken, Model
from sim.logstate import NAME
from sim.logwriting import WrittenLog
from support.cleaning import batches_of


class CutLog(WrittenLog):
    """A log under truncation; a power failure may restore truncated records until the truncation is synced."""

    def retention(self) -> None:
        start = expired_upto(self.log, self.now, Offset(self.high_watermark))
        if start is not None and (start <= self.log.start_offset or self.move_start(start)):
            self.delete_below_start()

    def delete_records(self) -> None:
        low, high = self.log.start_offset, self.high_watermark
        if low < high and self.move_start(Offset(self.random.randint(low, min(high, low + 60)))):
            self.delete_below_start()

    def move_start(self, start: Offset) -> bool:
        """Move the log start offset, durably first like core/partition/log_starts; return False if the disk refuses."""
        write = self.directory.checkpoints.begin_starts({NAME: start})
        self.latest_start = max(self.latest_start, start)
        try:
            write.run()
            self.noted_start = max(self.noted_start, start)
        except DiskFailed as failed:
            if not failed.is_full:
                raise
        finally:
            self.directory.checkpoints.end_starts(write)
        advance_start(self.log, start)
        self.model.start = self.log.start_offset
        self.add_event("start at", f"{start}{'' if write.is_done else ', not noted'}")
        return True

    def delete_below_start(self) -> None:
        self.is_cutting |= self.noted_start < self.log.start_offset  # Otherwise records below are kept.
        count = delete_below_start(self.log, self.now)
        self.add_event("deleted", f"{count} segments")

    def truncate(self) -> None:
        """Truncate the log at an offset that is usually not below the high watermark."""
        low = self.high_watermark if self.random.random() < 0.85 else self.log.start_offset
        batches = self.model.batches  # Not within a gap: the log would end there until it is reopened.
        inside = [one for before, one in pairwise(batches) if low <= one.base == before.last + 1]
        if inside:
            one = self.random.choice(inside)
            self.safe = min(self.safe, one.base)
            self.cut(Offset(self.random.randint(one.base, one.last)))

    def cut(self, offset: Offset) -> None:
        log, before = self.log, self.model.batches
        with self.shortening():
            is_cut = truncate_to(log, offset, self.now)
        if not is_cut:
            return
        end = log.end_offset
        self.add_event("truncate", f"to {offset}, ends at {end}")
        self.versions.append(before)
        self.model.batches = [one for one in before if one.last < end]
        if [one for one in before if one.base < end <= one.last] and end > self.cleaned_end:
            raise Broken(f"a batch was cut in two at {end}")
        self.empty_since = end if end <= self.cleaned_end else -1
        self.was_cut |= end < self.high_watermark and self.cleaned_end > 0
        self.was_shortened(end)
        if self.was_cut:
            there = {batch.base_offset for batch in batches_of(log)}
            first = log.segments[0].base_offset  # Records below may reappear.
            self.model.batches = [one for one in self.model.batches if one.base in there or one.base < first]
            self.safe = min(self.safe, self.model.end(0))

    @contextmanager
    def shortening(self) -> Iterator[None]:
        """Mark the log as being truncated: after a crash within, the next start finds out how far that went.

        If the disk fails, the truncation has not begun.
        """
        self.is_shortening = True
        try:
            yield
        except DiskFailed:
            self.is_shortening = False
            raise
        self.is_shortening = False

    def was_shortened(self, end: int) -> None:
        self.safe, self.high_watermark = min(self.safe, end), min(self.high_watermark, end)
        self.model.start = min(self.model.start, end)
        self.noted_start = min(self.noted_start, end)
        self.was_cut |= end < self.cleaned_end
        self.may_forget |= end < self.producers_seen_to
        self.leader_epoch += 1
        self.relearn()

    def start_over(self) -> None:
        start = Offset(self.log.end_offset + self.random.randrange(20))
        self.is_cutting, self.safe, self.noted_start = True, 0, 0
        self.latest_start = max(self.latest_start, start)
        before = [*self.versions, self.model.batches]
        self.versions.append([])
        with self.shortening():
            truncate_fully(self.log, start, self.now)
        self.add_event("start over", f"at {start}")
        self.recreate(start)
        if self.log.owes:
            self.versions, self.is_shortening = before, True

    def delete(self) -> None:
        """Delete the topic, and create it again."""
        if self.random.random() < 0.8:
            return
        self.add_event("delete")
        self.directory.delete(NAME, self.now)
        self.flushes.clear()
        versions = [*self.versions, self.model.batches]
        self.model, self.versions, self.safe, self.noted_start = Model(), versions, 0, 0
        try:
            self.make()
        except DiskFailed:
            self.disk.mend()
            self.make()
        self.versions = versions  # Until the directory's name is synced.
