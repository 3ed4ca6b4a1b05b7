"""Consumption of the derived topic departures-by-hour with librdkafka, by the last value of each key.

The stream writes a key again whenever its hour has changed, and repeats a whole batch after a crash. Only the last
value of a key is therefore valid. The topic is read while it is written, which shows the progress of the stream.
"""

from __future__ import annotations

import json
import time
from types import TracebackType
from typing import Self, TypedDict

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from odradek.demo.feed import ANSWER_SECONDS_MAX, QUIET, log_ends

TOPIC = "departures-by-hour"
PARTITIONS = 2
KEY = ["time_hour", "origin", "carrier"]
SCHEMA = pa.schema(
    [
        ("time_hour", pa.string()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("flights", pa.int64()),
        ("cancelled", pa.int64()),
        ("delay_sum", pa.int64()),  # Minutes, of departed flights.
        ("delay_mean", pa.float64()),  # Null if no flight departed.
    ]
)


class Hour(TypedDict, total=False):
    """A value of the topic; null fields are omitted."""

    time_hour: str
    origin: str
    carrier: str
    flights: int
    cancelled: int
    delay_sum: int
    delay_mean: float


class HoursUnreadable(Exception):
    """Error for an unreadable derived topic; one sentence."""


class Hours:
    """The derived topic as a table: the newest value of each key."""

    def __init__(self, address: str) -> None:
        self.flights = 0  # Number of flights in the newest values.
        self.messages = 0
        self._address = address
        self._newest: dict[bytes, Hour] = {}
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        # librdkafka's consumer requires a group id; with assign() and without commits it has no effect.
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "odradek-demo",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # Nothing may be skipped.
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def poll(self, seconds: float = 0.0) -> None:
        for message in self._consumer.consume(5_000, seconds):
            error = message.error()
            if error is None:
                self._apply(message.partition() or 0, message.offset() or 0, message.key(), message.value())
            elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise HoursUnreadable(f"Topic {TOPIC} cannot be read: {error}.")

    def read_to_end(self) -> None:
        """Read up to the current end."""
        ends = log_ends(self._address, TOPIC, PARTITIONS)
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while any(self._next[number] < end for number, end in ends.items()):
            self.poll(0.2)
            if time.monotonic() > deadline:
                raise HoursUnreadable(f"Topic {TOPIC} ends at {ends}, but could only be read to {self._next}.")

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(list(self._newest.values()), schema=SCHEMA)

    def _apply(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self.messages += 1
        self._next[partition] = offset + 1
        try:
            hour: Hour = json.loads(value or b"")
            known = self._newest.get(key or b"", {})
            self.flights += hour["flights"] - known.get("flights", 0)
        except (ValueError, KeyError, TypeError) as error:
            raise HoursUnreadable(f"Topic {TOPIC} has no hour at {partition}, {offset}: {value!r}.") from error
        self._newest[key or b""] = hour

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
