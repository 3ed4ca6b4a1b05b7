"""One batch of the load, from the offsets in the table to the next version of the table.

    refresh the table ──> its next offsets ──> ends, from the brokers ──> ranges ──> tasks write Parquet files
                                                                                                        │
              files and end offsets in one Delta commit, through the table as it was read <─────────────┘

There is no checkpoint besides the table, so nothing can disagree with it: whatever dies, the next run starts from the
newest version. Spark distributes the tasks and retries failed ones. Records go from the broker's bytes to Parquet
inside the task and never through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.base.errors import Refused
from odradek.base.units import TopicPartition
from odradek.client.connection.client_errors import ClientError
from odradek.spark import lake_reasons
from odradek.spark.checkpoint_offsets import EARLIEST, LATEST, Offsets, total
from odradek.spark.cluster_interface import Metadata
from odradek.spark.delta_lake import DataFile, Lake
from odradek.spark.lake_location import Place
from odradek.spark.offset_resolution import MatchedPartitions, find_partitions, missing_topics
from odradek.spark.parquet import ParquetFiles
from odradek.spark.planning import ranges_between, rate_limited, tasks_of
from odradek.spark.source_options import Reading, Selection, Split
from odradek.spark.task_reader import DataLoss, ReadTask, Stuck, plan_tasks, read_task

RESULT = "name string, size long, modified_ms long, stats string, error string"


class LoadFailed(Exception):
    """Error that ends the load; one sentence."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets to load next, and the offsets available when this was planned."""

    found: MatchedPartitions  # Without the omitted topics.
    start: Offsets
    end: Offsets
    latest: Offsets
    version: int  # Version of the table that it extends.

    @property
    def offsets(self) -> int:
        return total(ranges_between(self.start, self.end))

    @property
    def waiting(self) -> int:
        return total(ranges_between(self.start, self.latest))


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Input of a task, pickled into it."""

    reading: Reading
    place: Place
    batch: int


@dataclass(slots=True)
class Loader:
    """Planner and executor of consecutive batches.

    A topic that was deleted, or deleted and recreated, is omitted and reported once; the others continue.
    """

    spark: SparkSession
    lake: Lake
    metadata: Metadata
    reading: Reading
    selection: Selection
    max_records: int
    warn: Callable[[str], None]
    target: Offsets | None = None  # Upper bounds, for a load that ends.
    rows: int = field(default=0, init=False)
    skipped: dict[str, str] = field(default_factory=dict, init=False)  # Reasons, by topic omitted from the last plan.
    _warned: set[str] = field(default_factory=set, init=False)

    def plan(self) -> Plan:
        """Plan the next batch. Raise LoadFailed if the table and the brokers disagree."""
        self.lake.refresh()
        found = self._find_partitions()
        earliest = self.metadata.offsets(dict.fromkeys(found.partitions, EARLIEST)) if found.partitions else {}
        latest = self.metadata.offsets(dict.fromkeys(found.partitions, LATEST)) if found.partitions else {}
        start = {at: self._start(found, at, earliest[at], latest[at]) for at in found.partitions}
        if self.target is not None:
            latest = {at: max(start[at], min(end, self.target.get(at, 0))) for at, end in latest.items()}
        return Plan(found, start, rate_limited(start, latest, self.max_records), latest, self.lake.version)

    def execute(self, plan: Plan) -> int | None:
        """Write and commit the batch, and return its number of rows. Raise LoadFailed, Fenced or BadLake.

        Return None if topics were deleted during the batch and nothing was loaded. The next plan omits them.
        """
        assert plan.version == self.lake.version, "offsets and commit belong to the same table version"
        try:
            files = self._run(plan)
        except LoadFailed:
            if self._has_changed_topics(plan):
                return None
            raise
        self.lake.commit(files, plan.start, plan.end, plan.found.topic_ids)
        rows = sum(file.rows for file in files)
        self.rows += rows
        return rows

    # Topics.

    def _find_partitions(self) -> MatchedPartitions:
        """Find the topics, and omit those that cannot be loaded. Raise LoadFailed if none is left."""
        found = find_partitions(self.metadata, self.selection, missing_ok=True)
        self.skipped = {
            name: f"Topic {name!r} no longer exists; it is skipped." for name in missing_topics(self.selection, found)
        }
        for name, topic_id in found.topic_ids.items():
            if not self.lake.is_same_topic(name, topic_id):
                self._note_recreated(name)
        if self.skipped and self.skipped.keys() >= found.topic_ids.keys():
            raise LoadFailed(f"No topics to load: {' '.join(self.skipped.values())}")
        for sentence in self.skipped.values():
            self._warn_once(sentence)
        return MatchedPartitions(
            tuple(at for at in found.partitions if at.topic not in self.skipped),
            {name: topic_id for name, topic_id in found.topic_ids.items() if name not in self.skipped},
        )

    def _note_recreated(self, name: str) -> None:
        sentence = f"Topic {name!r} was deleted and recreated after it was loaded into {self.lake.place}"
        if self.reading.fail_on_data_loss:
            self.skipped[name] = (
                f"{sentence}: its offsets have changed, so it is skipped; load it into another lake, or allow"
                f" data loss to load it from the beginning."
            )
        else:
            self._warn_once(f"{sentence}; it is loaded from the beginning.")

    def _has_changed_topics(self, plan: Plan) -> bool:
        """Return whether topics of the plan were deleted since, in which case the others have not failed."""
        current = find_partitions(self.metadata, self.selection, missing_ok=True).topic_ids
        return any(current.get(name) != topic_id for name, topic_id in plan.found.topic_ids.items())

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self.warn(sentence)

    # Offsets.

    def _start(self, found: MatchedPartitions, at: TopicPartition, earliest: int, latest: int) -> int:
        loaded = self.lake.next_offset(at)
        if loaded is None or not self.lake.is_same_topic(at.topic, found.topic_ids[at.topic]):
            return earliest
        if loaded > latest:
            self._lost(
                f"Partition {at} ends at offset {latest}, but the lake contains it up to {loaded}: it was truncated, or"
                f" the lake was loaded from another cluster"
            )
        elif loaded < earliest:
            self._lost(
                f"Partition {at}: {earliest - loaded} offsets ({loaded} to {earliest - 1}) were deleted before they"
                f" were loaded"
            )
        return min(max(loaded, earliest), latest)

    def _lost(self, what: str) -> None:
        if self.reading.fail_on_data_loss:
            raise LoadFailed(f"{what}; allow data loss to continue without them.")
        self._warn_once(f"{what}.")

    # Tasks.

    def _run(self, plan: Plan) -> list[DataFile]:
        try:
            cores = self.spark.sparkContext.defaultParallelism
            ranges = tasks_of(ranges_between(plan.start, plan.end), Split(), cores)
            tasks = plan_tasks(ranges, plan.found.topic_ids)
            place = self.lake.place.with_retries(self.reading.poll_timeout_ms)
            work = LoadTask(self.reading, place, self.lake.batch + 1)
            frame = self.spark.range(0, len(tasks), 1, len(tasks))
            results = frame.mapInArrow(lambda batches: load(batches, tasks, work), RESULT).collect()
        except PySparkException as error:
            raise LoadFailed(f"A Spark task failed: {reason_of(str(error))}") from error
        except (Py4JError, OSError) as error:
            raise LoadFailed("Spark's Java process ended") from error
        for result in results:
            if result.error:
                raise LoadFailed(result.error)
        return [DataFile(result.name, result.size, result.modified_ms, result.stats) for result in results]


def reason_of(message: str) -> str:
    """Return the exception at the end of the traceback in Spark's message, or else its first line."""
    _, traceback, after = message.rpartition("Traceback (most recent call last):\n")
    lines = after.splitlines() if traceback else message.splitlines()
    return next((line for line in lines if line.strip() and not line.startswith(" ")), message).strip()


def load(batches: Iterable[pa.RecordBatch], tasks: list[ReadTask], work: LoadTask) -> Iterator[pa.RecordBatch]:
    """Load, in a task, the ranges numbered in `batches`, and yield one row for each written file.

    A permanent error is also returned as a row, so that its sentence reaches the user without Spark's stack trace.
    """
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                files = load_task(tasks[number], number, work)
                error = None
            except (DataLoss, Stuck, ClientError, Refused) as failure:
                files, error = [], str(failure)
            yield _rows(files, error)


def load_task(task: ReadTask, number: int, work: LoadTask) -> list[DataFile]:
    try:
        with ParquetFiles(work.place, f"part-{work.batch:08d}-{number}") as writing:
            for batch in read_task(task, work.reading):
                writing.write(batch)
    except OSError as error:
        raise OSError(f"{work.place}: {lake_reasons.reason_of(error)}") from None
    return writing.files()


def _rows(files: list[DataFile], error: str | None) -> pa.RecordBatch:
    rows: list[dict[str, object]] = [file._asdict() | {"error": None} for file in files]
    if error is not None:
        rows.append({"error": error})
    schema = pa.schema(
        [("name", pa.string()), ("size", pa.int64()), ("modified_ms", pa.int64()), ("stats", pa.string()),
         ("error", pa.string())]
    )  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=schema)
