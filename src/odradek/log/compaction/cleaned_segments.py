"""Segments written by compaction, under names that end in .cleaned until they are complete.

A group of segments becomes one segment.  It becomes several if offsets or positions would not fit into one file's index
(KAFKA-6264).  The first of them begins where the group does, by which a start knows what it replaces.  So a group stays
as it is if not even its first batch to keep fits into that segment.
"""

from __future__ import annotations

from odradek.base.units import INT32_MAX, NO_EPOCH, NO_OFFSET, Offset, TimestampMs
from odradek.log.files.disk import Disk
from odradek.log.files.log_config import LogConfig
from odradek.log.segment.scan import walk_runs
from odradek.log.segment.segment import Segment
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.crc import Buffer
from odradek.record.kernels.runs import Runs


class CleanedSegments:
    """Output of one group; `disk` gives the files their names, and methods may raise DiskFailed."""

    def __init__(self, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, now_ms: TimestampMs) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._pieces: list[Buffer] = []  # To write behind the last segment's size.
        self._ends_at = 0  # Size of the last segment, including the pieces.
        self._segments: list[Segment] = []
        self.size = 0
        self.last_offset = NO_OFFSET  # Of the added batches.
        self.lacks_beginning = False  # If True, no batch is near enough to the first segment's base offset.
        self._begin(base_offset)

    def _begin(self, base_offset: Offset) -> None:
        # Do not preallocate: the final size is known only when the file is complete.
        assert not self._pieces, "what was added before belongs to the last segment"
        assert not self._segments or self._segments[-1].base_offset < base_offset, "the new segments ascend"
        segment = Segment(self._disk, self._directory, base_offset, self._now_ms)
        self._segments.append(segment)
        self._ends_at = 0
        segment.make_files(LogConfig())

    @property
    def room(self) -> tuple[int, Offset]:
        """Return the number of bytes, and the greatest offset, that still fit into the last segment."""
        return INT32_MAX - self._ends_at, Offset(self._segments[-1].base_offset + INT32_MAX)

    def add(self, data: Buffer, base_offset: Offset, last_offset: Offset) -> None:
        """Add one batch, or several contiguous ones that fit into `room`; `write` writes them."""
        assert self.last_offset < base_offset <= last_offset, "compaction keeps the order of offsets"
        bytes_max, offset_max = self.room
        if len(data) > bytes_max or last_offset > offset_max:
            self.write()
            if not self._ends_at:
                self.lacks_beginning = True
                return
            # Begin where the last segment ends.  A source between the two segments would be in neither for a start that
            # swaps them.  Offsets this far apart occur only in a segment of its own (_grouped), and no source is
            # between.
            self._begin(base_offset if last_offset > offset_max else Offset(self.last_offset + 1))
        self._pieces.append(data)
        self._ends_at += len(data)
        self.size += len(data)
        self.last_offset = last_offset

    def end_aborted(self, aborted: list[AbortedTxn]) -> None:
        """Add aborted transactions whose markers were added last."""
        for txn in aborted:
            self._segments[-1].transactions.add(txn)

    def write(self) -> None:
        """Write the added batches."""
        if self._pieces:
            segment, pieces = self._segments[-1], self._pieces
            self._pieces = []
            segment.file.write_all(segment.size, pieces)
            segment.size += sum(map(len, pieces))
            assert segment.size == self._ends_at, "all added batches are written"

    def seal(self) -> list[Segment]:
        """Build the indexes from the files, sync everything, and return the segments."""
        self.write()
        assert sum(segment.size for segment in self._segments) == self.size, "no added byte is lost"
        for segment in self._segments:
            assert segment.size, "a cleaned segment contains at least one batch"
            segment.forget_indexes()
            runs = Runs(segment.base_offset, segment.base_offset, NO_EPOCH, self._config.index_interval_bytes)
            for place in walk_runs(segment.file, 0, segment.size, runs):
                segment.index(place, self._config)
                segment.max_timestamp_offset = Offset(runs.max_timestamp_offset)
                runs.tallies.clear()
            assert runs.next_offset > segment.base_offset, "a cleaned segment contains complete batches"
            segment.seal()
            for file in (segment.file, segment.offsets, segment.times, segment.transactions):
                file.sync()
            segment.release()
        return self._segments

    def discard(self) -> None:
        """Delete all files."""
        self._pieces = []
        for segment in self._segments:
            segment.release()
            segment.delete_files()
            self._disk.unlink(segment.transactions.path)
