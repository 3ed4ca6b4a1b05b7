"""Requests that arrive in one piece: handled in order, as if each had come alone after the former ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.record.records import iter_records
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import NOW_MS
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving, serving

LATEST = -1
JOINING = 12  # The Produce that adds a partition to a transaction, still by topic name.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder: Path = tmp_path_factory.mktemp("pipelining")
    with serving(folder) as running:
        yield running


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


def create(client: RawClient, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


def produce(topic: str, value: bytes, *, acks: int = 1, partition: int = 0) -> bytes:
    part = PartitionProduceData(index=partition, records=encode_batch([(None, value, (), NOW_MS)]))
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    return frame(ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics), 9)


def fetch(topic: str) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    return frame(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)


def latest(topic: str) -> bytes:
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topics = [ListOffsetsTopic(name=topic, partitions=[part])]
    return frame(ListOffsetsRequest(replica_id=-1, topics=topics), 5)


def produced_at(client: RawClient) -> tuple[int, int]:
    answer = decode_response(ProduceResponse, 9, client.read_frame())[1]
    part = answer.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def fetched(client: RawClient) -> list[bytes]:
    answer = decode_response(FetchResponse, 11, client.read_frame())[1]
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, bytes | memoryview)
    return [bytes(record.value or b"") for one in iter_batches(records) for record in iter_records(one)]


def latest_offset(client: RawClient) -> int:
    answer = decode_response(ListOffsetsResponse, 5, client.read_frame())[1]
    return answer.topics[0].partitions[0].offset


def test_each_request_sees_the_effects_of_earlier_ones(client: RawClient) -> None:
    create(client, "seen")
    client.send(
        produce("seen", b"0")
        + produce("seen", b"1")
        + latest("seen")
        + produce("seen", b"2")
        + fetch("seen")
        + produce("seen", b"elsewhere", partition=1)
        + produce("seen", b"3")
        + latest("seen")
    )
    assert [produced_at(client) for _ in range(2)] == [(0, 0), (0, 1)]
    assert latest_offset(client) == 2
    assert produced_at(client) == (0, 2)
    assert fetched(client) == [b"0", b"1", b"2"]
    assert [produced_at(client) for _ in range(2)] == [(0, 0), (0, 3)]
    assert latest_offset(client) == 4


def test_answers_that_wait_for_the_disk_keep_their_place(client: RawClient) -> None:
    create(client, "waits")
    client.send(b"".join(produce("waits", b"%d" % n, acks=-1 if n % 3 == 0 else 1) for n in range(30)))
    assert [produced_at(client) for _ in range(30)] == [(0, n) for n in range(30)]
    client.send(fetch("waits"))
    assert fetched(client) == [b"%d" % n for n in range(30)]


def test_one_bad_batch_does_not_hurt_its_neighbours(client: RawClient) -> None:
    create(client, "bad")
    damaged = bytearray(produce("bad", b"damaged"))
    damaged[damaged.rindex(b"damaged")] ^= 1
    client.send(produce("bad", b"0") + bytes(damaged) + produce("nowhere", b"x") + produce("bad", b"1"))
    assert [produced_at(client) for _ in range(4)] == [
        (ErrorCode.NONE, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.NONE, 1),
    ]


def test_only_requests_with_acks_are_answered(client: RawClient) -> None:
    create(client, "quiet")
    client.send(b"".join(produce("quiet", b"%d" % n, acks=n % 2) for n in range(10)) + latest("quiet"))
    assert [produced_at(client) for _ in range(5)] == [(0, n) for n in (1, 3, 5, 7, 9)]
    assert latest_offset(client) == 10


def test_a_failure_with_acks_0_closes_the_connection(client: RawClient) -> None:
    create(client, "closing")
    client.send(produce("closing", b"0") + produce("nowhere", b"x", acks=0))
    assert produced_at(client) == (0, 0)
    with pytest.raises(Closed):
        client.read_frame()


def transactional(topic: str, producer: InitProducerIdResponse | EndTxnResponse, sequence: int) -> bytes:
    records = encode_batch(
        [(None, b"%d" % sequence, (), NOW_MS)],
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=ProducerEpoch(producer.producer_epoch),
        base_sequence=sequence,
        is_transactional=True,
    )
    part = PartitionProduceData(index=0, records=records)
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    request = ProduceRequest(transactional_id=topic, acks=-1, timeout_ms=5_000, topic_data=topics)
    return frame(request, JOINING)


def test_first_batches_of_a_transaction_may_be_pipelined(client: RawClient) -> None:
    create(client, "txn")
    client.request(FindCoordinatorRequest(key="txn", key_type=1), 3, FindCoordinatorResponse)
    begin = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    producer: InitProducerIdResponse | EndTxnResponse = client.request(begin, 5, InitProducerIdResponse)
    assert producer.error_code == ErrorCode.NONE
    offset = 0
    for _ in range(3):
        client.send(b"".join(transactional("txn", producer, sequence) for sequence in range(5)))
        for sequence in range(5):
            answer = decode_response(ProduceResponse, JOINING, client.read_frame())[1]
            part = answer.responses[0].partition_responses[0]
            assert (part.error_code, part.base_offset) == (ErrorCode.NONE, offset + sequence)
        end = EndTxnRequest(
            transactional_id="txn",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        producer = client.request(end, 5, EndTxnResponse)
        assert producer.error_code == ErrorCode.NONE
        offset += 6  # And its marker.
