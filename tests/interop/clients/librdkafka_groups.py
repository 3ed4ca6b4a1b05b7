"""A member and a transactional producer of librdkafka, through confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from clients.client import SECONDS_MAX
from clients.librdkafka_errors import as_client_error, seen
from clients.members import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    Committed,
    Joining,
    Place,
    PollingMember,
    positions,
)
from clients.transactors import TIMEOUT_MS

# The partitions have another owner, which rereads uncommitted records.
MOVED = {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID}
MOVED |= {KafkaError.STALE_MEMBER_EPOCH, KafkaError._ASSIGNMENT_LOST, KafkaError._STATE}


def way_settings(joining: Joining) -> dict[str, str | int]:
    settings: dict[str, str | int] = {"group.instance.id": joining.instance} if joining.instance else {}
    if joining.way == "consumer":
        return settings | {"group.protocol": "consumer"}
    timing = {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_TIMEOUT_MS}
    return settings | timing | {"partition.assignment.strategy": joining.way}


class LibrdkafkaMember(PollingMember):
    def __init__(self, address: str, joining: Joining) -> None:
        super().__init__()
        self._joining = joining
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "client.id": joining.name,
                "group.id": joining.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                **way_settings(joining),
            }
        )
        self._consumer.subscribe([joining.topic])
        self.start()

    def work(self) -> None:
        try:
            while self.is_running:
                messages = self._consumer.consume(100, 0.1)
                for message in messages:
                    if error := message.error():
                        raise seen(error)
                places = [Place(one.partition(), one.offset(), one.value()) for one in messages]  # type: ignore[arg-type]
                self.add(places)
                self._commit(places)
        finally:
            self._consumer.close()

    def _commit(self, places: Sequence[Place]) -> None:
        topic, metadata = self._joining.topic, self._joining.metadata
        offsets = [TopicPartition(topic, number, at, metadata) for number, at in positions(places).items()]
        if not offsets:
            return
        try:
            outcomes = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() not in MOVED:
                raise seen(refused.args[0]) from refused
            return
        for one in outcomes or ():
            if one.error is not None and one.error.code() not in MOVED:
                raise seen(one.error)


def committed(admin: AdminClient, group: str, topic: str) -> Mapping[int, Committed]:
    (done,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    with as_client_error():
        offsets = done.result(SECONDS_MAX)
    found = (one for one in offsets.topic_partitions if one.topic == topic and one.offset >= 0)
    return {one.partition: Committed(one.offset, one.metadata) for one in found}


class LibrdkafkaTransactor:
    def __init__(self, address: str, transactional_id: str, group: str, source: str) -> None:
        self._address = address
        self._group = group
        self._source = source
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        with as_client_error():
            self._producer.init_transactions(SECONDS_MAX)

    def begin(self) -> None:
        with as_client_error():
            self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        failures: list[KafkaError] = []
        with as_client_error():
            for value in values:
                self._producer.produce(
                    topic, value, partition=0, on_delivery=lambda error, _: failures.append(error) if error else None
                )
        assert self._producer.flush(SECONDS_MAX) == 0
        if failures:
            raise seen(failures[0])

    def send_offset(self, offset: int) -> None:
        reader = Consumer({"bootstrap.servers": self._address, "group.id": self._group})
        try:
            with as_client_error():
                offsets = [TopicPartition(self._source, 0, offset)]
                metadata = reader.consumer_group_metadata()
                self._producer.send_offsets_to_transaction(offsets, metadata, SECONDS_MAX)
        finally:
            reader.close()

    def commit(self) -> None:
        with as_client_error():
            self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        with as_client_error():
            self._producer.abort_transaction(SECONDS_MAX)

    def close(self) -> None:
        """Do nothing: the producer ends with its last reference."""
