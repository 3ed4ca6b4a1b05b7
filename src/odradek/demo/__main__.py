"""The command python -m odradek.demo.

The exit status is 0 if all checks passed, 1 if not, 2 for invalid arguments.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from odradek.base.extras import not_installed

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.demo.checks import Check
    from odradek.demo.processes import Broker

PASSED, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
DAYS = 365
PIPE_WIDTH = 100


def main(arguments: list[str] | None = None) -> int:
    options = _parse_arguments(arguments)
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    started = time.monotonic()
    try:
        with _stoppable(), _folders(options) as (folder, scratch):
            if options.verify:
                passed = _verify(folder, options.days, console)
            else:
                passed = _run(folder, scratch, options.days, console)
    except KeyboardInterrupt:
        console.print("Stopped; nothing is left running.")
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("odradek"):
            raise
        return _print_error(not_installed([str(error.name)], "spark", "demo"))
    except Exception as error:
        if not isinstance(error, _sentences()):
            raise
        return _print_error(str(error))
    kept = f"; results kept in {folder}" if folder.exists() else ""
    console.print(f"[dim]{time.monotonic() - started:.0f} seconds in all{kept}[/dim]", highlight=False)
    return PASSED if passed else FAILED


def _run(folder: Path, scratch: Path, days: int, console: Console) -> bool:
    from odradek.demo import dataset
    from odradek.demo.processes import Broker, Pipeline
    from odradek.demo.screen import Screen
    from odradek.demo.story import Story
    from odradek.spark.java import java_home

    java_home()  # Fails now instead of after a minute.
    flights = dataset.read_flights(days)
    console.print(f"New York, 2013: {flights.num_rows:,} departures, {days} days.", highlight=False)
    with Broker(folder) as broker, Pipeline(folder, scratch) as pipeline:
        with Screen(console, flights.num_rows) as screen:
            Story(broker, pipeline, flights, screen).run_steps(folder / "lake")
        passed = _judge(broker, folder, flights, console)
        broker.stop()
    return passed


def _verify(folder: Path, days: int, console: Console) -> bool:
    """Repeat the checks on the results of an earlier run."""
    from odradek.demo import dataset
    from odradek.demo.processes import Broker

    with Broker(folder) as broker:
        broker.start()
        passed = _judge(broker, folder, dataset.read_flights(days), console)
        broker.stop()
    return passed


def _judge(broker: Broker, folder: Path, flights: pa.Table, console: Console) -> bool:
    from odradek.demo import checks, dataset, feed
    from odradek.demo import result_tables as tables
    from odradek.demo.hours import Hours
    from odradek.demo.row_counts import rows_of

    ends = feed.log_ends(broker.address, feed.TOPIC, dataset.PARTITIONS)
    lake = rows_of(folder / "lake")
    with Hours(broker.address) as hours:
        hours.read_to_end()
    found = [*checks.check_lake(lake, flights, ends), *checks.check_hours(hours.table(), flights)]
    if all(check.passed for check in found):
        tables.show(console, lake, checks.flights_of(lake), hours.table(), ends)
    return _verdict(found, console)


def _verdict(found: list[Check], console: Console) -> bool:
    for check in found:
        mark = "[green]✓[/green]" if check.passed else "[red]✗[/red]"
        failure = "" if check.passed else f"  [red]No: {escape(check.found)}.[/red]"
        console.print(f"{mark} {check.sentence}{failure}", highlight=False)
    if all(check.passed for check in found):
        console.print("[bold green]All is as the CSV says, each flight once.[/bold green]")
        return True
    console.print("[bold red]The result is wrong.[/bold red]")
    return False


@contextmanager
def _folders(options: argparse.Namespace) -> Iterator[tuple[Path, Path]]:
    """Create and yield the folders for results and for temporary files."""
    # The temporary folder is always removed and has a short path: Spark creates Unix sockets there, whose paths have at
    # most 108 bytes.
    with tempfile.TemporaryDirectory(prefix="odradek-demo-", ignore_cleanup_errors=True) as scratch:
        if options.dir is None and not options.keep:
            folder = Path(scratch, "results")
        else:
            folder = (options.dir or Path(tempfile.mkdtemp(prefix="odradek-demo-kept-"))).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        yield folder, Path(scratch)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Handle SIGTERM and a closed terminal like Ctrl-C, and ignore all of them during the shutdown."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sentences() -> tuple[type[Exception], ...]:
    """Return the exceptions whose text is intended for users."""
    from odradek.demo.feed import FeedFailed
    from odradek.demo.hours import HoursUnreadable
    from odradek.demo.processes import ProcessFailed
    from odradek.demo.row_counts import LakeUnreadable
    from odradek.demo.watch import NoProgress
    from odradek.spark.java import NoJava

    return FeedFailed, HoursUnreadable, LakeUnreadable, ProcessFailed, NoProgress, NoJava


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the arguments; exit with status 2 and a message if they are invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m odradek.demo",
        description="Runs a year of flights through a broker and a PySpark pipeline, kills both half-way with kill -9,"
        " starts them again, and checks that every flight arrived once.",
    )
    parser.add_argument("--days", type=int, default=DAYS, metavar="N", help="only the first N days of 2013")
    parser.add_argument("--dir", type=Path, metavar="PATH", help="a new or empty folder for the results; it stays")
    parser.add_argument("--keep", action="store_true", help="keep the results, and say where")
    parser.add_argument("--verify", action="store_true", help="only check again what is in --dir, with the same --days")
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= DAYS:
        parser.error(f"--days must be from 1 to {DAYS}, not {options.days}")
    if options.verify and not (options.dir and (options.dir / "lake").is_dir()):
        parser.error("--verify needs --dir with the results of an earlier run")
    if (
        options.dir
        and not options.verify
        and options.dir.exists()
        and not (options.dir.is_dir() and _is_empty(options.dir))
    ):
        parser.error(f"{options.dir} is not an empty folder; name a new one, or check it with --verify")
    try:
        if options.dir:
            options.dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{options.dir} cannot be made: {(error.strerror or str(error)).lower()}")
    return options


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def _print_error(text: str) -> int:
    Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {escape(text)}", highlight=False)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
