"""Compaction state of one log: progress, the current pass, and segments not yet renamed.

A pass (log/compaction/cleaner.py) reads sealed segments in a thread and writes new ones.  `swap_in` makes the log read
the new segments.  The reaper renames their files later (log/removal/swap.py).  The pass is complete only after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.base.units import Offset, TimestampMs
from odradek.log.removal.swap import Swap, SwapDisk, SwapState
from odradek.log.segment.segment import Segment

if TYPE_CHECKING:
    from odradek.log.log.log import Log


class CleaningPass(Protocol):
    """Compaction pass as its log sees it; implemented in log/compaction/cleaner.py."""

    def withdraw(self) -> None:
        """Stop the pass, whichever thread runs it."""

    def take_back(self) -> None:
        """Unlink the files of the pass that the log does not use.  Raise DiskFailed if that fails."""


class CompactionState:
    """Compaction progress of one log, and its unfinished work."""

    def __init__(self) -> None:
        self.cleaning: CleaningPass | None = None  # The pass in progress.
        self._cleaned_to = Offset(0)
        self._cleaned: list[tuple[Offset, Sequence[SwapState]]] = []  # Passes whose files are not all renamed yet.
        self._swaps: list[SwapState] = []

    @property
    def cleaned_to(self) -> Offset:
        """Return the offset where the next pass begins; the files below it are durably compacted."""
        while self._cleaned and all(swap.is_done for swap in self._cleaned[0][1]):
            self._cleaned_to = self._cleaned.pop(0)[0]
        return self._cleaned_to

    @cleaned_to.setter
    def cleaned_to(self, offset: Offset) -> None:
        self._cleaned_to = offset
        self._cleaned.clear()

    @property
    def is_swapping(self) -> bool:
        """Return whether some files of the log are not renamed yet."""
        if self._swaps:
            self._swaps = [swap for swap in self._swaps if not swap.is_done]
        return bool(self._swaps)

    def begin_swap(self, sources: Sequence[Segment], segments: Sequence[Segment]) -> SwapState:
        """Record that the files of `segments` will take over the names of `sources`."""
        swap = SwapState([one.base_offset for one in segments], [one.base_offset for one in sources])
        self._swaps.append(swap)
        return swap

    def cleaned(self, end: Offset) -> None:
        """Record the end of a pass that reached `end`; it is complete once all files are renamed."""
        self._cleaned.append((end, [swap for swap in self._swaps if not swap.is_done]))

    def withdraw(self) -> None:
        """Stop the current pass, if any, and unlink its files.  Raise DiskFailed if that fails."""
        if self.cleaning is not None:
            self.cleaning.withdraw()
            self.cleaning.take_back()


def may_be_cleaned(log: Log) -> bool:
    """Return whether a pass may begin.

    No other pass may be in progress, and a power failure must not restore a file that the log no longer contains.
    Next to such a restored segment, which the pass did not read, the dropped records would be missing.
    """
    is_in_order = not (log.compaction.is_swapping or log.owes or log.reaper.is_retiring(log.directory))
    return is_in_order and log.compaction.cleaning is None


def swap_in(log: Log, sources: Sequence[Segment], segments: Sequence[Segment], now_ms: TimestampMs) -> bool:
    """Replace segments by their compacted versions; the reaper renames the files later.

    Return False, and change nothing, if the log no longer contains all of the sources.
    """
    first = next((number for number, one in enumerate(log.segments) if one is sources[0]), len(log.segments))
    behind = first + len(sources)
    present = log.segments[first:behind]
    if len(present) < len(sources) or any(a is not b for a, b in zip(present, sources, strict=True)):
        return False
    assert behind < len(log.segments), "the active segment is never compacted"
    assert not any(one in log.durability.unsynced for one in sources), "compacted segments are synced"
    swap = log.compaction.begin_swap(sources, segments)
    for segment in segments:
        segment.on(SwapDisk(log.disk, swap))
    for source in sources:
        source.release()
    log.segments = [*log.segments[:first], *segments, *log.segments[behind:]]
    log.sealed_open = [one for one in log.sealed_open if one not in sources]
    log.snapshots.forget([offset for offset in swap.sources if offset not in swap.bases])
    log.reaper.retire(Swap(log.directory, swap, TimestampMs(now_ms + log.config.file_delete_delay_ms)))
    return True


def drop_cleaned(log: Log, cleaning: CleaningPass) -> None:
    """Unlink the files of an unsuccessful pass before any other work on the log's files."""
    log.owe(cleaning.take_back)
