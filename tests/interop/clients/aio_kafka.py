"""aiokafka, with an event loop for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka  # type: ignore[import-untyped]  # Has no types.
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

from clients.aio_kafka_groups import AioKafkaMember, AioKafkaTransactor, as_client_error
from clients.client import RECORD_BYTES_MAX, SECONDS_MAX, ClientError, Cluster, Question, Start, Topic
from clients.members import Committed, Joining
from clients.records import CODECS, Read, Record

Result = TypeVar("Result")


class AioKafka:
    name = "aiokafka"
    version: str = aiokafka.__version__
    codecs = CODECS
    sets_time = True
    answers: frozenset[Question] = frozenset(("earliest", "latest"))

    def __init__(self, address: str) -> None:
        self._address = address

    def writes(self, record: Record) -> bool:
        """Return True with a key or a value, one of which it requires."""
        return record.key is not None or record.value is not None

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._address,
                compression_type=None if codec == "none" else codec,
                acks="all",
                linger_ms=5,
                max_request_size=record_bytes_max,
                **({} if idempotent is None else {"enable_idempotence": idempotent}),
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(topic, one.value, one.key, 0, one.timestamp_ms, list(one.headers))
                    for one in records
                ]
                await asyncio.gather(*sent)
            finally:
                await producer.stop()

        _run(run())

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        async def run() -> list[Read]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._address,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset=start.reset,
                fetch_max_wait_ms=100,
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
            await consumer.start()
            try:
                partition = TopicPartition(topic, 0)
                consumer.assign([partition])
                await _seek(consumer, partition, start)
                found = [await consumer.getone(partition) for _ in range(count)]
                return [
                    Read(one.offset, Record(one.key, one.value, tuple(one.headers), one.timestamp)) for one in found
                ]
            finally:
                await consumer.stop()

        return _run(run())

    def join(self, joining: Joining) -> AioKafkaMember:
        return AioKafkaMember(self._address, joining)

    def committed(self, group: str, topic: str) -> Mapping[int, Committed]:
        offsets = self._call("list_consumer_group_offsets", group)
        return {one.partition: Committed(at.offset, at.metadata) for one, at in offsets.items() if one.topic == topic}

    def transactor(self, transactional_id: str, *, group: str = "", source: str = "") -> AioKafkaTransactor:
        return AioKafkaTransactor(self._address, transactional_id, group, source)

    def close(self) -> None:
        pass

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new_topic = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        _check(self._call("create_topics", [new_topic]).topic_errors)

    def create_partitions(self, topic: str, total: int) -> None:
        _check(self._call("create_partitions", {topic: NewPartitions(total)}).topic_errors)

    def describe_topic(self, topic: str) -> Topic:
        (described,) = self._call("describe_topics", [topic])
        _check([(topic, described["error_code"])])
        return Topic({one["partition"]: one["leader"] for one in described["partitions"]})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        (answer,) = self._call("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, text, _, _, entries),) = answer.resources
        _check([(topic, code, text)])
        return {entry[0]: entry[1] for entry in entries}

    def describe_cluster(self) -> Cluster:
        cluster = self._call("describe_cluster")
        brokers = {one["node_id"]: f"{one['host']}:{one['port']}" for one in cluster["brokers"]}
        return Cluster(cluster["cluster_id"], cluster["controller_id"], brokers)

    def list_offsets(self, topic: str, question: Question | int) -> int:
        async def run() -> int:
            consumer = AIOKafkaConsumer(bootstrap_servers=self._address, group_id=None)
            await consumer.start()
            try:
                return await _offset(consumer, TopicPartition(topic, 0), question)
            finally:
                await consumer.stop()

        return _run(run())

    def delete_topic(self, topic: str) -> None:
        _check(self._call("delete_topics", [topic]).topic_error_codes)

    def _call(self, method: str, *arguments: object) -> Any:
        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
            await admin.start()
            try:
                return await getattr(admin, method)(*arguments)
            finally:
                await admin.close()

        return _run(run())


async def _seek(consumer: AIOKafkaConsumer, partition: TopicPartition, start: Start) -> None:
    match start.where:
        case "beginning":
            await consumer.seek_to_beginning(partition)
        case "end":
            await consumer.seek_to_end(partition)
        case "offset":
            consumer.seek(partition, start.at)
        case "time":
            found = await consumer.offsets_for_times({partition: start.at})
            consumer.seek(partition, found[partition].offset)


async def _offset(consumer: AIOKafkaConsumer, partition: TopicPartition, question: Question | int) -> int:
    if isinstance(question, int):
        found = (await consumer.offsets_for_times({partition: question}))[partition]
        return -1 if found is None else int(found.offset)
    offsets_of = consumer.beginning_offsets if question == "earliest" else consumer.end_offsets
    return int((await offsets_of([partition]))[partition])


def _check(outcomes: Sequence[Sequence[Any]]) -> None:
    """Raise the error codes of responses, which its admin client returns without raising."""
    for _, code, *text in outcomes:
        if code:
            raise ClientError(code, str(text))


def _run(work: Coroutine[None, None, Result]) -> Result:
    with as_client_error():
        return asyncio.run(asyncio.wait_for(work, SECONDS_MAX))
