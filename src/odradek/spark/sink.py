"""Sink that writes the rows of a batch or a stream to topics, at least once, with acks=all.

The columns are those of Spark's own Kafka sink: value (required), key, topic, partition, headers; others are ignored.
Rows stay in Arrow until they become record batches: a task groups them by partition, and encodes a partition once it
has enough rows. A failed task or a replayed batch writes its records again. Within one attempt, the rows of a partition
keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.producer.partitioner import StickyPartition
from odradek.client.producer.producer import Producer
from odradek.record.arrow_encode import RowEncoder, partitions_of
from odradek.spark.failures import PipelineError, without_traceback
from odradek.spark.source_options import BadOption, WriteOptions
from odradek.spark.source_schema import HEADERS
from odradek.spark.task_reader import freeze_once

TEXT_OR_BYTES = (StringType(), BinaryType())
COLUMNS: dict[str, tuple[DataType, ...]] = {
    "value": TEXT_OR_BYTES,
    "key": TEXT_OR_BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
}


class BadRow(PipelineError):
    """Error for a row that cannot become a record; one sentence."""


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """Number of records that one task wrote."""

    records: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check the columns of the rows. Raise BadOption."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise BadOption(f"Column value is required, but missing; the columns are: {', '.join(types) or 'none'}.")
    if options.topic is None and "topic" not in types:
        raise BadOption("No topic to write to: set the option topic, or add a column topic.")
    for name, allowed in COLUMNS.items():
        if name in types and not any(_same_type(types[name], kind) for kind in allowed):
            expected = " or ".join(kind.simpleString() for kind in allowed)
            raise BadOption(f"Column {name} must be {expected}, not {types[name].simpleString()}.")


def _same_type(one: DataType, other: DataType) -> bool:
    """Return whether the types are equal except for nullability at any depth."""
    return one.simpleString() == other.simpleString()


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    @without_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return TaskCommitMessage(write_rows(iterator, self._options))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    @without_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return TaskCommitMessage(write_rows(iterator, self._options))


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> int:
    """Write rows in a task. Return when all in-sync replicas have acknowledged every record."""
    freeze_once()
    with Cluster(options.client) as cluster:
        writing = _PendingRows(Producer(cluster), options)
        for batch in batches:
            writing.add(batch)
        return writing.finish()


class _PendingRows:
    """Rows waiting to be sent, by partition."""

    def __init__(self, producer: Producer, options: WriteOptions) -> None:
        self._producer = producer
        self._options = options
        self._waiting: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._sticky: dict[str, StickyPartition] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        columns = rows.select([name for name in ("key", "value", "headers") if name in rows.schema.names])
        for topic, chosen in self._by_topic(rows):
            for at, indices in self._by_partition(topic, rows, chosen):
                # Use the rows unchanged if all go to one partition, as in a topic with one partition.
                self._wait(at, columns if len(indices) == rows.num_rows else columns.take(indices))

    def finish(self) -> int:
        for at in sorted(self._waiting):
            self._send(at)
        self._producer.flush()
        return self._producer.records_sent

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
        """Yield (topic, its row numbers)."""
        numbers = pa.array(range(rows.num_rows), pa.int32())
        if self._options.topic is not None:
            yield self._options.topic, numbers
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise BadRow("The topic of a row is null; set the option topic, or filter such rows.")
        for topic in topics.unique().to_pylist():
            yield topic, numbers.filter(pc.equal(topics, topic))

    def _by_partition(
        self, topic: str, rows: pa.RecordBatch, chosen: pa.Array
    ) -> Iterator[tuple[TopicPartition, pa.Array]]:
        partitions = self._partitions(topic, rows).take(chosen)
        for number in partitions.unique().to_pylist():
            yield TopicPartition(TopicName(topic), number), chosen.filter(pc.equal(partitions, number))

    def _partitions(self, topic: str, rows: pa.RecordBatch) -> pa.Array:
        """Return each row's partition: its own, or by its key, or the batch's sticky partition."""
        count = self._producer.partitions(topic)
        found = pa.nulls(rows.num_rows, pa.int32())
        if "partition" in rows.schema.names:
            found = rows.column("partition")
            self._refuse_unknown(topic, found, count)
        if "key" in rows.schema.names and found.null_count:
            found = pc.coalesce(found, partitions_of(rows.column("key"), count))
        if found.null_count:
            sticky = self._sticky.setdefault(topic, StickyPartition(count))
            found = found.fill_null(sticky.current)
            sticky.turn()
        return found

    def _refuse_unknown(self, topic: str, partitions: pa.Array, count: int) -> None:
        bounds = pc.min_max(partitions).as_py()
        if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < count:
            number = bounds["min"] if bounds["min"] < 0 else bounds["max"]
            raise BadRow(f"The partition of a row is {number}, but topic {topic} has {count} partitions.")

    def _wait(self, at: TopicPartition, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(at, []).append(rows)
        self._bytes[at] = self._bytes.get(at, 0) + rows.nbytes
        if self._bytes[at] >= self._options.client.batch_bytes:
            self._send(at)

    def _send(self, at: TopicPartition) -> None:
        table = pa.Table.from_batches(self._waiting.pop(at))
        del self._bytes[at]
        columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
        encoder = RowEncoder(
            columns["value"], keys=columns.get("key"), headers=columns.get("headers"), now=time.time_ns() // 1_000_000
        )
        start = 0
        while start < encoder.rows:
            stop = encoder.fit(start, self._options.client.batch_bytes)
            self._producer.send_batch(at, encoder.encode(start, stop, self._options.codec), stop - start)
            start = stop
