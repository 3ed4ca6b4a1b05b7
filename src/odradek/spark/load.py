"""odradek load: topics into a Delta table, each record once, whatever is killed meanwhile.

run() is the whole command: it checks what it was told before it starts Spark, shows how far it is, and returns the exit
status.  How exactness comes about is told in lake.py and loader.py, and argued in docs/SPARK.md.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from odradek.client.errors import ClientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.client.config import ClientConfig
    from odradek.spark.loader import Loader
    from odradek.spark.options import Selection

DONE, FAILED, BAD_REQUEST, INTERRUPTED = 0, 1, 2, 130
POLL_SECONDS = 0.2
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of the command line; exactly one of topics and pattern is given."""

    bootstrap_servers: str
    lake: Path
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    continuous: bool = False
    max_records_per_batch: int = 1_000_000
    trigger_interval_ms: int = 5_000  # Continuous only: from the start of one batch to that of the next.
    patience_ms: int = 120_000  # How long brokers may be away before the load gives up.
    fail_on_data_loss: bool = True
    optimize: bool = False  # Merge small files when done.
    master: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)  # Further client settings, without the prefix kafka.
    spark: Mapping[str, str] = field(default_factory=dict)  # Further Spark settings.


class BadRequest(Exception):
    """Raised for options that make no sense; one sentence."""


def run(options: LoadOptions, console: Console | None = None) -> int:
    """Loads; returns the exit status: 0 loaded (or stopped, if continuous), 1 failed, 2 bad request, 130 interrupted.

    Errors are one sentence on the console; the table is sound after each of them.
    """
    out = console or Console(stderr=True, soft_wrap=True)
    try:
        with _stoppable():
            return _run(options, out)
    except KeyboardInterrupt:
        return _stopped(options, out)
    except BadRequest as error:
        return _say(out, error, BAD_REQUEST)
    except Exception as error:
        if comes_of_a_stop(error):
            return _stopped(options, out)
        if not isinstance(error, _sentences()):
            raise
        return _say(out, error, FAILED)


def _run(options: LoadOptions, out: Console) -> int:
    from odradek.spark.kafka import Kafka
    from odradek.spark.lake import Lake
    from odradek.spark.options import Columns, Reading
    from odradek.spark.resolve import find

    selection = _selection(options)
    client = _client(options)
    with Kafka(client) as kafka:
        kafka.connect()
        find(kafka, selection)
        lake = Lake.open(options.lake, selection)
        with _spark(options, out) as spark:
            from odradek.spark.loader import Loader

            reading = Reading(client, Columns(headers=True), options.fail_on_data_loss, options.patience_ms)
            loader = Loader(spark, lake, kafka, reading, selection, options.max_records_per_batch)
            if options.continuous:
                _load_for_ever(loader, options, out)
            else:
                _load_once(loader, options, out)
        if options.optimize:
            out.print(f"Merged {lake.compact():,} files.", highlight=False)
    out.print(
        f"Loaded {loader.rows:,} records into {options.lake}; it holds {lake.rows():,} (version {lake.version}).",
        highlight=False,
    )
    return DONE


def _load_once(loader: Loader, options: LoadOptions, out: Console) -> None:
    """Loads everything that is there when it starts, and nothing later: else a busy topic would never be done."""
    from odradek.spark.progress import bar

    plan = loader.plan()
    loader.target = plan.latest
    with bar(out, _title(options)) as progress:
        progress.waiting(plan.waiting)
        while plan.offsets:
            progress.loaded(plan.offsets, loader.execute(plan))
            plan = loader.plan()


def _load_for_ever(loader: Loader, options: LoadOptions, out: Console) -> None:
    from odradek.spark.progress import bar

    with bar(out, _title(options)) as progress:
        while True:
            next_at = time.monotonic() + options.trigger_interval_ms / 1000
            plan = loader.plan()
            progress.waiting(plan.waiting)
            if plan.offsets:
                progress.loaded(plan.offsets, loader.execute(plan))
            if plan.end == plan.latest:  # If behind, it goes on at once.
                time.sleep(max(POLL_SECONDS, next_at - time.monotonic()))


def _selection(options: LoadOptions) -> Selection:
    from odradek.spark.options import BadOption, Subscribe, SubscribePattern, checked_pattern

    if bool(options.topics) == bool(options.pattern):
        raise BadRequest("Say what to load: either topics or a pattern.")
    if options.max_records_per_batch < 1:
        raise BadRequest("A batch needs at least one record.")
    try:
        if options.pattern:
            return SubscribePattern(checked_pattern(options.pattern))
        return Subscribe(tuple(sorted(set(options.topics))))
    except BadOption as error:
        raise BadRequest(str(error)) from None


def _client(options: LoadOptions) -> ClientConfig:
    """Makes the client's configuration: committed records only unless told otherwise, and patience for restarts."""
    from odradek.client.errors import ConfigurationError
    from odradek.spark.kafka import client_config

    settings = {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": "odradek-load",
        "isolation.level": "read_committed",
        "default.api.timeout.ms": str(options.patience_ms),
    }
    try:
        return client_config(settings | dict(options.kafka))
    except ConfigurationError as error:
        raise BadRequest(f"{error}.") from None


@contextmanager
def _spark(options: LoadOptions, out: Console) -> Iterator[SparkSession]:
    """Yields a session for this load, stopped after it; or the one this process has, left alone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from odradek.spark.loader import LoadFailed, reason_of
    from odradek.spark.session import ended, session, standard_error_to

    if existing := SparkSession.getActiveSession():
        yield existing
        return
    with TemporaryDirectory(prefix="odradek-load-") as folder:
        # Quick: records stay in Python, so what Java's second compiler would gain is not worth its start.
        log = Path(folder, "log")
        try:
            with out.status("Starting Spark"):
                spark = session("odradek load", master=options.master, settings=options.spark, quick=True, log=log)
        except (PySparkException, Py4JError) as error:
            raise LoadFailed(f"Spark did not start: {_java_says(log) or reason_of(str(error))}") from error
        _handle_stop_signals()  # PySpark put its own handler for Ctrl-C in their place.
        logging.getLogger().addFilter(_is_not_py4j)
        try:
            yield spark
        finally:
            # A signal to the whole group may have ended Java already, which PySpark tells at length.
            with standard_error_to(log):
                ended(spark)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Has SIGTERM end a load as Ctrl-C does; a thread other than the main one has no signals to handle."""
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
        # Not an exception of our own: py4j takes any Exception that comes while it waits for a broken connection.
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, stop)


def comes_of_a_stop(error: BaseException) -> bool:
    """True if a KeyboardInterrupt is behind the error: py4j then closes its connections, which may fail."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, KeyboardInterrupt):
        at = at.__cause__ or at.__context__
    return at is not None


def _stopped(options: LoadOptions, out: Console) -> int:
    out.print("Stopped; what is in the lake stays, and the next run goes on from there.")
    return DONE if options.continuous else INTERRUPTED


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Leaves out py4j's traceback of a KeyboardInterrupt that it then raises."""
    return record.module not in ("clientserver", "java_gateway")


def _java_says(log: Path) -> str:
    """Returns what spark-submit complained of; "" if nothing in its output looks like a complaint."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.strip() for line in lines if line.startswith(("Error", "Exception in"))), "")


def _title(options: LoadOptions) -> str:
    return options.pattern or ", ".join(options.topics)


def _sentences() -> tuple[type[Exception], ...]:
    """Returns the exceptions whose text is one sentence for a person; any other is a bug and keeps its traceback."""
    from odradek.spark.java import NoJava
    from odradek.spark.lake import BadLake, Fenced
    from odradek.spark.loader import LoadFailed
    from odradek.spark.ports import NoSuchTopic

    return ClientError, NoJava, BadLake, Fenced, LoadFailed, NoSuchTopic


def _say(out: Console, error: Exception, status: int) -> int:
    text = str(error)
    out.print(f"[red]odradek:[/red] {escape(text[:1].lower() + text[1:].rstrip('.'))}", highlight=False)
    return status
