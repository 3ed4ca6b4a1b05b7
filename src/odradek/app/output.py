"""What commands print: tables for people, JSON for programs, and quantities a person can read.

On a terminal a table fits the window; in a pipe its lines are as long as they need to be, without colours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from odradek.base.units import KIB

PIPE_WIDTH = 10_000


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Prints a table; a column whose name ends in > is a number, aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    # What others wrote is shown as it is: a host name in brackets is no markup, and :1: no emoji.
    console = Console(width=None if is_terminal else PIPE_WIDTH, highlight=False, markup=False, emoji=False)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        is_number = column.endswith(">")
        table.add_column(column.rstrip(">"), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    if is_terminal:
        console.print(table)
    else:
        with console.capture() as capture:
            console.print(table)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: dict[str, object]) -> None:
    """Prints one object of many on a line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def size_text(size: float) -> str:
    """Writes 1536 as 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < KIB:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIB
    return f"{size:.1f} TiB"


def time_text(timestamp_ms: int) -> str:
    """Writes a time as ISO 8601 in UTC with milliseconds; '-' for none, the bare number for one no calendar has."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def printable(text: str) -> str:
    """Returns the text as one line, whatever it holds: what others wrote must not move the cursor."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def plural(count: int, noun: str, several: str | None = None) -> str:
    """Writes 1 record, 1,234 records; `several` where an s does not do."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
