"""Which leader epoch began at which offset (KIP-101): how a follower learns where its log parts from its leader's.

Kept in leader-epoch-checkpoint and, since every batch carries its epoch, in the log itself.  So the file is written at
once but synced only with the log, before the recovery point moves past: what a crash takes from it, recovery finds in
the batches it scans.
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


class LeaderEpochs:
    """Ascending (epoch, first offset).  `assign` and `write` may raise DiskFailed.

    A file that could not be shortened says too much, never too little: who opens the log shortens what it reads there
    by where the log starts and ends.  `is_written` is False then, and `write` is to be tried again.
    """

    __slots__ = ("_directory", "_disk", "_entries", "changes", "is_written", "latest")

    def __init__(self, disk: Disk, directory: str, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        self._disk = disk
        self._directory = directory
        self._entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
        self.is_written = True
        self.changes = 0  # Writes of the file so far; a flush compares.

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(self._entries)

    @property
    def earliest(self) -> LeaderEpoch:
        return self._entries[0][0] if self._entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Notes that `epoch` begins at `start`, forgets entries that contradict that, and writes the file."""
        before = list(self._entries)
        self.note(epoch, start)
        if self._entries != before:
            try:
                self.write()
            except DiskFailed:
                self._set(before)
                raise

    def note(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Does what assign does, but does not write the file: recovery notes many and writes once."""
        entries = self._entries
        if epoch == self.latest or epoch < 0:
            return
        # An epoch without a single record leaves no entry: the next one begins where it did.
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        entries.append((epoch, start))
        self.latest = epoch

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """Returns the epoch in which `offset` was written; NO_EPOCH if that is not known."""
        number = bisect_right(self._entries, offset, key=_START)
        return self._entries[number - 1][0] if number else NO_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest known epoch not above `epoch`, and where the next one begins (OffsetForLeaderEpoch).

        Returns (NO_EPOCH, NO_OFFSET) if `epoch` is none or newer than all known ones; for one below all of them, the
        epoch itself and where the first known one begins.
        """
        if epoch == NO_EPOCH or epoch > self.latest or not self._entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        number = bisect_right(self._entries, epoch, key=_EPOCH)
        following = self._entries[number][1]
        return (self._entries[number - 1][0] if number else epoch), following

    def truncate_from_end(self, end: Offset) -> None:
        """Drops the epochs that begin at `end` or later, where the log ends now."""
        kept = [entry for entry in self._entries if entry[1] < end]
        if len(kept) != len(self._entries):
            self._replace(kept)

    def truncate_from_start(self, start: Offset) -> None:
        """Drops the epochs that ended before `start`; the one that was current there begins with the log now."""
        number = bisect_right(self._entries, start, key=_START)
        if number:
            kept = [(self._entries[number - 1][0], start), *self._entries[number:]]
            if kept != self._entries:
                self._replace(kept)

    def take(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Takes over the epochs of another log, those without records too, and writes the file."""
        self._set(list(entries))
        self.write()

    def moved_to(self, directory: str) -> None:
        """The file lies there from now on."""
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

    def write(self) -> None:
        """Writes the file: needed after `note` only, the other methods do it themselves."""
        write_epochs(self._disk, self._directory, self._entries, durable=False)
        self.is_written = True
        self.changes += 1
