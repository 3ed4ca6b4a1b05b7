"""Streaming reader, which runs in a Python process next to the driver until the query ends.

    initialOffset()             once, for a query without a checkpoint
    latestOffset(start, limit)  before each batch: waits up to half a second for records, then returns the end
    partitions(start, end)      the plan; after a restart Spark calls it first, with the offsets in its log
    read(task)                  in worker processes, on a copy made before the query started

Without new records, Spark calls latestOffset again at once, 90 times a second. Waiting inside costs nothing, and does
not delay stopping the query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.base.units import TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.spark.checkpoint_offsets import LATEST, BadOffsets, OffsetJson, Offsets, from_json, to_json, total
from odradek.spark.failures import without_traceback
from odradek.spark.kafka import Kafka
from odradek.spark.offset_resolution import MatchedPartitions, find_partitions, is_selected, offsets_at
from odradek.spark.planning import ranges_between, rate_limited, tasks_of
from odradek.spark.settings import advise_once
from odradek.spark.source_options import AtOffsets, BadOption, Everywhere, ReadOptions
from odradek.spark.task_reader import DataLoss, ReadTask, cores, plan_tasks, read_task

LONG_POLL_SECONDS = 0.5
POLL_SECONDS_FIRST = 0.005
POLL_SECONDS_MOST = 0.04

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream that connects on first use; its pickled copies in the tasks have no connection."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._initial: dict[TopicPartition, int] | None = None
        self._is_fresh = False  # From initialOffset until the first batch is planned.
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._recreated: set[str] = set()
        self._last_batch = float("-inf")
        self._kafka: Kafka | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_kafka": None}

    # Methods that Spark calls in the driver.

    @without_traceback()
    def initialOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name.
        if self._initial is None:  # Called twice; latest must mean the same both times.
            kafka, options = self._connected(), self._options
            found = find_partitions(kafka, options.selection)
            self._note_topic_ids(found)
            start = offsets_at(kafka, found.partitions, options.starting, "starting", options.missing_time_is_latest)
            self._initial = self._within_logs(start) if isinstance(options.starting, AtOffsets) else start
            self._is_fresh = True
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        pace = self._options.pace
        if pace.max_offsets is not None:
            return ReadMaxRows(pace.max_offsets)
        return ReadAllAvailable() if pace.min_offsets is None else ReadMinRows(pace.min_offsets)

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._fetch_latest()

    @without_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetJson:  # noqa: N802
        advise_once()
        current = self._parse_offsets(start)
        deadline = time.monotonic() + LONG_POLL_SECONDS
        wait = POLL_SECONDS_FIRST
        self._fetch_latest()
        if self._is_fresh and self._options.starting == Everywhere(LATEST):
            # The first batch is empty, so that the checkpoint contains the query's start. If the query died in that
            # batch, Spark would request the start again, and latest would then be later.
            self._is_fresh = False
            return to_json(current)
        while True:
            end = self._end(current, limit)
            if end != current:
                self._last_batch = time.monotonic()
                return to_json(end)
            if self._target is not None or time.monotonic() + wait > deadline:
                return to_json(current)
            time.sleep(wait)
            wait = min(wait * 2, POLL_SECONDS_MOST)
            self._latest = self._connected().offsets(dict.fromkeys(self._latest, LATEST)) if self._latest else {}

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        return to_json(self._latest) if self._latest else None

    @without_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = ranges_between(self._parse_offsets(start), self._parse_offsets(end))
        return list(plan_tasks(tasks_of(ranges, self._options.split, cores()), self._topic_ids))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint keeps the offsets. Spark calls this a batch late, never for the last."""

    def stop(self) -> None:
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    # Method that Spark calls in a task.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        with without_traceback():
            yield from read_task(partition, self._options.reading)

    def _within_logs(self, start: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Report starting offsets beyond the ends of their logs; with failOnDataLoss=false, start at the ends."""
        ends = self._connected().offsets(dict.fromkeys(start, LATEST)) if start else {}
        beyond = {at: ends[at] for at in sorted(start) if start[at] > ends[at]}
        for at, end in beyond.items():
            sentence = f"Option startingOffsets starts partition {at} at offset {start[at]}, but its log ends at {end}"
            if self._options.reading.fail_on_data_loss:
                raise BadOption(f"{sentence}; set failOnDataLoss to false to start at the end.")
            _log.warning("%s; the query starts at the end.", sentence)
        return start | beyond

    # End of a batch.

    def _end(self, start: Offsets, limit: ReadLimit) -> dict[TopicPartition, int]:
        latest = self._reachable(start, self._without_recreated(start))
        available = total(ranges_between(start, latest))
        if self._is_too_little(available, limit):
            return dict(start)
        most = self._options.pace.max_offsets
        if isinstance(limit, ReadAllAvailable) or most is None:
            return latest
        return rate_limited(start, latest, most)

    def _reachable(self, start: Offsets, latest: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the newest end offsets, or with Trigger.AvailableNow those from the start of the query."""
        target = self._target
        if target is None:
            return latest
        # startingOffsets=latest is resolved after the target, and may be beyond it.
        return {
            at: min(end, max(target.get(at, 0), start.get(at, 0)))
            for at, end in latest.items()
            if at in target or at in start
        }

    def _is_too_little(self, available: int, limit: ReadLimit) -> bool:
        pace = self._options.pace
        if pace.min_offsets is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._last_batch) * 1000
        return available < pace.min_offsets and waited_ms < pace.max_delay_ms

    def _without_recreated(self, start: Offsets) -> dict[TopicPartition, int]:
        """Report partitions that disappeared or went backwards; the latter restart at 0 in the next batch."""
        latest = self._latest
        for at in sorted(set(start) - set(latest)):
            self._report_loss(f"Partition {at} no longer exists; it was read up to offset {start[at]}.")
        ends = dict(latest)
        for at, end in latest.items():
            begin = start.get(at, 0)
            if end < begin or (begin > 0 and at.topic in self._recreated):
                self._report_loss(
                    f"Partition {at} was read up to offset {begin}, but its log now ends at {end}: its"
                    f" topic was deleted and recreated, or it was truncated."
                )
                ends[at] = 0
        self._recreated = {at.topic for at in latest if at.topic in self._recreated and start.get(at, 0) > 0}
        return ends

    def _report_loss(self, sentence: str) -> None:
        if self._options.reading.fail_on_data_loss:
            raise DataLoss(f"{sentence} Set failOnDataLoss to false to continue without the lost records.")
        _log.warning(sentence)

    def _parse_offsets(self, offsets: dict[str, Any]) -> dict[TopicPartition, int]:
        """Return the offsets from Spark's log. Raise BadOption for a checkpoint that another query wrote."""
        try:
            parsed = from_json(offsets)
        except BadOffsets as error:
            raise BadOption(f"The checkpoint does not contain offsets of Kafka topics: {error}.") from None
        unselected = sorted(at for at in parsed if not is_selected(at, self._options.selection))
        if unselected and self._options.reading.fail_on_data_loss:
            raise BadOption(
                f"The checkpoint contains offsets of {unselected[0]}, which this query does not read: use a separate"
                f" checkpointLocation for each query, or set failOnDataLoss to false to drop that partition."
            )
        return parsed

    # Requests to the brokers.

    def _connected(self) -> Kafka:
        if self._kafka is None:
            self._kafka = Kafka(self._options.reading.client)
        return self._kafka

    def _fetch_latest(self) -> dict[TopicPartition, int]:
        """Return the current partitions with their ends, and detect recreated topics."""
        found = find_partitions(
            self._connected(), self._options.selection, missing_ok=not self._options.reading.fail_on_data_loss
        )
        self._note_topic_ids(found)
        self._latest = self._connected().offsets(dict.fromkeys(found.partitions, LATEST)) if found.partitions else {}
        return self._latest

    def _note_topic_ids(self, found: MatchedPartitions) -> None:
        self._recreated |= {
            name
            for name, topic_id in found.topic_ids.items()
            if self._topic_ids.get(name, topic_id) not in (topic_id, ZERO_UUID)
        }
        self._topic_ids.update(found.topic_ids)


class MisconfiguredStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that raises its BadOption on every call from Spark.

    An error of DataSource.streamReader itself is lost: Spark 4.3 then stops the reader that it does not have, and shows
    the resulting UnboundLocalError.
    """

    def __init__(self, error: BadOption) -> None:
        self._error = error

    def initialOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name, as below.
        self._fail()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._fail()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._fail()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetJson:  # noqa: N802
        self._fail()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._fail()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._fail()

    @without_traceback()
    def _fail(self) -> NoReturn:
        raise self._error
