"""Start offset of each leader epoch (KIP-101), by which a follower finds where its log diverges.

The leader-epoch-checkpoint file holds this cache, and every batch in the log carries its epoch.  So the file is written
at once, but synced only with the log, before the recovery point advances.  If a crash loses part of it, recovery finds
that part in the batches it scans.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter

from odradek.base.units import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.segment.checkpoints import write_epochs

_EPOCH = itemgetter(0)
_START = itemgetter(1)


class LeaderEpochFileCache:
    """Ascending (epoch, first offset) pairs; `assign` and `write` may raise DiskFailed.

    A file that could not be shortened has too many entries, never too few.  On opening, recovery drops entries
    outside the log's start and end. As long as
    the file is too long, `is_written` is False, and `write` must be retried.
    """

    __slots__ = ("_directory", "_disk", "_entries", "changes", "is_written", "latest")

    def __init__(self, disk: Disk, directory: str, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        self._disk = disk
        self._directory = directory
        self._entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
        self.is_written = True
        self.changes = 0  # Writes of the file so far; a flush compares this.
        self._check()

    def _check(self) -> None:
        entries = self._entries
        assert self.latest == (entries[-1][0] if entries else NO_EPOCH), "the last entry is of the latest epoch"
        if len(entries) > 1:
            assert entries[-2][0] < entries[-1][0], "leader epochs ascend"
            assert entries[-2][1] <= entries[-1][1], "a leader epoch begins where the one before ends"

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(self._entries)

    @property
    def earliest(self) -> LeaderEpoch:
        return self._entries[0][0] if self._entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Record that `epoch` begins at `start`, drop contradicting entries, and write the file."""
        before = list(self._entries)
        self.note(epoch, start)
        if self._entries != before:
            try:
                self.write()
            except DiskFailed:
                self._set(before)
                raise

    def note(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Record an epoch as `assign` does, without writing the file; recovery writes it once at the end."""
        entries = self._entries
        if epoch == self.latest or epoch < 0:
            return
        # An epoch without records leaves no entry: the next one begins at the same offset.
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        entries.append((epoch, start))
        self.latest = epoch
        self._check()

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch in which `offset` was written; NO_EPOCH if it is unknown."""
        number = bisect_right(self._entries, offset, key=_START)
        return self._entries[number - 1][0] if number else NO_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """Return the greatest known epoch up to `epoch`, and the start of the next (OffsetForLeaderEpoch).

        Return (NO_EPOCH, NO_OFFSET) if `epoch` is NO_EPOCH or newer than all known epochs.  For an epoch below
        all of them, return the epoch itself and the start of the first known one.
        """
        if epoch == NO_EPOCH or epoch > self.latest or not self._entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        number = bisect_right(self._entries, epoch, key=_EPOCH)
        assert number < len(self._entries), "another epoch follows one below the latest"
        following = self._entries[number][1]
        return (self._entries[number - 1][0] if number else epoch), following

    def truncate_from_end(self, end: Offset) -> None:
        """Drop the epochs that begin at `end` or later, where the log now ends."""
        kept = [entry for entry in self._entries if entry[1] < end]
        if len(kept) != len(self._entries):
            self._replace(kept)
        assert not self._entries or self._entries[-1][1] < end, "no epoch begins at the end of the log or later"

    def truncate_from_start(self, start: Offset) -> None:
        """Drop the epochs that ended before `start`; the epoch current there now begins at `start`."""
        number = bisect_right(self._entries, start, key=_START)
        if number:
            kept = [(self._entries[number - 1][0], start), *self._entries[number:]]
            if kept != self._entries:
                self._replace(kept)
        assert not self._entries or self._entries[0][1] >= start, "no epoch begins before the log"

    def replace_entries(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Replace the epochs by those of another log, including epochs without records, and write the file."""
        self._set(list(entries))
        self.write()

    def set_directory(self, directory: str) -> None:
        """Use this directory from now on."""
        self._directory = directory

    def clear(self) -> None:
        if self._entries:
            self._replace([])

    def _replace(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        self._set(entries)
        self.is_written = False
        with suppress(DiskFailed):
            self.write()

    def _set(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
        self._check()

    def write(self) -> None:
        """Write the file; only callers of `note` need this, other methods write the file themselves."""
        write_epochs(self._disk, self._directory, self._entries, durable=False)
        self.is_written = True
        self.changes += 1
