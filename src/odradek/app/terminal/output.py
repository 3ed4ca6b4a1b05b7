"""What commands print: tables for people, JSON for programs, and quantities a person can read.

A table's lines are as long as they need to be, on a terminal too: a name that goes over two cells can't be copied.
Only sentences are folded to the window, between their words.
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
    """Prints a table.

    A column whose name ends in > is a number, aligned to the right; the last one, if it ends in ~, holds sentences.
    """
    from rich.cells import cell_len  # Some characters take two columns of a terminal.

    is_terminal = sys.stdout.isatty()
    window = shutil.get_terminal_size().columns
    # What others wrote must not move the cursor.
    texts = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    titles = [column.rstrip(">~") for column in columns]
    widths = [max(map(cell_len, column)) for column in zip(titles, *texts, strict=True)]
    if is_terminal and columns[-1].endswith("~"):
        left = window - sum(widths[:-1]) - len(GAP) * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(left, SENTENCE_WIDTH_MIN))
        texts = [part for row in texts for part in folded(row, widths[-1])]

    def line(cells: Sequence[str]) -> str:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
        aligned = zip(cells, blanks, columns, strict=True)
        return GAP.join(b + c if column.endswith(">") else c + b for c, b, column in aligned).rstrip()

    rule = sum(widths) + len(GAP) * (len(widths) - 1)
    ruled = [line(titles), "─" * (min(rule, window) if is_terminal else rule), *map(line, texts)]
    sys.stdout.write("\n".join(ruled) + "\n")


def folded(row: Sequence[str], width: int) -> Iterable[list[str]]:
    """Folds the last cell between words; a word that is longer stays whole."""
    first, *others = wrap(row[-1], width, break_long_words=False, break_on_hyphens=False) or [""]
    yield [*row[:-1], first]
    for other in others:
        yield [*([""] * (len(row) - 1)), other]


def remark(text: str) -> None:
    """Tells the person something that is no part of the output."""
    sys.stderr.write(f"odradek: {text}\n")


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
