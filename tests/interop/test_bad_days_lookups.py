"""Lookups by time in batches that decompress to very much: the event loop runs on, and memory stays bounded.

The loop's share is the processor time of the main thread, and memory is the process's high-water mark.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.limits import BATCH_BYTES_MAX, UNPACKED_BYTES_MAX
from odradek.base.units import KIB, MIB, TimestampMs
from odradek.record.builder import encode_batch, seal_batch
from odradek.record.compression import Codec, compress
from odradek.record.record_batch import HEADER_BYTES
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import RawClient, frame
from support.serving import Serving, serving

AT = TimestampMs(1_700_000_000_000)
CONNECTIONS, ROUNDS = 10, 3
LOOP_MS_PER_LOOKUP_MAX = 20  # On the loop each took 87 and more.
IDLE_BYTES_MAX = 50 * MIB
SLACK_BYTES = 32 * MIB


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("lookups")) as running:
        yield running


def records(value: bytes) -> bytes:
    return bytes(encode_batch([(None, value, (), AT)])[HEADER_BYTES:])


def sealed(payload: bytes, codec: Codec) -> bytes:
    raw = bytearray(HEADER_BYTES) + payload
    return bytes(seal_batch(raw, count=1, base_timestamp=AT, max_timestamp=AT, attributes=codec))


def in_members(plain: bytes, member_bytes: int) -> bytes:
    return b"".join(
        gzip.compress(plain[start : start + member_bytes], mtime=0) for start in range(0, len(plain), member_bytes)
    )


def lookup(topic: str, number: int) -> ListOffsetsRequest:
    """Return a lookup of a time of its own, so that lookups are not shared."""
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=AT - number)
    topic_request = ListOffsetsTopic(name=topic, partitions=[part])
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic_request])


def loop_ms(broker: Serving) -> float:
    """Return the processor time of the main thread."""
    return int(Path(f"/proc/{broker.pid}/task/{broker.pid}/schedstat").read_text().split()[0]) / 1e6


def peak_bytes(broker: Serving) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * KIB  # type: ignore[index]  # A process that runs has it.


def members() -> bytes:
    """Return a batch of 25,000 members."""
    return sealed(in_members(records(bytes(25 * MIB)), 1_000), Codec.GZIP)


def large() -> bytes:
    """Return a batch that decompresses to almost the allowed maximum."""
    value = Random(1).randbytes(BATCH_BYTES_MAX - 50 * KIB) + bytes(UNPACKED_BYTES_MAX - 4 * MIB)
    return sealed(compress(Codec.ZSTD, records(value)), Codec.ZSTD)


def bomb() -> bytes:
    return sealed(compress(Codec.GZIP, records(bytes(250 * MIB))), Codec.GZIP)


def written(broker: Serving, topic: str, raw: bytes) -> None:
    with RawClient(broker.port) as client:
        creatable = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        client.request(CreateTopicsRequest(topics=[creatable]), 7, CreateTopicsResponse)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=raw)])
        sent = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
        answer = client.request(sent, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("make", "code"), [(members, ErrorCode.NONE), (large, ErrorCode.NONE), (bomb, ErrorCode.INVALID_RECORD)]
)
def test_repeated_lookups_of_ten_connections_stay_cheap(
    broker: Serving, make: Callable[[], bytes], code: ErrorCode
) -> None:
    topic, raw = make.__name__, make()
    assert len(raw) <= BATCH_BYTES_MAX
    written(broker, topic, raw)
    with RawClient(broker.port) as client:
        answer = client.request(lookup(topic, 0), 7, ListOffsetsResponse).topics[0].partitions[0]
        assert answer.error_code == code
    connections = [RawClient(broker.port) for _ in range(CONNECTIONS)]
    loop_before = loop_ms(broker)
    for _ in range(ROUNDS):
        for number, connection in enumerate(connections):
            connection.send(frame(lookup(topic, number), 7))
        for connection in connections:
            connection.read_frame()
    loop = loop_ms(broker) - loop_before
    for connection in connections:
        connection.close()
    assert loop <= LOOP_MS_PER_LOOKUP_MAX * CONNECTIONS * ROUNDS
    assert peak_bytes(broker) <= IDLE_BYTES_MAX + 2 * UNPACKED_BYTES_MAX + SLACK_BYTES
