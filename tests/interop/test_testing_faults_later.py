"""Faults of requests that complete later: those that need a thread, an event or a file."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest

from odradek.base.errors import ErrorCode
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.testing import Broker
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_configs import DescribeConfigsResponse
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support import configuring
from support.configuring import SET, TOPIC
from support.raw_client import Closed, RawClient

DELAY_SECONDS = 0.2
LARGE = (b"key", random.Random(7).randbytes(500_000), [], int(time.time() * 1000))
LATEST, EARLIEST = -1, -2
# Reasons for a thread to parse a batch: its records or keys are checked, or it is recompressed.
INSPECTED = {"records": {}, "keys": {"cleanup.policy": "compact"}, "packed": {"compression.type": "gzip"}}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"odradek.record.validation": "records"}) as running:
        yield running


@pytest.fixture(params=INSPECTED)
def topic(request: pytest.FixtureRequest, broker: Broker) -> Iterator[str]:
    broker.create_topic("orders", configs=INSPECTED[request.param])
    yield "orders"
    broker.faults.clear()
    broker.delete_topic("orders")


@pytest.fixture
def plain(broker: Broker) -> Iterator[str]:
    for name in ("plain", "other"):
        broker.create_topic(name)
    yield "plain"
    broker.faults.clear()
    for name in ("plain", "other"):
        broker.delete_topic(name)


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


def produce(*topics: str, acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index=0, records=encode_batch([LARGE], Codec.LZ4))]
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=name, partition_data=parts) for name in topics]
    )


def offset(client: RawClient, topic: str, which: int = LATEST) -> int:
    parts = [ListOffsetsPartition(partition_index=0, timestamp=which)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
    return client.request(request, 7, ListOffsetsResponse).topics[0].partitions[0].offset


def errors(answer: ProduceResponse) -> dict[str, int]:
    return {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}


# A Produce handled in a thread.


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("after", [False, True])
def test_a_produce_handled_in_a_thread_is_dropped(
    broker: Broker, client: RawClient, topic: str, acks: int, after: bool
) -> None:
    fault = broker.faults.drop("Produce", after=after)
    with RawClient(broker.port) as producer, pytest.raises(Closed):
        producer.request(produce(topic, acks=acks), 9, ProduceResponse)
    assert (fault.count, offset(client, topic)) == (1, int(after))
    assert errors(client.request(produce(topic), 9, ProduceResponse)) == {topic: 0}, "the broker lives"


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_handled_in_a_thread_is_delayed(broker: Broker, client: RawClient, topic: str, acks: int) -> None:
    broker.faults.delay("Produce", seconds=DELAY_SECONDS)
    began = time.monotonic()
    assert errors(client.request(produce(topic, acks=acks), 9, ProduceResponse)) == {topic: 0}
    assert time.monotonic() - began >= DELAY_SECONDS
    assert offset(client, topic) == 1


def test_a_produce_handled_in_a_thread_gets_an_error(broker: Broker, client: RawClient, topic: str) -> None:
    broker.faults.answer("Produce", error="KAFKA_STORAGE_ERROR")
    assert errors(client.request(produce(topic), 9, ProduceResponse)) == {topic: ErrorCode.KAFKA_STORAGE_ERROR}
    assert offset(client, topic) == 0


def test_other_topics_of_the_request_are_validated(broker: Broker, client: RawClient, topic: str, plain: str) -> None:
    broker.faults.answer("Produce", error="KAFKA_STORAGE_ERROR", topic=plain)
    answer = client.request(produce(topic, plain), 9, ProduceResponse)
    assert errors(answer) == {topic: 0, plain: ErrorCode.KAFKA_STORAGE_ERROR}
    assert (offset(client, topic), offset(client, plain)) == (1, 0)


def test_a_client_may_disconnect_during_a_delay(broker: Broker, client: RawClient, topic: str) -> None:
    fault = broker.faults.delay("Produce", seconds=600)
    with RawClient(broker.port) as producer:
        leaving = threading.Thread(target=unanswered, args=(producer, produce(topic)))
        leaving.start()
        fault.wait()
        producer.end_of_sending()
        leaving.join()
    assert errors(client.request(produce(topic), 9, ProduceResponse)) == {topic: 0}


def unanswered(client: RawClient, request: ProduceRequest) -> None:
    with pytest.raises(Closed):
        client.request(request, 9, ProduceResponse)


# Requests that wait for files or an event.


def delete_records(*topics: str) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=parts) for name in topics], timeout_ms=30_000
    )


def alter(*topics: str) -> IncrementalAlterConfigsRequest:
    return configuring.alter(*((TOPIC, name, [("retention.ms", SET, "77")]) for name in topics))


def retention(client: RawClient, topic: str) -> str | None:
    answer = client.request(configuring.describe(TOPIC, topic, "retention.ms"), 4, DescribeConfigsResponse)
    return answer.results[0].configs[0].value


def move(topic: str) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])]
    )


REQUESTS = {
    "DeleteRecords": (delete_records, 2, DeleteRecordsResponse),
    "IncrementalAlterConfigs": (alter, 1, IncrementalAlterConfigsResponse),
    "AlterReplicaLogDirs": (move, 2, AlterReplicaLogDirsResponse),
}


def is_done(client: RawClient, api: str, topic: str) -> bool:
    if api == "DeleteRecords":
        return offset(client, topic, EARLIEST) == 1
    return api == "AlterReplicaLogDirs" or retention(client, topic) == "77"


@pytest.mark.parametrize("api", REQUESTS)
def test_requests_that_wait_are_dropped(broker: Broker, client: RawClient, plain: str, api: str) -> None:
    build, version, answer = REQUESTS[api]
    client.request(produce(plain), 9, ProduceResponse)
    for after in (False, True):
        fault = broker.faults.drop(api, after=after)
        with RawClient(broker.port) as admin, pytest.raises(Closed):
            admin.request(build(plain), version, answer)
        assert fault.count == 1
        assert is_done(client, api, plain) == after or api == "AlterReplicaLogDirs"
    client.ping()


@pytest.mark.parametrize("api", REQUESTS)
def test_requests_that_wait_are_delayed(broker: Broker, client: RawClient, plain: str, api: str) -> None:
    build, version, answer = REQUESTS[api]
    client.request(produce(plain), 9, ProduceResponse)
    broker.faults.delay(api, seconds=DELAY_SECONDS)
    began = time.monotonic()
    client.request(build(plain), version, answer)
    assert time.monotonic() - began >= DELAY_SECONDS
    assert is_done(client, api, plain)


def test_records_of_the_other_topic_are_deleted(broker: Broker, client: RawClient, plain: str) -> None:
    client.request(produce(plain, "other"), 9, ProduceResponse)
    broker.faults.answer("DeleteRecords", error="TOPIC_AUTHORIZATION_FAILED", topic=plain)
    answer = client.request(delete_records(plain, "other"), 2, DeleteRecordsResponse)
    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert codes == {plain: ErrorCode.TOPIC_AUTHORIZATION_FAILED, "other": 0}
    assert (offset(client, plain, EARLIEST), offset(client, "other", EARLIEST)) == (0, 1)


def test_the_other_topic_is_altered(broker: Broker, client: RawClient, plain: str) -> None:
    before = retention(client, plain)
    broker.faults.answer("IncrementalAlterConfigs", error="POLICY_VIOLATION", topic=plain)
    answer = client.request(alter(plain, "other"), 1, IncrementalAlterConfigsResponse)
    codes = {one.resource_name: one.error_code for one in answer.responses}
    assert codes == {plain: ErrorCode.POLICY_VIOLATION, "other": 0}
    assert (retention(client, plain), retention(client, "other")) == (before, "77")
