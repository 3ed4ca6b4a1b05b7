"""librdkafka, through confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs do not export what it does.
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from clients import librdkafka_groups
from clients.client import RECORD_BYTES_MAX, SECONDS_MAX, Cluster, Question, Start, Topic
from clients.librdkafka_errors import as_client_error, seen
from clients.librdkafka_groups import LibrdkafkaMember, LibrdkafkaTransactor
from clients.members import Committed, Joining
from clients.records import CODECS, Headers, Read, Record

RESETS = {"earliest": "earliest", "latest": "latest", "none": "error"}
OFFSETS = {"beginning": -2, "end": -1}
SPECS = {
    "earliest": OffsetSpec.earliest,
    "latest": OffsetSpec.latest,
    "max timestamp": OffsetSpec.max_timestamp,
}


class Librdkafka:
    name = "confluent-kafka"
    codecs = CODECS
    sets_time = True
    answers: frozenset[Question] = frozenset(("earliest", "latest", "max timestamp"))

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self.version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def writes(self, record: Record) -> bool:
        return True

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "compression.type": codec,
                "acks": "all",
                "linger.ms": 5,
                "message.max.bytes": record_bytes_max,
                "delivery.timeout.ms": SECONDS_MAX * 1000,
                **({} if idempotent is None else {"enable.idempotence": idempotent}),
            }
        )
        failures: list[KafkaError] = []
        with as_client_error():
            for record in records:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    0,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
        assert producer.flush(SECONDS_MAX) == 0
        if failures:
            raise seen(failures[0])

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        settings = {
            "bootstrap.servers": self._address,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "auto.offset.reset": RESETS[start.reset],
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        consumer = Consumer(settings)
        try:
            place = TopicPartition(topic, 0, OFFSETS.get(start.where, start.at))
            if start.where == "time":
                (place,) = consumer.offsets_for_times([TopicPartition(topic, 0, start.at)], SECONDS_MAX)
            consumer.assign([place])
            return [_next(consumer) for _ in range(count)]
        finally:
            consumer.close()

    def join(self, joining: Joining) -> LibrdkafkaMember:
        return LibrdkafkaMember(self._address, joining)

    def committed(self, group: str, topic: str) -> Mapping[int, Committed]:
        return librdkafka_groups.committed(self._admin, group, topic)

    def transactor(self, transactional_id: str, *, group: str = "", source: str = "") -> LibrdkafkaTransactor:
        return LibrdkafkaTransactor(self._address, transactional_id, group, source)

    def close(self) -> None:
        pass

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        (done,) = self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs))]).values()
        _result(done)

    def create_partitions(self, topic: str, total: int) -> None:
        (done,) = self._admin.create_partitions([NewPartitions(topic, total)]).values()
        _result(done)

    def describe_topic(self, topic: str) -> Topic:
        (done,) = self._admin.describe_topics(confluent_kafka.TopicCollection([topic])).values()
        described = _result(done)
        return Topic({one.id: one.leader.id for one in described.partitions})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        (done,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        described = _result(done)
        return {name: entry.value for name, entry in described.items()}

    def describe_cluster(self) -> Cluster:
        cluster = self._admin.describe_cluster(request_timeout=SECONDS_MAX).result()
        return Cluster(
            cluster.cluster_id, cluster.controller.id, {one.id: f"{one.host}:{one.port}" for one in cluster.nodes}
        )

    def list_offsets(self, topic: str, question: Question | int) -> int:
        spec = OffsetSpec.for_timestamp(question) if isinstance(question, int) else SPECS[question]()
        (done,) = self._admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        return int(_result(done).offset)

    def delete_topic(self, topic: str) -> None:
        (done,) = self._admin.delete_topics([topic]).values()
        _result(done)


def _next(consumer: Consumer) -> Read:
    message = consumer.poll(SECONDS_MAX)
    assert message is not None, "nothing came"
    if error := message.error():
        raise seen(error)
    headers = tuple(cast("Headers", message.headers() or ()))
    offset = message.offset()
    assert offset is not None
    return Read(offset, Record(message.key(), message.value(), headers, message.timestamp()[1]))


def _result(done: Future[Any]) -> Any:
    with as_client_error():
        return done.result(SECONDS_MAX)
