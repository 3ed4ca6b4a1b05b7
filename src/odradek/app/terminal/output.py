"""Output of commands: tables and human-readable quantities for people, JSON for programs.

Table lines are never cut to the window, even on a terminal, because a name split over two lines cannot be copied. Only
sentences are wrapped to the window, between words.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from textwrap import wrap

from odradek.base.units import KIB

GAP = "   "
SENTENCE_WIDTH_MIN = 30


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table.

    A column whose name ends in > contains numbers and is right-aligned. The last column contains sentences if its name
    ends in ~.
    """
    from rich.cells import cell_len  # Some characters are two columns wide.

    is_terminal = sys.stdout.isatty()
    window = shutil.get_terminal_size().columns
    # Text from elsewhere must not move the cursor.
    texts = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    titles = [column.rstrip(">~") for column in columns]
    widths = [max(map(cell_len, column)) for column in zip(titles, *texts, strict=True)]
    if is_terminal and columns[-1].endswith("~"):
        remaining = window - sum(widths[:-1]) - len(GAP) * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(remaining, SENTENCE_WIDTH_MIN))
        texts = [part for row in texts for part in fold(row, widths[-1])]

    def line(cells: Sequence[str]) -> str:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
        aligned = zip(cells, blanks, columns, strict=True)
        return GAP.join(b + c if column.endswith(">") else c + b for c, b, column in aligned).rstrip()

    rule = sum(widths) + len(GAP) * (len(widths) - 1)
    lines = [line(titles), "─" * (min(rule, window) if is_terminal else rule), *map(line, texts)]
    sys.stdout.write("\n".join(lines) + "\n")


def fold(row: Sequence[str], width: int) -> Iterable[list[str]]:
    """Wrap the last cell between words; longer words stay whole."""
    first, *others = wrap(row[-1], width, break_long_words=False, break_on_hyphens=False) or [""]
    yield [*row[:-1], first]
    for other in others:
        yield [*([""] * (len(row) - 1)), other]


def remark(text: str) -> None:
    """Print a message to standard error, apart from the output."""
    sys.stderr.write(f"odradek: {text}\n")


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: dict[str, object]) -> None:
    """Print one JSON object on one line, as one of many."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def size_text(size: float) -> str:
    """Format 1536 as 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < KIB:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIB
    return f"{size:.1f} TiB"


def time_text(timestamp_ms: int) -> str:
    """Format a time as ISO 8601 in UTC with milliseconds, or '-' for none.

    A time beyond the calendar is formatted as its number.
    """
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def printable(text: str) -> str:
    """Return the text as one line with unprintable characters escaped, so that it cannot move the cursor."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def plural(count: int, noun: str, several: str | None = None) -> str:
    """Format 1 record, 1,234 records. `several` is the plural if it does not end in s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
