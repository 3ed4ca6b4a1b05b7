"""Process-wide resources of a load: a Spark session with its Java, and the stop signals.

Java may end before the load, by a signal to the whole process group or because somebody killed it. PySpark reports that
at length, in several places; a load reports it in one sentence.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_stop_requested = threading.Event()


@contextmanager
def spark_session(master: str | None, settings: Mapping[str, str], out: Console) -> Iterator[SparkSession]:
    """Yield a session for this load and stop it afterwards, or yield the process's active session."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from odradek.spark.loader import LoadFailed, reason_of
    from odradek.spark.session import session, standard_error_to, stop_session

    if existing := SparkSession.getActiveSession():
        yield existing
        return
    with _silence_py4j(), TemporaryDirectory(prefix="odradek-load-") as folder:
        # Quick start: records stay in Python, so Java's second compiler would not repay its start-up time.
        log = Path(folder, "log")
        try:
            with out.status("Starting Spark"), _no_orphans():
                spark = session("odradek load", master=master, settings=settings, quick=True, log=log)
        except (PySparkException, Py4JError) as error:
            raise LoadFailed(f"Spark did not start: {_java_error(log) or reason_of(str(error))}") from error
        _handle_stop_signals()  # PySpark has replaced the Ctrl-C handler.
        _silence_accumulators(spark)
        try:
            yield spark
        finally:
            # A signal to the whole group may have ended Java already, which PySpark reports at length.
            with standard_error_to(log):
                stop_session(spark)


@contextmanager
def _no_orphans() -> Iterator[None]:
    """Kill a Java whose start was interrupted: it could not report its port and would run forever."""
    before = _children()
    try:
        yield
    except BaseException:
        for child in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """Return the running child processes."""
    with suppress(OSError):  # A thread may have ended concurrently.
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
        return {int(child) for text in lists for child in text.split()}
    return set()


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM end a load as Ctrl-C does. Only the main thread can handle signals."""
    _stop_requested.clear()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    _handle_stop_signals()
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _handle_stop_signals() -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        _stop_requested.set()
        # Not an exception of our own: py4j treats any Exception during a wait as a broken connection.
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, stop)


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if one was lost, in a destructor or in a library's clean-up."""
    if _stop_requested.is_set():
        raise KeyboardInterrupt


def is_caused_by_stop(error: BaseException) -> bool:
    """Return whether a KeyboardInterrupt caused the error.

    py4j then closes its connections, which may fail.
    """
    at: BaseException | None = error
    while at is not None and not isinstance(at, KeyboardInterrupt):
        at = at.__cause__ or at.__context__
    return at is not None


@contextmanager
def _silence_py4j() -> Iterator[None]:
    """Suppress py4j's log of connections closed by the end of Java or by a KeyboardInterrupt."""
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    before = py4j.level
    py4j.setLevel(logging.CRITICAL)
    root.addFilter(_is_not_py4j)  # Some records are logged there directly.
    try:
        yield
    finally:
        root.removeFilter(_is_not_py4j)
        py4j.setLevel(before)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module not in ("clientserver", "java_gateway")


def _silence_accumulators(spark: SparkSession) -> None:
    """Suppress the traceback of PySpark's accumulator server when Java closes its connection."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


def _java_error(log: Path) -> str:
    """Return spark-submit's error message, or "" if its output has none."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.strip() for line in lines if line.startswith(("Error", "Exception in"))), "")
