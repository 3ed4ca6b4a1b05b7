"""Loads within this process and its Spark session, which saves the start, and their results."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Protocol

from load_process import Place
from rich.console import Console
from spark_support import spark

from odradek.spark.load import LoadOptions, run


class Addressed(Protocol):
    @property
    def address(self) -> str: ...


def loaded(broker: Addressed, lake: Path | str, *topics: str, **options: object) -> tuple[int, str]:
    """Return the exit status and the output of one run within this process and its session."""
    spark()
    console = Console(record=True, width=1000, file=StringIO())
    status = run(LoadOptions(broker.address, lake, topics, **options), console)  # type: ignore[arg-type]
    return status, console.export_text()


def rows(lake: Path) -> list[bytes]:
    """Return the sorted values of the table."""
    return sorted(Place.in_folder(lake).table().to_pyarrow_table(columns=["value"])["value"].to_pylist())


def numbers(lake: Path) -> list[int]:
    return sorted(map(int, rows(lake)))
