"""Batch reader, which resolves its bounds once, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.spark.checkpoint_offsets import LATEST, OffsetRange
from odradek.spark.cluster_interface import Metadata
from odradek.spark.failures import without_traceback
from odradek.spark.kafka import Kafka
from odradek.spark.offset_resolution import MatchedPartitions, find_partitions, offsets_at
from odradek.spark.planning import tasks_of
from odradek.spark.source_options import BadOption, Everywhere, ReadOptions
from odradek.spark.task_reader import ReadTask, cores, plan_tasks, read_task


class BatchReader(DataSourceReader):
    """Reader created in the planning process and pickled into every task; it contains values only."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        with Kafka(self._options.reading.client) as kafka:
            found = find_partitions(kafka, self._options.selection)
            ranges = ranges_of(kafka, found, self._options)
        tasks = tasks_of(ranges, self._options.split, cores())
        # For an empty range, Spark would create one task with the value None.
        return list(plan_tasks(tasks, found.topic_ids)) or [ReadTask(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        with without_traceback():
            yield from read_task(partition, self._options.reading)


def ranges_of(metadata: Metadata, found: MatchedPartitions, options: ReadOptions) -> list[OffsetRange]:
    """Return the ranges that are not empty. Raise BadOption, for example for a start after its end."""
    start = offsets_at(metadata, found.partitions, options.starting, "starting", options.missing_time_is_latest)
    end = offsets_at(metadata, found.partitions, options.ending, "ending", True)
    for at in found.partitions:
        if start[at] > end[at]:
            its_end = "the log end offset" if options.ending == Everywhere(LATEST) else "the ending offset"
            raise BadOption(f"Partition {at}: starting offset {start[at]} is after {its_end} {end[at]}.")
    return [OffsetRange(at.topic, at.partition, start[at], end[at]) for at in found.partitions if start[at] < end[at]]
