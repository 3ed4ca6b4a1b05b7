"""Fixtures and hooks for all tests, and the order in which files run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from support.durations import TABLE, Durations, read_table
from support.earlier_files import EarlierFiles
from support.flakes import FailedTests
from support.seeds import NIGHTLY
from support.tiers import MemoryOnly, is_interop, mark_tiers

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

# The duration of an example depends more on the machine than on the code.
settings.register_profile("odradek", deadline=None)
settings.load_profile("odradek")

# Brokers and clients started by tests find compiled bytecode, as after an installation with pip, regardless of the
# shell's settings: compiling takes as long as all other work of a broker's start. So does each process of pytest, which
# otherwise rewrites the assertions of all tests for 10 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files of tests are in memory if there is space: few tests are about the disk, and syncs of a shared disk would make
# them depend on each other. Tests marked `disk` use a real one.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 << 30
DISK = tempfile.gettempdir()
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# Background processes of a shell and their children ignore Ctrl-C, but tests stop processes with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # The same for nohup: a broker rightly ignores it.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Ends a hanging test. Starting processes, above all Java, may take minutes on a slow and busy machine.
INTEROP_SECONDS_MAX = 1_800

# These files run sequentially in one process: they share its Spark session, and no two Sparks compete for the cores.
SPARK = frozenset(
    {
        "test_demo",
        "test_load_bad_days",
        "test_load_faults",
        "test_load_others",
        "test_spark_load",
        "test_spark_peer",
        "test_spark_read",
        "test_spark_session",
        "test_spark_tls",
        "test_spark_write",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run all seeds, and tests that a change hardly ever breaks")
    parser.addoption("--soak", action="store_true", help="run the tests that take hours, too")
    parser.addoption("--durations-table", action="store_true", help="write tests/durations.tsv from this run")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--nightly") or config.getoption("--soak"):
        os.environ[NIGHTLY] = "1"
    narrowing = ("keyword", "markexpr", "nightly", "soak")
    is_whole = not any(map(config.getoption, narrowing)) and config.args == ["tests"]
    table = TABLE if config.getoption("--durations-table") else None
    config.pluginmanager.register(Durations(table, is_whole), "durations")
    config.pluginmanager.register(MemoryOnly(), "memory-only")
    config.pluginmanager.register(EarlierFiles(), "earlier-files")
    config.pluginmanager.register(FailedTests(), "failed-tests")


@pytest.fixture(scope="module")
def disk_path() -> Iterator[Path]:
    """Return a folder on a disk for the tests of one file."""
    with tempfile.TemporaryDirectory(prefix="odradek-test-", dir=DISK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return a folder for this test: in memory, or on a disk if the test is marked so."""
    if request.node.get_closest_marker("disk") is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="odradek-test-", dir=DISK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _put_longest_first(items)
    for item in items:
        if is_interop(item.path) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(INTEROP_SECONDS_MAX))
    mark_tiers(config, items)


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Sort the files by their time in `tests/durations.tsv`: pytest-xdist distributes them in this order.

    A long file that started last would run alone at the end, while other processes have nothing to do.
    """
    wall_seconds = {file: seconds.wall for file, seconds in read_table().items()}
    spark_seconds = sum(wall for file, wall in wall_seconds.items() if Path(file).stem in SPARK)

    def seconds_of(item: pytest.Item) -> float:
        return spark_seconds if item.path.stem in SPARK else wall_seconds.get(item.nodeid.partition("::")[0], 0.0)

    items.sort(key=seconds_of, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the thousands of tests from garbage collections, which took a sixth of their time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Schedule like --dist loadfile, in the order of the items and with the Spark files as one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "Spark" if file.rpartition("/")[2].removesuffix(".py") in SPARK else file

    config.option.loadscopereorder = False  # By the number of tests, that is: a few long ones would come last.
    return ByFile(config, log)
