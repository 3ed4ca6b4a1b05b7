"""Fixtures and hooks for all tests, and the order in which files run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from support.durations import TABLE, Durations
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
# shell's settings: compiling takes as long as all other work of a broker's start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

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

# pytest-xdist distributes files in this order, the long ones first, so that none of them runs alone at the end. Files
# of one group run sequentially in one process: they share its Spark session, and no two Sparks compete for the cores.
SPARK = (
    "test_demo",
    "test_load_bad_days",
    "test_load_faults",
    "test_load_others",
    "test_spark_load",
    "test_spark_read",
    "test_spark_write",
    "test_spark_peer",
    "test_spark_session",
    "test_spark_tls",
)
LONGEST_FIRST = (
    *SPARK,
    "test_cli_groups",
    "test_exactly_once",
    "test_build",
    "test_large_produce",
    "test_broker_crash",
    "test_doctor",
    "test_broker_kafka_tools",
    "test_moving_kafka",
    "test_migration_kafka",
    "test_mixed_failover_kafka",
    "test_mixed_coordinators_kafka",
    "test_log_kafka",
    "test_bad_days_memory",
    "test_metrics",
    "test_jepsen",
    "test_log_history",
    "test_bad_days_clock",
    "test_bench",
    "test_clients_records",
    "test_clients_positions",
    "test_clients_go",
    "test_testing_docs",
    "test_bad_days_fuzz",
    "test_bad_days_stopped",
    "test_logs",
    "test_bad_days_full_disk",
    "test_broker_start",
    "test_bad_days_connections",
    "test_broker_differential",
    "test_client_brokers",
    "test_bad_days_failing_disk",
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
    ranks = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))
    for item in items:
        if is_interop(item.path) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(INTEROP_SECONDS_MAX))
    mark_tiers(config, items)


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
    """Schedule like --dist loadfile, in the order above and with the Spark files as one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "Spark" if file.rpartition("/")[2].removesuffix(".py") in SPARK else file

    config.option.loadscopereorder = False  # By the number of tests, that is: a few long ones would come last.
    return ByFile(config, log)
