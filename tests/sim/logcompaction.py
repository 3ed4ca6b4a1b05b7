"""Compaction of a log step by step, as in core/cleaner/log_cleaner."""

from __future__ import annotations

import errno
from collections import Counter
from typing import cast

from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import Offset, TimestampMs
from odradek.core.cleaner.cleaning_steps import Clean
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleanable import cleanable
from odradek.log.compaction.cleaner import Cleaning, Group, Options, Uncleanable
from odradek.log.compaction.replacement import drop_cleaned, may_be_cleaned, swap_in
from odradek.log.files.disk import DiskFailed
from odradek.log.log.log import Log
from odradek.record.batch_filter import RetentionRules
from sim.logcutting import CutLog
from sim.logmodel import Broken
from support.cleaning import committed


class CompactedLog(CutLog):
    """A log under compaction; any event may happen between two steps, and within one."""

    def clean(self) -> None:
        """Run one step of a pass, as core/cleaner/log_cleaner does."""
        if self.cleaning is None:
            self.begin_pass()
            return
        cleaning, log = self.cleaning, self.log
        self.cleaning = None
        event = self.in_thread(lambda: Clean(cast(Partition, None), cleaning).run(self.throttle))
        ended = event.failure
        if ended is not None:
            self.add_event("pass ended", ended or "withdrawn")
            if log.compaction.cleaning is cleaning:
                log.compaction.cleaning = None
                drop_cleaned(log, cleaning)
            if isinstance(ended, Uncleanable) and log is self.log:
                raise AssertionError(str(ended)) from ended
            if isinstance(ended, DiskFailed) and not (ended.errno == errno.ENOENT and self.has_lost(cleaning)):
                raise ended
            return
        if log is not self.log or log.compaction.cleaning is not cleaning:
            return
        self.took(cleaning, log, event.group)

    def took(self, cleaning: Cleaning, log: Log, group: Group | None) -> None:
        """Apply the result of a step, as core.cleaner.LogCleaner.on_cleaned does."""
        if group is None:
            self.cleaned_end = max(self.cleaned_end, cleaning.end)
            if not cleaning.is_withdrawn:
                self.model.compacted(cleaning.end, cleaning._options.rules.now, self.config.delete_retention_ms)
            self.add_event("mapped", f"to {cleaning.end}")
        elif group.segments:
            sources = [one.segment for one in group.sources]
            if not swap_in(log, sources, group.segments, self.now):
                self.add_event("withdrawn", "sources went")
                cleaning.withdraw()
                log.compaction.cleaning = None
                drop_cleaned(log, cleaning)
                return
            cleaning.swapped_in()
            self.add_event("swapped in", [one.base_offset for one in sources])
            self.check_log()
        if cleaning.is_withdrawn:
            log.compaction.cleaning = None
        elif cleaning.is_over:
            log.compaction.cleaning = None
            log.compaction.cleaned(cleaning.end)
            self.add_event("cleaned", f"to {cleaning.end}, {cleaning.dropped_records} records went")
            self.check_log()
            self.check_compact(cleaning)
        else:
            self.cleaning = cleaning

    def begin_pass(self) -> None:
        log = self.log
        if self.random.random() < 0.5:
            self.roll()
            self.flush()
        if log is not self.log or not may_be_cleaned(log) or not self.is_compacted:
            return
        found = cleanable(log, self.now, Offset(self.high_watermark))
        if found.first_uncleanable <= found.first_dirty:
            return
        rules = RetentionRules(self.now, TimestampMs(self.now + self.config.delete_retention_ms), UNPACKED_BYTES_MAX)
        memory = self.random.choice([1_600, 1 << 20])
        options = Options(memory, self.random.choice([100, 4096]), 0.9, self.random.randbytes(16), rules)
        self.producers_seen_to = log.end_offset
        self.cleaning = log.compaction.cleaning = Cleaning(log, found, options)
        self.add_event("pass", f"from {found.first_dirty} to {found.first_uncleanable}")

    def clean_all(self) -> None:
        self.clean()
        for _ in range(40):
            if self.cleaning is None:
                break
            self.clean()

    def doomed_pass(self) -> None:
        """Run a pass whose process dies at one of the calls that replace old segments."""
        if self.random.random() < 0.5:
            self.clean()
            self.clean()
            self.disk.stop_at(self.random.randrange(80))
            self.clean_all()
        else:
            self.clean_all()
            self.disk.stop_at(self.random.randrange(30))
            self.end_reap()

    # ------------------------------------------------------------------ what a pass leaves

    def check_compact(self, cleaning: Cleaning) -> None:
        """Check that a pass leaves one record of each key, and none without a key."""
        trouble = self.disk.suspend()
        try:
            seen = committed(self.log, cleaning.end, 1 << 20)
        finally:
            self.disk.resume(trouble)
        counts = Counter(one.key for one in seen if one.offset < cleaning.end)
        twice = [key for key, count in counts.items() if count > 1 or key is None]
        if twice and not self.was_cut:
            raise Broken(f"{twice[0]!r} is there {counts[twice[0]]} times below {cleaning.end}")

    def has_lost(self, cleaning: Cleaning) -> bool:
        """Return True if the log has lost records that the pass reads."""
        there = {id(one) for one in self.log.segments}
        return any(id(one.segment) not in there for one in cleaning._sources)
