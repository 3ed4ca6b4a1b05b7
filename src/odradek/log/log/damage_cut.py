"""Cuts a damaged log at its damage, and sets aside all that is cut off: another damaged replica may lack just that.

    run      in any thread, since up to a whole segment is copied: the rest of the damaged segment
    finish   on the loop: later segments are renamed, the last first, and then the damaged one is cut

A stop anywhere leaves the log as it was, or a run of it and the rest in .aside files.
"""

from __future__ import annotations

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.disk import DiskFailed
from odradek.log.log.log import Log
from odradek.log.log.truncation import truncate_to
from odradek.log.recovery.quarantine import QuarantinedData, copy_rest, survey
from odradek.log.segment.cut_places import cut_of
from odradek.log.segment.segment import Segment

_Dropped = tuple[int, tuple[tuple[Segment, int], ...]]


class DamageCut:
    """One cut of a log that nobody reads or appends to.  Raises DiskFailed."""

    def __init__(self, log: Log, offset: Offset, why: str) -> None:
        self._log = log
        self.offset = offset
        self._dropped = _dropped(log, offset)
        self.aside = QuarantinedData(cut_of(log.segments, offset).end_offset, why)
        self.failure: DiskFailed | None = None
        self.is_over = self.is_done = False
        self.is_withdrawn = False  # Its names may be those of other files by now.

    def run(self) -> None:
        """Copy the rest of the damaged segment, durably; `failure` says why not."""
        assert not self.is_over, "a cut copies the rest of its segment once"
        try:
            if not self.is_withdrawn:
                self._copy()
                self.is_done = True
        except DiskFailed as failed:
            self.failure = failed
        finally:
            self.is_over = True

    def _copy(self) -> None:
        disk, directory, aside = self._log.disk, self._log.directory, self.aside
        position, ((segment, size), *later) = self._dropped
        if position < size:
            file = disk.open(segment.path)  # The segment's own belongs to the loop.
            found = survey(file, position, size, aside.end_offset, segment.base_offset)
            aside.records, aside.is_all = found.records, found.is_all
            copy_rest(disk, directory, file, (position, size), aside)
        for each, _ in later:
            disk.open(each.path).sync()
            aside.is_all = False  # They are not read: there may be a terabyte of them.
        disk.sync_directory(directory)

    def finish(self, now_ms: TimestampMs) -> bool:
        """Truncate the log; return False if nothing was set aside, or if it has changed since the cut was begun.

        Raises DiskFailed with nothing cut off.
        """
        if not self.is_done or _dropped(self._log, self.offset) != self._dropped:
            return False
        truncate_to(self._log, self.offset, now_ms, self.aside)
        return True


def _dropped(log: Log, offset: Offset) -> _Dropped:
    """Return where the last segment that stays is cut, and that segment and all later ones with their sizes."""
    cut = cut_of(log.segments, offset)
    return cut.position, tuple((segment, segment.size) for segment in log.segments[len(cut.kept) - 1 :])
