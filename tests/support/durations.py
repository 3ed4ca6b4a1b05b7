"""Processor time (including child processes) and wall time of each test file.

`tests/durations.tsv` has the times of the default tests. A full run compares itself with it, so that no file becomes
slower unnoticed. A file that seems slower runs once more, alone: a busy machine, or a server that several files share,
may have taken its time. `scripts/test --durations-table` updates the table.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Generator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import seeds

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parents[1] / "durations.tsv"
HEADER = "file\tprocessor_s\twall_s"
GROWTH_MAX = 1.5
GROWTH_MAX_OF_VARYING = 4.0  # Each source tree plays other seeds and other parameters.
START_SECONDS = 5.0  # The start of pytest for one file.
SHARED_SECONDS = 30.0  # The start of servers and of Spark, which files of tests/interop share in a whole run.
GROWTH_SECONDS_MIN = 5.0  # Shorter times show a busy machine rather than a change of the file.
FILES_MIN = 100  # With fewer files, the speed of the machine cannot be estimated.
COMPARABLE_SECONDS_MIN = 0.5
_KEY = "seconds"
_VARIES = "varies"


class Seconds(NamedTuple):
    """Processor and wall time of one file."""

    processor: float
    wall: float


def processor_seconds() -> float:
    """Return the processor time of this process and of its finished children."""
    used = [resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def read_table(path: Path = TABLE) -> dict[str, Seconds]:
    """Return the committed table by file, empty if it does not exist."""
    if not path.exists():
        return {}
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {file: Seconds(float(processor), float(wall)) for file, processor, wall in rows}


def grown(
    table: dict[str, Seconds], measured: dict[str, Seconds], varying: Collection[str] = frozenset()
) -> dict[str, float]:
    """Return the files that take half as long again as in the table, with the processor seconds allowed to each.

    The table is scaled to this machine by the median ratio over all files: a slow or busy machine affects most of them
    equally.
    """
    both = [file for file in measured if file in table and table[file].processor >= COMPARABLE_SECONDS_MIN]
    if len(measured) < FILES_MIN or not both:
        return {}
    scale = statistics.median(measured[file].processor / table[file].processor for file in both)
    found = {}
    for file, now in sorted(measured.items()):
        growth_max = GROWTH_MAX_OF_VARYING if file in varying else GROWTH_MAX
        allowed = growth_max * scale * table.get(file, Seconds(0, 0)).processor + GROWTH_SECONDS_MIN
        if now.processor > allowed:
            found[file] = allowed
    return found


def seconds_alone(file: str) -> float:
    """Run the tests of one file again and return their processor seconds."""
    began = processor_seconds()
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    subprocess.run(line, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    start = START_SECONDS + (SHARED_SECONDS if "interop" in file else 0)
    return processor_seconds() - began - start


def varies(item: pytest.Item) -> bool:
    """Return whether other tests of the item's file run with another source tree."""
    is_seeded = getattr(getattr(item, "module", None), "seeds", None) is seeds.seeds
    return is_seeded or item.get_closest_marker("share") is not None


class Durations:
    """The pytest plugin that measures each test, adds up files, and compares them at the end of a whole run."""

    def __init__(self, writes_to: Path | None, is_whole: bool) -> None:
        self._writes_to = writes_to
        self._is_whole = is_whole
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._varying: set[str] = set()
        self._complaints: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_BEGAN] = (processor_seconds(), time.monotonic())
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown" and (began := item.stash.get(_BEGAN, None)) is not None:
            spent = (processor_seconds() - began[0], time.monotonic() - began[1])
            report.user_properties.append((_KEY, spent))
            if varies(item):
                report.user_properties.append((_VARIES, True))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        for key, spent in report.user_properties:
            if key == _VARIES:
                self._varying.add(file)
            elif key == _KEY and isinstance(spent, list | tuple):
                total = self._sums[file]
                total[0] += float(spent[0])
                total[1] += float(spent[1])

    def measured(self) -> dict[str, Seconds]:
        """Return the measured seconds so far, by file."""
        return {file: Seconds(*total) for file, total in self._sums.items()}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        found = self.measured()
        if self._writes_to is not None:
            rows = [f"{file}\t{one.processor:.1f}\t{one.wall:.1f}" for file, one in sorted(found.items())]
            self._writes_to.write_text("\n".join([HEADER, *rows]) + "\n")
        elif self._is_whole:
            for file, allowed in grown(read_table(), found, self._varying).items():
                alone = seconds_alone(file)
                if alone > allowed:
                    text = f"{file} takes {alone:.1f} s of processor time, at most {allowed:.1f} s are expected"
                    self._complaints.append(text)
            if self._complaints and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found = self.measured()
        if len(found) < FILES_MIN:
            return
        dearest = sorted(found.items(), key=lambda each: -each[1].processor)[:20]
        total = Seconds(sum(one.processor for one in found.values()), sum(one.wall for one in found.values()))
        terminalreporter.section(f"files: {total.processor:.0f} s of processor time, {total.wall:.0f} s in a row")
        for file, one in dearest:
            terminalreporter.write_line(f"{one.processor:8.1f} s of processor time {one.wall:8.1f} s  {file}")
        for complaint in self._complaints:
            terminalreporter.write_line(f"grown: {complaint}; make it cheaper, or run scripts/test --durations-table")


_BEGAN = pytest.StashKey[tuple[float, float]]()
