"""Compaction state of one log: progress, the current pass, and segments not yet renamed.

A pass (log/compaction/cleaner.py) reads sealed segments in a thread and writes new ones.  The log reads the new ones
once log/compaction/replacement.py has swapped them in.  The reaper renames their files later (log/removal/swap.py),
and only then is the pass complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.base.units import Offset
from odradek.log.removal.swap import SwapState
from odradek.log.segment.segment import Segment


class CleaningPass(Protocol):
    """Compaction pass as its log sees it; implemented in log/compaction/cleaner.py."""

    def withdraw(self) -> None:
        """Stop the pass, whichever thread runs it."""

    def undo_publication(self) -> None:
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
            self.cleaning.undo_publication()
