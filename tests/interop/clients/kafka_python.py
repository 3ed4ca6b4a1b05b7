"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, TypeVar

import kafka  # type: ignore[import-untyped]  # Has no types.
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

from clients.client import RECORD_BYTES_MAX, SECONDS_MAX, ClientError, Cluster, Question, Start, Topic
from clients.kafka_python_groups import KafkaPythonMember, KafkaPythonTransactor, as_client_error
from clients.members import Committed, Joining
from clients.records import CODECS, Read, Record

QUESTIONS: dict[Question, int] = {"earliest": -2, "latest": -1, "max timestamp": -3}

Result = TypeVar("Result")


class KafkaPython:
    name = "kafka-python"
    version: str = kafka.__version__
    codecs = CODECS
    sets_time = True
    answers: frozenset[Question] = frozenset(QUESTIONS)

    def __init__(self, address: str) -> None:
        self._address = address

    def writes(self, record: Record) -> bool:
        """Return True with a key or a value, one of which it requires, and without null header values."""
        has_null_header = any(value is None for _, value in record.headers)
        return not has_null_header and (record.key is not None or record.value is not None)

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._address,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=5,
            max_request_size=record_bytes_max,
            **({} if idempotent is None else {"enable_idempotence": idempotent}),
        )
        with closing(producer), as_client_error():
            sent = [producer.send(topic, one.value, one.key, list(one.headers), 0, one.timestamp_ms) for one in records]
            for future in sent:
                future.get(SECONDS_MAX)

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._address,
            group_id=None,
            consumer_timeout_ms=SECONDS_MAX * 1000,
            auto_offset_reset=start.reset,
            fetch_max_wait_ms=100,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        with closing(consumer), as_client_error():
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            _seek(consumer, partition, start)
            found = list(islice(consumer, count))
            assert len(found) == count, f"{len(found)} of {count}"
            return [Read(one.offset, Record(one.key, one.value, tuple(one.headers), one.timestamp)) for one in found]

    def join(self, joining: Joining) -> KafkaPythonMember:
        return KafkaPythonMember(self._address, joining)

    def committed(self, group: str, topic: str) -> Mapping[int, Committed]:
        offsets = self._call(lambda admin: admin.list_group_offsets({group: None}))[group]
        found = {one.partition: Committed(at.offset, at.metadata) for one, at in offsets.items() if one.topic == topic}
        return {number: one for number, one in found.items() if one.offset >= 0}

    def transactor(self, transactional_id: str, *, group: str = "", source: str = "") -> KafkaPythonTransactor:
        return KafkaPythonTransactor(self._address, transactional_id, group, source)

    def close(self) -> None:
        pass

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        topics = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}}
        self._call(lambda admin: admin.create_topics(topics))

    def create_partitions(self, topic: str, total: int) -> None:
        self._call(lambda admin: admin.create_partitions({topic: total}))

    def describe_topic(self, topic: str) -> Topic:
        (described,) = self._call(lambda admin: admin.describe_topics([topic]))
        if described["error_code"]:
            raise ClientError(described["error_code"], str(described))
        return Topic({one["partition_index"]: one["leader_id"] for one in described["partitions"]})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._call(lambda admin: admin.describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in described["topic"][topic].items()}

    def describe_cluster(self) -> Cluster:
        cluster = self._call(lambda admin: admin.describe_cluster())
        brokers = {one["broker_id"]: f"{one['host']}:{one['port']}" for one in cluster["brokers"]}
        return Cluster(cluster["cluster_id"], cluster["controller_id"], brokers)

    def list_offsets(self, topic: str, question: Question | int) -> int:
        partition = TopicPartition(topic, 0)
        spec = question if isinstance(question, int) else QUESTIONS[question]
        found = self._call(lambda admin: admin.list_partition_offsets({partition: spec}))[partition]
        return -1 if found is None else int(found.offset)

    def delete_topic(self, topic: str) -> None:
        self._call(lambda admin: admin.delete_topics([topic]))

    def _call(self, action: Callable[[Any], Result]) -> Result:
        with closing(KafkaAdminClient(bootstrap_servers=self._address)) as admin, as_client_error():
            return action(admin)


def _seek(consumer: KafkaConsumer, partition: TopicPartition, start: Start) -> None:
    match start.where:
        case "beginning":
            consumer.seek_to_beginning(partition)
        case "end":
            consumer.seek_to_end(partition)
        case "offset":
            consumer.seek(partition, start.at)
        case "time":
            consumer.seek(partition, consumer.offsets_for_times({partition: start.at})[partition].offset)
