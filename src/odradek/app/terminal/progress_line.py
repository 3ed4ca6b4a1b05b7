"""Progress line on standard error while records are transferred, shown only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek.app.terminal.output import plural, size_text

UPDATE_EVERY_SECONDS = 0.1


class Progress(Protocol):
    def add(self, records: int, size: int) -> None:
        """Count this many more records and bytes."""


class SilentProgress:
    """Progress that counts and shows nothing."""

    def add(self, records: int, size: int) -> None:
        pass


class TerminalProgress:
    """Progress that counts every record and redraws ten times a second."""

    def __init__(self, title: str, size: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        ]
        self.bar = Bar(*columns, console=Console(stderr=True), auto_refresh=False)
        self._task = self.bar.add_task(title, total=size, told="")
        self._records = 0
        self._bytes = 0
        self._started_at = time.monotonic()
        self._drawn_at = 0.0

    def add(self, records: int, size: int) -> None:
        self._records += records
        self._bytes += size
        # Reading the clock for every record would cost as much as the record.
        if self._records & 0xFF == 0 or records > 1:
            now = time.monotonic()
            if now - self._drawn_at >= UPDATE_EVERY_SECONDS:
                self._drawn_at = now
                self.draw()

    def draw(self) -> None:
        seconds = max(time.monotonic() - self._started_at, 1e-3)
        rate = f"{self._records / seconds:,.0f}/s"
        text = f"{plural(self._records, 'record')}  {size_text(self._bytes)}  {rate}"
        self.bar.update(self._task, completed=self._bytes, told=text, refresh=True)


@contextmanager
def shown_progress(title: str, size: int | None) -> Iterator[Progress]:
    """Show progress if standard error is a terminal and input does not come from the keyboard."""
    if not sys.stderr.isatty() or (size is None and sys.stdin.isatty()):
        yield SilentProgress()
        return
    shown = TerminalProgress(title, size)
    with shown.bar:
        yield shown
        shown.draw()
