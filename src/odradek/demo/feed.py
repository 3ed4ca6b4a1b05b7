"""Produces the flights with librdkafka, and knows where to go on after the broker was killed under its hands.

What was in flight then may be in the log or not: only the log knows.  Producing it again would make duplicates, since a
new producer has another producer id, by which the broker can't tell.  But here each flight's place was settled before
it was sent (dataset.py), and this producer is the topic's only one.  So:

  1. the producer is given up before the broker is started again: nothing it holds can arrive later;
  2. the log's end in each partition is the place of the first flight that is missing there;
  3. a new producer goes on from those places.

Within a partition the log then is a prefix of what was sent: requests of one connection are appended in order, and with
retries=0 none is sent again behind another's back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # Where its type is declared.

from odradek.demo.dataset import PARTITIONS, records

TOPIC = "flights"
ANSWER_SECONDS_MAX = 180.0
# A broker that is away is part of the story, so librdkafka need not write about it on the terminal.
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}
# The timestamps are from 2013: with Kafka's default of seven days, retention would take the flights at once.
KEEP = {"retention.ms": "-1"}


class FeedFailed(Exception):
    """Raised when a flight was not produced, or one is missing; one sentence."""


class Feed:
    """One producer from its first flight to its last, or to the moment it is given up."""

    def __init__(self, address: str, flights: pa.Table) -> None:
        self.handed_over = 0
        self.total = flights.num_rows
        self.acknowledged: dict[int, int] = {}  # By partition: the offset after the last one acknowledged.
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

    def hand_over(self, count: int) -> None:
        """Gives librdkafka the next `count` flights, which it sends in the background.  Raises FeedFailed."""
        for flight in islice(self._records, count):
            self._produce_when_there_is_room(
                value=flight.value, key=flight.key, partition=flight.partition, timestamp=flight.timestamp_ms
            )
            self.handed_over += 1
            self._unanswered += 1
        self._producer.poll(0)
        self._refuse_failure()

    def finish(self) -> None:
        """Returns when the broker has everything.  Raises FeedFailed."""
        unsent = self._producer.flush(ANSWER_SECONDS_MAX)
        self._refuse_failure()
        if unsent:
            raise FeedFailed(f"{unsent:,} flights were not acknowledged within {ANSWER_SECONDS_MAX:.0f} s.")

    def give_up(self) -> int:
        """Forgets what is not acknowledged; returns how many flights that is."""
        self._producer.purge()
        self._producer.flush(ANSWER_SECONDS_MAX)
        return self._unanswered

    def _produce_when_there_is_room(self, **record: object) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                self._producer.produce(TOPIC, on_delivery=self._delivered, **record)  # type: ignore[arg-type]
                return
            except BufferError:  # librdkafka's queue is full: it hands out what is done, and has room again.
                self._producer.poll(0.1)
                self._refuse_failure()
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

    def _refuse_failure(self) -> None:
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
    """Returns the offset after the last record, by partition."""
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
    """Returns each partition's end.  Raises FeedFailed if something that was acknowledged before is missing."""
    ends = log_ends(address, TOPIC, PARTITIONS)
    if any(ends[number] < end for number, end in acknowledged.items()):
        raise FeedFailed(f"Acknowledged flights are lost: the log ends at {ends}, acknowledged was {acknowledged}.")
    return ends
