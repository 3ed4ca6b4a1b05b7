"""Request templates of a connection: valid only for the rules they were learned under, and for allowed requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential.base import topic

from odradek.api.produce import large_produce
from odradek.api.produce.large_produce import LargeProduce
from odradek.api.request.admission import Admission
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.core.kernel.access import EVERYTHING, Operation, Principal, ResourceType, Rights
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.partition import Partition
from odradek.core.topics.topic_plans import PARTITIONS_PER_REQUEST_MAX
from odradek.record.builder import encode_batch
from odradek.wire.client_codec import encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey
from support.in_memory import NOW_MS, Harness
from support.rights import Granted, Rule
from support.transactional import Transactional, make_topic

DENIED, SERVED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
PRODUCE, FETCH, COMMIT = 9, 12, 8
JOINS = 12  # A version of Produce whose batches add their partitions to a transaction.
READS = Rule(Operation.READ, ResourceType.TOPIC, "t")
WRITES = Rule(Operation.WRITE, ResourceType.TOPIC, "t")
READS_GROUP = Rule(Operation.READ, ResourceType.GROUP, "g")


class Client(Harness):
    """The only client of a broker with one topic; its rights may change between requests."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        make_topic(self, "t")
        self.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6, FindCoordinatorResponse)
        self.version = 0

    def may(self, *rules: Rule) -> None:
        self.set_rights(Granted(rules))

    def set_rights(self, rights: Rights) -> None:
        """Change the rules, from the next request on."""
        self.version += 1
        self.peer.set_admission(Admission(rights=rights, version=self.version))

    @property
    def partition(self) -> Partition:
        return self.broker.partitions[TopicPartition(TopicName("t"), 0)]

    def produce(self, records: bytes | None = None, transactional_id: str | None = None) -> ErrorCode:
        answer = self.request(produce_request(records or batch(), transactional_id), PRODUCE, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, offset: int = 0, session: tuple[int, int] = (0, -1), *, names: bool = True) -> FetchResponse:
        return self.request(fetch_request(offset, session, names=names), FETCH, FetchResponse)

    def read(self, session: tuple[int, int] = (0, -1), *, names: bool = True) -> tuple[ErrorCode, bool]:
        """Return the error code of the partition, and whether it has records."""
        (topic,) = self.fetch(session=session, names=names).responses
        (part,) = topic.partitions
        return ErrorCode(part.error_code), bool(part.records)

    def commit(self, offset: int, group: str = "g") -> ErrorCode:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        answer = self.request(request, COMMIT, OffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def batch(size: int = 10) -> bytes:
    return bytes(encode_batch([(None, b"v" * size, (), NOW_MS)]))


def produce_request(records: bytes, transactional_id: str | None = None) -> ProduceRequest:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    return ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1_000, topic_data=data)


def fetch_request(offset: int, session: tuple[int, int], *, names: bool, wait_ms: int = 0) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=[part])] if names else [],
        forgotten_topics_data=[],
    )


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def test_changed_rules_apply_to_templated_produce_requests(client: Client) -> None:
    assert [client.produce(), client.produce()] == [SERVED] * 2
    assert len(client.peer.produce_templates) == 1
    end = client.partition.log.end_offset
    client.may(READS)
    assert [client.produce(), client.produce()] == [DENIED] * 2
    assert client.partition.log.end_offset == end
    assert len(client.peer.produce_templates) == 0
    client.may(WRITES)
    assert client.produce() == SERVED


def test_templates_do_not_apply_to_another_principal(client: Client) -> None:
    client.produce()
    client.peer.set_admission(Admission(Principal("User", "other"), Granted()))
    assert client.produce() == DENIED


def test_changed_rules_apply_to_large_templated_produce_requests(client: Client) -> None:
    client.produce()
    large = _begun(client)
    assert isinstance(large, LargeProduce)
    large.forget()
    client.may(READS)
    assert _begun(client) is None
    assert client.produce(batch(900_000)) == DENIED


def _begun(client: Client) -> LargeProduce | None:
    """Start a large request of which only the front has arrived."""
    chunks = encode_request(produce_request(batch(900_000)), PRODUCE, 1, "c")
    (request,) = Connection().receive_data(b"".join(chunk for chunk in chunks if isinstance(chunk, bytes)))
    front = Request(ApiKey.PRODUCE, PRODUCE, 1, "c", request.body[:65_536], 0, 0)
    return large_produce.begin_large_produce(client.broker, client.peer, front, len(request.body), client.now)


def test_changed_rules_apply_to_templated_fetch_requests(client: Client) -> None:
    client.produce()
    assert [client.read(), client.read()] == [(SERVED, True)] * 2
    assert len(client.peer.fetch_templates) == 1
    client.may(WRITES)
    assert [client.read(), client.read()] == [(DENIED, False)] * 2
    assert len(client.peer.fetch_templates) == 0
    client.may(READS)
    assert client.read() == (SERVED, True)


@pytest.mark.parametrize("names", [True, False], ids=["named again", "unnamed"])
def test_session_partitions_are_authorized_at_each_fetch(client: Client, names: bool) -> None:
    client.produce()
    session = client.fetch(session=(0, 0)).session_id
    assert client.read((session, 1)) == (SERVED, True)
    client.may(WRITES)
    assert client.read((session, 2), names=names) == (DENIED, False)
    assert client.read((session, 3), names=names) == (DENIED, False)
    client.may(READS)
    assert client.read((session, 4), names=names) == (SERVED, True)


def test_parked_fetch_keeps_the_rights_of_its_arrival(client: Client) -> None:
    waiting = client.send(fetch_request(0, (0, -1), names=True, wait_ms=10_000), FETCH)
    assert isinstance(waiting, ParkedRequest)
    client.may(WRITES)
    client.produce()
    answer = client.decoded(client.finished(waiting), FETCH, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == SERVED
    assert answer.responses[0].partitions[0].records


def test_changed_rules_apply_to_templated_commit_requests(client: Client) -> None:
    assert [client.commit(1), client.commit(2), client.commit(3)] == [SERVED] * 3
    assert len(client.peer.commit_templates) == 1
    client.may(READS_GROUP)
    assert [client.commit(4), client.commit(5), client.commit(6)] == [DENIED] * 3
    client.may(READS)
    assert [client.commit(7), client.commit(8), client.commit(9)] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3
    assert _committed(client) == 3
    client.may(READS, READS_GROUP)
    assert client.commit(10) == SERVED
    assert _committed(client) == 10


def _committed(client: Client) -> int:
    found = client.broker.groups.shard_of("g").offsets.find_offset("g", "t", 0)
    assert found is not None
    return found.offset


def test_refused_requests_create_no_templates(client: Client) -> None:
    client.produce()
    client.may()
    for offset in range(4):
        assert client.produce() == DENIED
        assert client.read() == (DENIED, False)
        assert client.commit(offset) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    client.may(READS_GROUP)
    for offset in range(4):
        assert client.commit(offset) == DENIED
    known = client.peer.produce_templates, client.peer.fetch_templates, client.peer.commit_templates
    assert [len(each) for each in known] == [0, 0, 0]


def test_template_does_not_admit_a_transactional_batch(client: Client) -> None:
    """A non-transactional batch may carry any transactional id, which is then not authorized."""
    producer = Transactional(client, "others")
    producer.begin()
    producer.add(("t", 0))
    of_transaction = encode_batch(
        [(None, b"v", (), NOW_MS)],
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    client.may(WRITES)
    for _ in range(2):
        assert client.produce(transactional_id="others") == SERVED
    end = client.partition.log.end_offset
    code = client.produce(bytes(of_transaction), "others")
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.partition.log.end_offset == end
    client.may(WRITES, Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "others"))
    assert client.produce(bytes(of_transaction), "others") == SERVED


def test_only_writable_partitions_join_a_transaction(client: Client) -> None:
    make_topic(client, "others")
    producer = Transactional(client, "own")
    producer.begin()
    producer_fields = {"producer_id": producer.producer.id, "producer_epoch": producer.producer.epoch}
    records = bytes(encode_batch([(None, b"v", (), NOW_MS)], **producer_fields, base_sequence=0, is_transactional=True))
    request = produce_request(records, "own")
    request.topic_data.append(TopicProduceData(name="others", partition_data=request.topic_data[0].partition_data))
    client.may(WRITES, Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "own"))
    answer = client.request(request, JOINS, ProduceResponse)
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [SERVED, DENIED]
    assert {name.topic for name in producer.state.partitions} == {"t"}


@pytest.mark.slow
def test_refused_topics_do_not_count_towards_the_partition_limit(client: Client) -> None:
    client.may(Rule(Operation.CREATE, ResourceType.TOPIC, "own"))
    request = CreateTopicsRequest(topics=[topic("own", 1), topic("others", PARTITIONS_PER_REQUEST_MAX)])
    answer = client.request(request, 7, CreateTopicsResponse)
    assert [(one.name, one.error_code) for one in answer.topics] == [("own", SERVED), ("others", DENIED)]


def test_all_requests_create_templates_with_all_rights(client: Client) -> None:
    client.set_rights(EVERYTHING)
    client.produce(transactional_id="any")
    client.read()
    client.commit(1)
    client.commit(2)
    known = client.peer.produce_templates, client.peer.fetch_templates, client.peer.commit_templates
    assert [len(each) for each in known] == [1, 1, 1]
