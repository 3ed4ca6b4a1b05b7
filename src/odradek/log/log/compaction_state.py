"""Compaction, as a log sees it: how far it went, the pass that is under way, and segments that take others' places.

A pass (cleaner.py) reads sealed segments in a thread and writes new ones; `swap_in` has the log read those.  Their
files get their names later, in the reaper's rounds (swap.py), and only then the pass counts as done.
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
    """A pass of compaction, as its log sees it: cleaner.py."""

    def withdraw(self) -> None:
        """Ends it, in whatever thread it is."""

    def take_back(self) -> None:
        """Unlinks what it has made, and the log does not have.  Raises DiskFailed."""


class CompactionState:
    """How far one log is compacted, and what is under way."""

    def __init__(self) -> None:
        self.cleaning: CleaningPass | None = None  # The pass that is under way.
        self._cleaned_to = Offset(0)
        self._cleaned: list[tuple[Offset, Sequence[SwapState]]] = []  # Passes whose files have not got their names yet.
        self._swaps: list[SwapState] = []

    @property
    def cleaned_to(self) -> Offset:
        """The offset where the next pass begins: below it the files are compacted, durably."""
        while self._cleaned and all(swap.is_done for swap in self._cleaned[0][1]):
            self._cleaned_to = self._cleaned.pop(0)[0]
        return self._cleaned_to

    @cleaned_to.setter
    def cleaned_to(self, offset: Offset) -> None:
        self._cleaned_to = offset
        self._cleaned.clear()

    @property
    def is_swapping(self) -> bool:
        """True if files of the log have not got their names yet."""
        if self._swaps:
            self._swaps = [swap for swap in self._swaps if not swap.is_done]
        return bool(self._swaps)

    def begin_swap(self, sources: Sequence[Segment], segments: Sequence[Segment]) -> SwapState:
        """Notes that the files of `segments` are to get the names of `sources`."""
        swap = SwapState([one.base_offset for one in segments], [one.base_offset for one in sources])
        self._swaps.append(swap)
        return swap

    def cleaned(self, end: Offset) -> None:
        """Takes in the end of a pass that went up to `end`; it counts once all files have their names."""
        self._cleaned.append((end, [swap for swap in self._swaps if not swap.is_done]))

    def withdraw(self) -> None:
        """Ends the pass that is under way, if there is one, and unlinks what it has made.  Raises DiskFailed."""
        if self.cleaning is not None:
            self.cleaning.withdraw()
            self.cleaning.take_back()


def may_be_cleaned(log: Log) -> bool:
    """True if a pass may begin: none is under way, and a power failure brings back no file that the log has not.

    What a pass leaves away would be missed beside segments that retention took, and that it has not read.
    """
    is_in_order = not (log.compaction.is_swapping or log.owes or log.reaper.is_retiring(log.directory))
    return is_in_order and log.compaction.cleaning is None


def swap_in(log: Log, sources: Sequence[Segment], segments: Sequence[Segment], now_ms: TimestampMs) -> bool:
    """Takes compacted segments in the place of their sources; their files get their names in the reaper's rounds.

    Returns False, and changes nothing, if the log does not have all of the sources any more.
    """
    first = next((number for number, one in enumerate(log.segments) if one is sources[0]), len(log.segments))
    behind = first + len(sources)
    present = log.segments[first:behind]
    if len(present) < len(sources) or any(a is not b for a, b in zip(present, sources, strict=True)):
        return False
    assert behind < len(log.segments), "the active segment is not compacted"
    assert not any(one in log.durability.unsynced for one in sources), "what is compacted was synced"
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
    """Has the files unlinked that a pass made in vain, before anything else is done with the log's files."""
    log.owe(cleaning.take_back)
