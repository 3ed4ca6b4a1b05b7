"""The demo's progress line with messages above it, or an occasional line if there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

LINE_EVERY_SECONDS = 5.0


class Counts(NamedTuple):
    """The progress of each part of the demo, in flights."""

    produced: int = 0
    loaded: int = 0  # Into the lake.
    derived: int = 0  # Counted in the derived topic.

    def __str__(self) -> str:
        return f"produced {self.produced:,} · in the lake {self.loaded:,} · in hours {self.derived:,}"


class Screen:
    """Context manager for the long-running part of the demo."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._started = time.monotonic()
        self._printed_at = self._started
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = SpinnerColumn(), BarColumn(24), TextColumn("{task.description}"), TimeElapsedColumn()
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=sum(Counts(total, total, total)))

    def print_message(self, text: str) -> None:
        self._console.print(f"[dim]{self._seconds():5.1f} s[/dim]  {text}", highlight=False)

    def show(self, counts: Counts) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=str(counts), completed=sum(counts))
        elif time.monotonic() - self._printed_at >= LINE_EVERY_SECONDS:
            self._printed_at = time.monotonic()
            self.print_message(str(counts))

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
