"""Progress of the loader: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY_SECONDS = 10.0


class Bar(Protocol):
    """Context manager that shows the progress of a load."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def waiting(self, offsets: int) -> None:
        """Set the number of offsets that wait to be loaded."""

    def loaded(self, offsets: int, rows: int) -> None:
        """Count offsets that are now in the table."""


class TerminalBar:
    def __init__(self, console: Console, title: str) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),  # A pattern may contain brackets.
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(title, total=0, rate="")
        self._rate = Rate()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def waiting(self, offsets: int) -> None:
        done = self._progress.tasks[self._task].completed
        self._progress.update(self._task, total=done + offsets)

    def loaded(self, offsets: int, rows: int) -> None:
        self._progress.update(self._task, advance=offsets, rate=self._rate.of(rows))


class LineBar:
    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._rows = 0
        self._waiting = 0
        self._rate = Rate()
        self._printed_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: nothing is open."""

    def waiting(self, offsets: int) -> None:
        self._waiting = offsets

    def loaded(self, offsets: int, rows: int) -> None:
        self._rows += rows
        self._waiting -= offsets
        rate = self._rate.of(rows)
        if time.monotonic() - self._printed_at >= LINE_EVERY_SECONDS:
            self._printed_at = time.monotonic()
            self._console.print(
                f"{self._title}: {self._rows:,} records, {self._waiting:,} to go, {rate}", highlight=False, markup=False
            )


class Rate:
    """Rows per second of the last batch: an average would include the slow start of the first."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def of(self, rows: int) -> str:
        before, self._at = self._at, time.monotonic()
        return f"{rows / max(self._at - before, 1e-3):,.0f} records/s"


def bar(console: Console, title: str) -> Bar:
    return TerminalBar(console, title) if console.is_terminal else LineBar(console, title)
