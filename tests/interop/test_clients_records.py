"""Records written by one client and read by every client, byte for byte; and limits of record sizes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import pytest
from clients.client import BEGINNING, Client, ClientError, as_shown
from clients.fixtures import BROKERS, new_topic, opened
from clients.librdkafka import Librdkafka
from clients.records import CODECS, RECORDS, Record
from clients.registry import CLIENTS, Opened, lacks, parameter

from odradek.base.errors import ErrorCode
from odradek.record.record_batch import Batch, iter_batches
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.raw_client import RawClient

MIB = 1 << 20
ANY_SIZE = 10 * MIB
CLIENT_PARAMETERS = [parameter(name) for name in CLIENTS]


@pytest.fixture(scope="module", params=BROKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def clients(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(kind, tmp_path_factory.mktemp("records")) as those:
        yield those


class Part(NamedTuple):
    """Records that one client wrote with one codec."""

    writer: str
    codec: str
    records: tuple[Record, ...]
    from_ms: int
    to_ms: int
    sets_time: bool

    def check(self, found: list[Record], reader: Client) -> None:
        for sent, read in zip(self.records, found, strict=True):
            assert read[:3] == as_shown(reader, sent)[:3]
            if self.sets_time:
                assert read.timestamp_ms == sent.timestamp_ms
            else:
                assert self.from_ms <= read.timestamp_ms <= self.to_ms


class Written(NamedTuple):
    topic: str
    parts: list[Part]

    @property
    def total(self) -> int:
        return sum(len(part.records) for part in self.parts)


@pytest.fixture(scope="module")
def written(clients: Opened) -> Written:
    """Write records with every client and each of its codecs to one partition, one after the other."""
    topic = new_topic(clients.address)
    here = [name for name in CLIENTS if lacks(name) is None]
    return Written(topic, [_write(clients, topic, name, codec) for name in here for codec in clients[name].codecs])


def _write(clients: Opened, topic: str, name: str, codec: str) -> Part:
    client = clients[name]
    records = tuple(record for record in RECORDS if client.writes(record))
    from_ms = time.time_ns() // 1_000_000
    client.produce(topic, codec, records)
    return Part(name, codec, records, from_ms, time.time_ns() // 1_000_000, client.sets_time)


@pytest.mark.parametrize("reader", CLIENT_PARAMETERS)
def test_every_client_reads_the_records_of_every_other(clients: Opened, written: Written, reader: str) -> None:
    found = clients[reader].consume(written.topic, BEGINNING, written.total)
    assert [one.offset for one in found] == list(range(written.total))
    rest = (one.record for one in found)
    for part in written.parts:
        part.check(list(islice(rest, len(part.records))), clients[reader])


def test_the_broker_keeps_the_codec_of_the_client(clients: Opened, written: Written) -> None:
    starts = {batch.base_offset: CODECS[batch.codec] for batch in _batches(clients.address, written)}
    start = 0
    for part in written.parts:
        end = start + len(part.records)
        found = {codec for offset, codec in starts.items() if start <= offset < end}
        assert part.codec in found, (part.writer, part.codec)
        start = end


def _batches(address: str, written: Written) -> Iterator[Batch]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100 * MIB)
    topics = [FetchTopic(topic=written.topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=100 * MIB, topics=topics, forgotten_topics_data=[])
    admin = Librdkafka(address)
    leader = admin.describe_cluster().brokers[admin.describe_topic(written.topic).leaders[0]]
    with RawClient(int(leader.rpartition(":")[2])) as raw:
        answer = raw.request(request, 12, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        yield from iter_batches(records)


# The largest record.


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_records_over_a_megabyte_are_refused_by_default(clients: Opened, name: str) -> None:
    topic, client = new_topic(clients.address), clients[name]
    large = Record(b"large", bytes(range(250)) * 4000)
    client.produce(topic, "none", [large])
    (found,) = client.consume(topic, BEGINNING, 1)
    assert found.record[:2] == large[:2]
    _is_refused(clients, name, topic, Record(b"larger", b"x" * (MIB + 100)))


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_a_topic_may_have_a_lower_size_limit(clients: Opened, name: str) -> None:
    topic, client = new_topic(clients.address, configs={"max.message.bytes": "10000"}), clients[name]
    _is_refused(clients, name, topic, Record(b"k", b"x" * 11_000))
    small = Record(b"k", b"x" * 9_000)
    client.produce(topic, "none", [small])
    (found,) = client.consume(topic, BEGINNING, 1)
    assert (found.offset, found.record.value) == (0, small.value)
    client.produce(topic, "gzip", [Record(b"k", b"x" * 11_000)])  # The limit applies to its size on the wire.


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_a_topic_may_have_a_higher_size_limit(clients: Opened, name: str) -> None:
    """A record over the consumer's own limits is sent all the same: a reader must not get stuck."""
    topic, client = new_topic(clients.address, configs={"max.message.bytes": "5000000"}), clients[name]
    larger = [Record(b"%d" % number, bytes([number]) * 4_000_000) for number in range(2)]
    client.produce(topic, "none", larger, record_bytes_max=5_000_000)
    found = client.consume(topic, BEGINNING, 2)
    assert [one.record[:2] for one in found] == [one[:2] for one in larger]


def _is_refused(clients: Opened, name: str, topic: str, record: Record) -> None:
    with pytest.raises(ClientError) as refused:
        clients[name].produce(topic, "none", [record], record_bytes_max=ANY_SIZE)
    if refused.value.code is None:
        assert "Message size too large" in refused.value.text
    else:
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE, refused.value


@pytest.mark.parametrize("name", [parameter("java-4.4.0")])
def test_a_batch_too_large_for_its_topic_is_split(clients: Opened, name: str) -> None:
    """The Java producer splits a batch that is refused for its size (2.1.1 retries for ever)."""
    topic, client = new_topic(clients.address, configs={"max.message.bytes": "10000"}), clients[name]
    records = [Record(b"%02d" % number, b"x" * 1000) for number in range(40)]
    client.produce(topic, "none", records)
    assert [one.record for one in client.consume(topic, BEGINNING, 40)] == records


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_a_topic_is_created_by_its_first_produce(clients: Opened, kind: str, name: str) -> None:
    if (kind, name) == ("apache-kafka", "kafka-go"):
        pytest.skip("Kafka answers that there is none, and kafka-go leaves it at that")
    topic = f"new-by-{name}"
    clients[name].produce(topic, "none", RECORDS[:1])
    (found,) = clients[name].consume(topic, BEGINNING, 1)
    assert (found.offset, found.record[:3]) == (0, RECORDS[0][:3])
