"""Production of the flights with librdkafka, continued after the broker was killed.

Flights in flight at that time may or may not be in the log: only the log shows that. Producing all of them again would
create duplicates, because a new producer has a different producer id and the broker can't recognize them. But each
flight's place was determined before it was sent (dataset.py), and this producer is the topic's only one. Therefore:

  1. the producer is discarded before the broker is restarted: nothing it holds can arrive later;
  2. the log's end in each partition is the place of the first missing flight;
  3. a new producer continues from those places.

Within a partition the log is then a prefix of the sent flights: requests of one connection are appended in order, and
with retries=0 none is sent again out of order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # The module that declares its type.

from odradek.demo.dataset import PARTITIONS, records

TOPIC = "flights"
ANSWER_SECONDS_MAX = 180.0
# The unavailable broker is part of the demo, so librdkafka does not need to log it on the terminal.
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}
# The timestamps are from 2013: with Kafka's default of seven days, retention would delete the flights immediately.
KEEP = {"retention.ms": "-1"}


class FeedFailed(Exception):
    """Error for a flight that was not produced or is missing; one sentence."""


class Feed:
    """One producer from its first flight to its last, or until it is discarded."""

    def __init__(self, address: str, flights: pa.Table) -> None:
        self.submitted = 0
        self.total = flights.num_rows
        self.acknowledged: dict[int, int] = {}  # By partition: the offset after the last acknowledged one.
        self._unanswered = 0
        self._records = records(flights)
        self._failure: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "compression.type": "lz4",
                "enable.idempotence": False,
                "linger.ms": 20,
                "message.send.max.retries": 0,
                **QUIET,
            }
        )

    def submit(self, count: int) -> None:
        """Pass the next `count` flights to librdkafka for sending in the background, or raise FeedFailed."""
        for flight in islice(self._records, count):
            self._produce(value=flight.value, key=flight.key, partition=flight.partition, timestamp=flight.timestamp_ms)
            self.submitted += 1
            self._unanswered += 1
        self._producer.poll(0)
        self._raise_failure()

    def finish(self) -> None:
        """Wait until the broker has everything, or raise FeedFailed."""
        unsent = self._producer.flush(ANSWER_SECONDS_MAX)
        self._raise_failure()
        if unsent:
            raise FeedFailed(f"{unsent:,} flights were not acknowledged within {ANSWER_SECONDS_MAX:.0f} s.")

    def discard(self) -> int:
        """Discard all unacknowledged flights and return their number."""
        self._producer.purge()
        self._producer.flush(ANSWER_SECONDS_MAX)
        return self._unanswered

    def _produce(self, **record: object) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                self._producer.produce(TOPIC, on_delivery=self._delivered, **record)  # type: ignore[arg-type]
                return
            except BufferError:  # librdkafka's queue is full; poll() handles completed deliveries and makes room.
                self._producer.poll(0.1)
                self._raise_failure()
                if time.monotonic() > deadline:
                    raise FeedFailed("The broker takes no more flights.") from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = error
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self.acknowledged[partition] = offset + 1
        self._unanswered -= 1

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise FeedFailed(f"A flight could not be produced: {self._failure}.")


def create_topic(address: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    topic = NewTopic(name, partitions, 1, config=KEEP)
    try:
        admin.create_topics([topic], request_timeout=ANSWER_SECONDS_MAX)[name].result(ANSWER_SECONDS_MAX)
    except (KafkaException, TimeoutError) as error:
        raise FeedFailed(f"Topic {name} could not be made: {error}.") from error


def log_ends(address: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the offset after the last record, by partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "odradek-demo", **QUIET})
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), ANSWER_SECONDS_MAX)[1]
            for number in range(partitions)
        }
    except KafkaException as error:
        raise FeedFailed(f"The end of topic {topic} is not known: {error}.") from error
    finally:
        consumer.close()


def ends_after_restart(address: str, acknowledged: Mapping[int, int]) -> dict[int, int]:
    """Return each partition's end; raise FeedFailed if acknowledged flights are missing."""
    ends = log_ends(address, TOPIC, PARTITIONS)
    if any(ends[number] < end for number, end in acknowledged.items()):
        raise FeedFailed(f"Acknowledged flights are lost: the log ends at {ends}, acknowledged was {acknowledged}.")
    return ends
