"""Producers that write while the loader runs, and the known outcomes of their records; the broker may die.

Values are unique. A record or transaction without a response is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from workload.final import end_of
from workload.settings import CALL_SECONDS_MAX, Clients
from workload.transactors import Hung, bounded
from workload.worker import Partition

PARTITIONS = 3
PAUSE_SECONDS = 0.1
RECORDS_MAX = 20  # In one turn of a writer.
ABORTED_SHARE = 0.3
DELIVERY_SECONDS_MAX = 300


@dataclass(slots=True)
class Written:
    """The written values; of an unknown transaction either all are present or none."""

    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    unknown: list[set[str]] = field(default_factory=list)  # Each a transaction, or one record.

    def __str__(self) -> str:
        return f"{len(self.committed)} records committed, {len(self.aborted)} aborted, {len(self.unknown)} unknown"


class Writers:
    """Some plain and some transactional writers, each a thread; for `with`, which waits for all responses."""

    def __init__(self, address: str, topic: str, seed: int, plain: int = 1, transactional: int = 2) -> None:
        clients = Clients(address)
        self._is_over = threading.Event()
        self.writers: list[Writer] = [
            *(Plain(clients, topic, f"plain-{n}", Random(f"{seed} {n}")) for n in range(plain)),
            *(Transactor(clients, topic, f"txn-{n}", Random(f"{seed} {n}")) for n in range(transactional)),
        ]
        self._threads = [
            threading.Thread(target=one.write_until, args=(self._is_over,), daemon=True) for one in self.writers
        ]

    @property
    def written(self) -> Written:
        together = Written()
        for one in self.writers:
            together.committed |= one.written.committed
            together.aborted |= one.written.aborted
            together.unknown += one.written.unknown
        return together

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(DELIVERY_SECONDS_MAX)
        assert error is not None or not any(thread.is_alive() for thread in self._threads), "the broker does not answer"


class Writer:
    def __init__(self, clients: Clients, topic: str, name: str, random: Random) -> None:
        self.clients = clients
        self.topic = topic
        self.name = name
        self.random = random
        self.written = Written()
        self._count = 0

    def write_until(self, is_over: threading.Event) -> None:
        raise NotImplementedError

    def send(self, producer: Producer, answered: Callable[[KafkaError | None, Message], None] | None) -> set[str]:
        """Send some records with the producer; return their values."""
        values: set[str] = set()
        for _ in range(self.random.randrange(1, RECORDS_MAX)):
            self._count += 1
            value = f"{self.name} {self._count}"
            values.add(value)
            partition = self.random.randrange(PARTITIONS)
            producer.produce(self.topic, value.encode(), partition=partition, on_delivery=answered)
        return values


class Plain(Writer):
    """An idempotent writer that continues after every outcome."""

    def write_until(self, is_over: threading.Event) -> None:
        producer = Producer(self.clients.producer() | {"message.timeout.ms": DELIVERY_SECONDS_MAX * 1000})
        while not is_over.wait(PAUSE_SECONDS):
            self.send(producer, self._answered)
            producer.poll(0)
        producer.flush(DELIVERY_SECONDS_MAX)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is None:
            self.written.committed.add(value)
        else:
            self.written.unknown.append({value})


class Transactor(Writer):
    """A writer that aborts some of its transactions, and restarts with its id after a failed call."""

    def write_until(self, is_over: threading.Event) -> None:
        producer: Producer | None = None
        while not is_over.wait(PAUSE_SECONDS) or producer is None:  # A new producer ends open transactions.
            try:
                producer = producer or self._restart()
                if not is_over.is_set():
                    self._transaction(producer)
            except (KafkaException, SystemError, Hung):
                producer = None

    def _restart(self) -> Producer:
        producer = Producer(self.clients.producer(f"{self.topic}-{self.name}"))
        bounded(producer.init_transactions)
        return producer

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        values = self.send(producer, None)
        try:
            if producer.flush(CALL_SECONDS_MAX):
                raise Hung
            if self.random.random() < ABORTED_SHARE:
                bounded(producer.abort_transaction)
                self.written.aborted |= values
            else:
                bounded(producer.commit_transaction)
                self.written.committed |= values
        except (KafkaException, SystemError, Hung):
            self.written.unknown.append(values)
            raise


def committed_records(address: str, topic: str, until: float) -> dict[int, dict[int, str]]:
    """Return the records that librdkafka reads with read_committed: for each partition, values by offset."""
    clients = Clients(address)
    return {number: _committed(clients, Partition(topic, number), until) for number in range(PARTITIONS)}


def _committed(clients: Clients, partition: Partition, until: float) -> dict[int, str]:
    end = end_of(clients, partition, until)
    found: dict[int, str] = {}
    consumer = Consumer(clients.consumer() | {"enable.partition.eof": True})
    consumer.assign([TopicPartition(partition.topic, partition.number, 0)])
    try:
        while True:
            message = consumer.poll(CALL_SECONDS_MAX)
            assert message is not None, f"{partition} ends at {end}, and nothing comes after {max(found, default=None)}"
            error, offset = message.error(), message.offset()
            assert offset is not None
            if error is None:
                found[offset] = (message.value() or b"").decode()
            elif error.code() == KafkaError._PARTITION_EOF and offset >= end:
                return found
    finally:
        consumer.close()


def differences(written: Written, records: dict[int, dict[int, str]]) -> Sequence[str]:
    """Return the contradictions between the broker's log and the responses to its producers."""
    values = [value for partition in records.values() for value in partition.values()]
    there = set(values)
    split = [some for some in written.unknown if 0 < len(some & there) < len(some)]
    return [
        *([f"{len(values) - len(there)} records are twice in the topic"] if len(values) != len(there) else []),
        *(f"{value} was committed and is not there" for value in sorted(written.committed - there)),
        *(f"{value} was aborted and is there" for value in sorted(written.aborted & there)),
        *(f"{len(some & there)} of {len(some)} records of a transaction are there" for some in split),
    ]
