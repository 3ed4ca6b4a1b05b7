"""Execution of a read task: fetch the given ranges and yield Arrow batches, in order per partition.

The bytes of a response become Arrow columns without a Python object for any record. While Spark consumes them, the
broker already sends the next response. Gaps in the offsets (compaction, transaction markers, aborted transactions) are
not a loss: a range is complete when the fetch position reaches its end, however many records arrived. Only the broker's
OFFSET_OUT_OF_RANGE indicates a loss.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from odradek.base.units import MIB, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import OffsetOutOfRange
from odradek.client.consumer.fetcher import EARLIEST, LATEST, Fetched, Fetcher, list_offsets
from odradek.record.arrow import ArrowDecoder, DecodeSelection, RecordBatchLimits
from odradek.spark.checkpoint_offsets import OffsetRange
from odradek.spark.failures import PipelineError
from odradek.spark.source_options import Columns, Reading

POLL_MS = 1_000
# 10,000 to 50,000 rows cross to the JVM fastest if they are at most a few MB: 32 MB of 1 KiB rows take 1.5 times as
# long as the same rows in batches of 4 MB.
PORTION = RecordBatchLimits(rows=32_768, data_bytes=4 * MIB)

_log = logging.getLogger(__name__)


class DataLoss(PipelineError):
    """Error for records that are no longer available; the text names the partition and their number."""


class Stuck(PipelineError):
    """Error for a partition that did not reach its planned end."""


@dataclass
class ReadTask(InputPartition):
    """Ranges that one Spark task reads. Neither frozen nor slotted, because InputPartition is not."""

    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.ranges)


def cores() -> int:
    """Return the number of cores available to the process; for a cluster, use the option parallelism."""
    return len(os.sched_getaffinity(0))


def plan_tasks(tasks: Iterable[Sequence[OffsetRange]], topic_ids: Mapping[str, Uuid]) -> list[ReadTask]:
    return [
        ReadTask(
            tuple(ranges), {name: topic_ids[name] for name in {span.topic for span in ranges} if name in topic_ids}
        )
        for ranges in tasks
    ]


def read_task(task: ReadTask, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task.

    Raise DataLoss, Stuck, Refused for damaged records, or a ClientError if brokers stay unavailable.
    """
    freeze_once()
    with Cluster(reading.client) as cluster:
        for ranges in rounds(task.ranges):
            yield from _Ranges(cluster, ranges, task.topic_ids, reading).record_batches()


def freeze_once() -> None:
    """Freeze all objects once: Spark's worker collects after every task, 35 ms with pyarrow and pandas."""
    if gc.get_freeze_count() == 0:
        gc.freeze()


def rounds(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Divide ranges into rounds: a fetcher has one position per partition, so a second range must wait."""
    result: list[list[OffsetRange]] = []
    seen: dict[TopicPartition, int] = {}
    for span in sorted(ranges):
        number = seen.get(span.topic_partition, 0)
        seen[span.topic_partition] = number + 1
        if number == len(result):
            result.append([])
        result[number].append(span)
    return result


class _Ranges:
    """One fetcher from the starts of some ranges to their ends, and a decoder for each range."""

    def __init__(
        self, cluster: Cluster, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, Uuid], reading: Reading
    ) -> None:
        self._cluster = cluster
        self._reading = reading
        self._ends = {span.topic_partition: span.end for span in ranges}
        self._decoders = {span.topic_partition: _decoder(span, reading.columns) for span in ranges}
        starts = {span.topic_partition: span.start for span in ranges}
        self._fetcher = Fetcher(cluster, starts, until=self._ends, topic_ids=topic_ids)

    def record_batches(self) -> Iterator[pa.RecordBatch]:
        last_arrival = time.monotonic()
        while not self._fetcher.is_done:
            try:
                arrived = self._fetcher.poll(POLL_MS)
            except OffsetOutOfRange as error:
                yield from self._skip_lost(TopicPartition(TopicName(error.topic), error.partition), error.offset)
                continue
            for fetched in arrived:
                yield from self._decode(fetched)
            if arrived:
                last_arrival = time.monotonic()
            elif (time.monotonic() - last_arrival) * 1000 > self._reading.poll_timeout_ms:
                raise Stuck(self._stuck_message())

    def _decode(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        decoder = self._decoders[fetched.partition]
        for batch in fetched.batches():
            yield from decoder.feed(batch)
        if fetched.next_offset >= self._ends[fetched.partition]:
            yield from decoder.flush()

    def _skip_lost(self, at: TopicPartition, offset: int) -> Iterator[pa.RecordBatch]:
        end = self._ends[at]
        first = list_offsets(self._cluster, {at: EARLIEST})[at].offset
        resumed = min(first, end) if offset < first else end
        sentence = self._loss_message(at, offset, first, resumed)
        if self._reading.fail_on_data_loss:
            raise DataLoss(f"{sentence} Set failOnDataLoss to false to continue without them.")
        _log.warning(sentence)
        yield from self._decoders[at].flush()
        # A new decoder: the batch that contains `resumed` may contain earlier records, which are deleted nonetheless.
        self._decoders[at] = _decoder(OffsetRange(at.topic, at.partition, resumed, end), self._reading.columns)
        self._fetcher.seek(at, resumed)

    def _loss_message(self, at: TopicPartition, offset: int, first: int, resumed: int) -> str:
        if offset < first:
            return (
                f"Partition {at}: {resumed - offset} offsets ({offset} to {resumed - 1}) were removed before they were"
                f" read; the log starts at {first}."
            )
        last = list_offsets(self._cluster, {at: LATEST})[at].offset
        return (
            f"Partition {at}: offsets {offset} to {resumed - 1} do not exist; the log ends at {last}: it was truncated,"
            f" or the topic was recreated."
        )

    def _stuck_message(self) -> str:
        waiting = [
            f"{at} at {self._fetcher.position(at)} of {end}"
            for at, end in self._ends.items()
            if self._fetcher.position(at) < end
        ]
        return f"No records for {self._reading.poll_timeout_ms} ms: {', '.join(waiting)} (kafkaConsumer.pollTimeoutMs)."


def _decoder(span: OffsetRange, columns: Columns) -> ArrowDecoder:
    selection = DecodeSelection(columns.key, columns.value, columns.headers, span.start, span.end)
    return ArrowDecoder(span.topic, span.partition, selection, PORTION)
