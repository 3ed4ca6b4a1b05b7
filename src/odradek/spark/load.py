"""odradek load: topics into a Delta table, each record exactly once, even if processes are killed.

run() is the whole command: it checks its arguments before it starts Spark, shows progress, and returns the exit status.
spark/delta_lake.py and spark/loader.py explain how exactly-once is achieved; docs/SPARK.md has the argument.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from odradek.client.connection.client_errors import ClientError, KafkaUnavailable
from odradek.spark.load_session import is_caused_by_stop, raise_if_stopped, spark_session, stoppable

if TYPE_CHECKING:
    from odradek.client.connection.client_config import ClientConfig
    from odradek.spark.delta_lake import Lake
    from odradek.spark.kafka import Kafka
    from odradek.spark.lake_location import Place
    from odradek.spark.loader import Loader
    from odradek.spark.source_options import Selection

DONE, FAILED, BAD_REQUEST, INTERRUPTED = 0, 1, 2, 130
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of the command line; exactly one of topics and pattern is given."""

    bootstrap_servers: str
    lake: str | PathLike[str]  # A folder, or s3://bucket/path.
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    continuous: bool = False
    max_records_per_batch: int = 1_000_000
    trigger_interval_ms: int = 5_000  # Continuous only: from the start of one batch to the next.
    patience_ms: int = 120_000  # Maximum outage of the brokers before the load fails.
    fail_on_data_loss: bool = True
    optimize: bool = False  # Merge small files when done.
    master: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)  # More client settings, without the prefix kafka.
    spark: Mapping[str, str] = field(default_factory=dict)  # More Spark settings.
    storage: Mapping[str, str] = field(default_factory=dict)  # Settings of the object store, besides AWS_*.


class BadRequest(Exception):
    """Error for contradictory options; one sentence."""


def run(options: LoadOptions, console: Console | None = None) -> int:
    """Load the topics and return the exit status.

    The status is 0 if loaded (or stopped, if continuous), 1 if failed, 2 for a bad request, 130 if interrupted. Errors
    are one sentence on the console, and leave the table consistent.
    """
    out = console or Console(stderr=True, soft_wrap=True)
    try:
        with stoppable():
            return _run(options, out)
    except KeyboardInterrupt:
        return _report_stop(options, out)
    except BadRequest as error:
        return _report_error(out, error, BAD_REQUEST)
    except Exception as error:
        if is_caused_by_stop(error):
            return _report_stop(options, out)
        if not isinstance(error, _sentences()):
            raise
        return _report_error(out, error, FAILED)


def _run(options: LoadOptions, out: Console) -> int:
    from odradek.spark.kafka import Kafka
    from odradek.spark.source_options import Columns, Reading

    selection, place, client = _selection(options), _place(options), _client(options)
    with Kafka(client) as kafka:
        _await_brokers(kafka, options, out)
        lake = _lake(kafka, selection, place, options.patience_ms)
        with spark_session(options.master, options.spark, out) as spark:
            from odradek.spark.loader import Loader

            reading = Reading(client, Columns(headers=True), options.fail_on_data_loss, options.patience_ms)
            loader = Loader(
                spark, lake, kafka, reading, selection, options.max_records_per_batch, warn=partial(_warn, out)
            )
            if options.continuous:
                _load_continuously(loader, options, out)
            else:
                _load_once(loader, options, out)
        if options.optimize:
            out.print(f"Merged {lake.compact():,} files.", highlight=False)
    out.print(
        f"Loaded {loader.rows:,} records into {options.lake}; it contains {lake.rows():,} (version {lake.version}).",
        highlight=False,
        markup=False,
    )
    return FAILED if loader.skipped else DONE


def _load_once(loader: Loader, options: LoadOptions, out: Console) -> None:
    """Load everything available at the start, and nothing later: a busy topic would never be complete."""
    from odradek.spark.load_progress import bar

    plan = loader.plan()
    loader.target = plan.latest
    with bar(out, _title(options)) as progress:
        progress.waiting(plan.waiting)
        while plan.offsets:
            raise_if_stopped()
            if (rows := loader.execute(plan)) is not None:
                progress.loaded(plan.offsets, rows)
            plan = loader.plan()


def _load_continuously(loader: Loader, options: LoadOptions, out: Console) -> None:
    from odradek.spark.load_progress import bar

    with bar(out, _title(options)) as progress:
        while True:
            raise_if_stopped()
            next_at = time.monotonic() + options.trigger_interval_ms / 1000
            plan = loader.plan()
            progress.waiting(plan.waiting)
            if plan.offsets and (rows := loader.execute(plan)) is not None:
                progress.loaded(plan.offsets, rows)
            if plan.end == plan.latest:  # If behind, continue at once.
                time.sleep(max(POLL_SECONDS, next_at - time.monotonic()))


def _await_brokers(kafka: Kafka, options: LoadOptions, out: Console) -> None:
    """Wait for brokers that are not up yet, as long as for later outages. Raise a ClientError."""
    deadline = time.monotonic() + options.patience_ms / 1000
    is_warned = False
    while True:
        try:
            kafka.connect()
            return
        except KafkaUnavailable as error:
            if time.monotonic() + POLL_SECONDS >= deadline:
                raise
            if not is_warned:
                _warn(out, f"{error}; waiting up to {options.patience_ms / 1000:g} s")
                is_warned = True
            time.sleep(POLL_SECONDS)


def _lake(kafka: Kafka, selection: Selection, place: Place, patience_ms: int) -> Lake:
    """Open the lake, or create it if every topic exists. Raise NoSuchTopic for an unknown topic.

    A missing topic is unknown if the lake has never loaded it.
    """
    from odradek.spark.cluster_interface import NoSuchTopic
    from odradek.spark.delta_lake import Lake
    from odradek.spark.lake_reasons import failing_as
    from odradek.spark.lake_table import is_table
    from odradek.spark.offset_resolution import find_partitions, missing_topics

    missing = missing_topics(selection, find_partitions(kafka, selection, missing_ok=True))
    with failing_as(f"Failed to open lake {place}"):
        is_new = bool(missing) and not is_table(place)
    lake = None if is_new else Lake.open(place, selection, patience_ms)
    if unknown := [name for name in missing if lake is None or not lake.was_loaded(name)]:
        raise NoSuchTopic(f"Topic {', '.join(map(repr, unknown))} does not exist on these brokers.")
    assert lake is not None, "all topics exist or are known to the table"
    return lake


def _selection(options: LoadOptions) -> Selection:
    from odradek.spark.source_options import BadOption, Subscribe, SubscribePattern, checked_pattern

    if bool(options.topics) == bool(options.pattern):
        raise BadRequest("Choose what to load: either topics or a pattern.")
    if options.max_records_per_batch < 1:
        raise BadRequest("A batch must contain at least one record.")
    try:
        if options.pattern:
            return SubscribePattern(checked_pattern(options.pattern))
        return Subscribe(tuple(sorted(set(options.topics))))
    except BadOption as error:
        raise BadRequest(str(error)) from None


def _place(options: LoadOptions) -> Place:
    from odradek.spark.lake_location import BadPlace, Place

    try:
        return Place.of(options.lake, options.storage)
    except BadPlace as error:
        raise BadRequest(str(error)) from None


def _client(options: LoadOptions) -> ClientConfig:
    """Return a client configuration that reads committed records by default and waits for restarts."""
    from odradek.client.connection.client_errors import ConfigurationError
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


def _report_stop(options: LoadOptions, out: Console) -> int:
    out.print("Stopped. The lake keeps the loaded records, and the next run continues after them.")
    return DONE if options.continuous else INTERRUPTED


def _title(options: LoadOptions) -> str:
    return options.pattern or ", ".join(options.topics)


def _sentences() -> tuple[type[Exception], ...]:
    """Return the exceptions whose text is one sentence for the user.

    All others are bugs and keep their traceback.
    """
    from odradek.spark.cluster_interface import NoSuchTopic
    from odradek.spark.delta_lake import Fenced
    from odradek.spark.java import NoJava
    from odradek.spark.lake_reasons import BadLake
    from odradek.spark.loader import LoadFailed

    return ClientError, NoJava, BadLake, Fenced, LoadFailed, NoSuchTopic


def _report_error(out: Console, error: Exception, status: int) -> int:
    _warn(out, str(error))
    return status


def _warn(out: Console, sentence: str) -> None:
    out.print(f"[red]odradek:[/red] {escape(sentence[:1].lower() + sentence[1:].rstrip('.'))}", highlight=False)
