"""Apache Kafka's command-line tools for groups and transactions, and tools that read as members, against the broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest
from clients.client import BEGINNING
from clients.fixtures import BROKERS, broker, new_topic
from clients.groups import Group
from clients.librdkafka import Librdkafka
from clients.records import NOW_MS, Record
from kafka_peer import REAL_KAFKA
from kafka_tools import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    CONSUMER_PERFORMANCE,
    END_TO_END_LATENCY,
    GROUPS,
    PRODUCER_PERFORMANCE,
    TRANSACTIONAL_COPIER,
    TRANSACTIONS,
    VERIFIABLE_CONSUMER,
    all_ran,
    fed,
    ran,
)

from odradek.base.errors import ErrorCode
from odradek.record.builder import encode_batch
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import RawClient
from support.waiting import until

pytestmark = REAL_KAFKA

SETTINGS = {"transaction.partition.verification.enable": "false"}  # Otherwise no old transaction could hang.
HOUR_MS = 3_600_000
RECORDS = 10
STEP_MS = 1000


@pytest.fixture(scope="module", params=BROKERS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(request.param, tmp_path_factory.mktemp("tools"), SETTINGS) as running:
        yield running


def filled(address: str, partitions: int = 1) -> str:
    """Create a topic with ten records, a second apart, in its first partition."""
    topic = new_topic(address, partitions)
    records = [Record(None, b"%d" % number, (), NOW_MS + number * STEP_MS) for number in range(RECORDS)]
    Librdkafka(address).produce(topic, "none", records)
    return topic


def new_name(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:12]}"


def rows(output: str) -> list[dict[str, str]]:
    """Return the table that a tool printed, by its header."""
    head, *body = [words for line in output.splitlines() if (words := line.split())]
    return [dict(zip(head, words, strict=False)) for words in body]


@pytest.mark.nightly
def test_console_consumer_resumes_at_committed_offsets(address: str) -> None:
    place = ("--bootstrap-server", address, "--topic", new_topic(address))
    groups = {protocol: new_name("group") for protocol in ("classic", "consumer")}
    for lines in (["one", "two"], ["three"]):
        fed(CONSOLE_PRODUCER, "\n".join(lines) + "\n", *place)
        end = ("--from-beginning", "--max-messages", str(len(lines)), "--timeout-ms", "200000")
        members = [("--group", group, "--consumer-property", f"group.protocol={one}") for one, group in groups.items()]
        for output in all_ran(*((CONSOLE_CONSUMER, *place, *member, *end) for member in members)):
            assert [line for line in output.splitlines() if line in ("one", "two", "three")] == lines


def test_groups_are_listed_and_described(address: str) -> None:
    at, client = ("--bootstrap-server", address), Librdkafka(address)
    with Group(address, 2) as old, Group(address, 2) as new:
        for group, member in ((old, old.join(client, "range")), (new, new.join(client, "consumer"))):
            assert group.settled() == {member: {0, 1}}
            group.write(3)
            group.has_read_all()
        old.write(1)  # The record is read, but may not be committed yet when the tool looks.
        listed, kinds, offsets, members, state = all_ran(
            (CONSUMER_GROUPS, *at, "--list"),
            (GROUPS, *at, "--list"),
            (CONSUMER_GROUPS, *at, "--describe", "--group", new.name),
            (CONSUMER_GROUPS, *at, "--describe", "--group", old.name, "--members", "--verbose"),
            (CONSUMER_GROUPS, *at, "--describe", "--group", new.name, "--state"),
        )
        refused = ran(CONSUMER_GROUPS, *at, "--delete", "--group", old.name)
    assert {old.name, new.name} <= set(listed.split())
    assert {"GROUP": old.name, "TYPE": "Classic", "PROTOCOL": "consumer"} in rows(kinds)
    assert {"GROUP": new.name, "TYPE": "Consumer", "PROTOCOL": "consumer"} in rows(kinds)
    positions = [(one["PARTITION"], one["CURRENT-OFFSET"], one["LOG-END-OFFSET"], one["LAG"]) for one in rows(offsets)]
    assert positions == [("0", "3", "3", "0"), ("1", "3", "3", "0")]
    (member,) = rows(members)
    assert member["HOST"] == "/127.0.0.1"
    assert member["CURRENT-ASSIGNMENT"] == f"{old.topic}:0,1"
    assert re.search(rf"{new.name}\s+{re.escape(address)}\s+\(\d+\)\s+uniform\s+Stable\s+1", state)
    assert "GroupNotEmptyException" in refused


@pytest.mark.nightly
def test_offsets_are_reset(address: str) -> None:
    topic, group = filled(address), new_name("group")
    reset = (CONSUMER_GROUPS, "--bootstrap-server", address, "--reset-offsets", "--group", group, "--topic", topic)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW_MS // 1000 + 4)) + f".{NOW_MS % 1000:03d}"
    for how, new_offset, offset in (
        (("--to-datetime", at, "--execute"), 4, 4),
        (("--shift-by", "3", "--dry-run"), 7, 4),
        (("--to-offset", "6", "--execute"), 6, 6),
    ):
        assert [one["NEW-OFFSET"] for one in rows(ran(*reset, *how))] == [str(new_offset)]
        assert Librdkafka(address).committed(group, topic)[0].offset == offset


@pytest.mark.nightly
def test_offsets_and_groups_are_deleted(address: str) -> None:
    topic, other, group = filled(address), filled(address), new_name("group")
    tool = (CONSUMER_GROUPS, "--bootstrap-server", address, "--group", group)
    ran(*tool, "--reset-offsets", "--to-latest", "--execute", "--topic", topic, "--topic", other)
    ran(*tool, "--delete-offsets", "--topic", topic)
    teller = Librdkafka(address)
    assert not teller.committed(group, topic)
    assert teller.committed(group, other)[0].offset == RECORDS
    ran(*tool, "--delete")
    assert group not in ran(CONSUMER_GROUPS, "--bootstrap-server", address, "--list")


def test_transactions_are_listed_described_and_aborted(address: str) -> None:
    at, topic, open_one, other = ("--bootstrap-server", address), new_topic(address), new_name("open"), new_name("done")
    writer = Librdkafka(address)
    with closing(writer.transactor(other)) as done, closing(writer.transactor(open_one)) as transactor:
        transactor.begin()
        transactor.send(topic, [b"open"])
        done.begin()
        done.send(topic, [b"done"])
        done.commit()
        place = ("--topic", topic, "--partition", "0")
        listed, described, producers, hanging = all_ran(
            (TRANSACTIONS, *at, "list"),
            (TRANSACTIONS, *at, "describe", "--transactional-id", open_one),
            (TRANSACTIONS, *at, "describe-producers", *place),
            (TRANSACTIONS, *at, "find-hanging", *place),
        )
        states = {one["TransactionalId"]: one["TransactionState"] for one in rows(listed)}
        assert (states[open_one], states[other]) == ("Ongoing", "CompleteCommit")
        assert f"{topic}-0" in described and "60000" in described
        assert {one["CurrentTransactionStartOffset"] for one in rows(producers)} == {"0", "None"}
        assert not rows(hanging)
        ran(TRANSACTIONS, *at, "forceTerminateTransaction", "--transactionalId", open_one)
    found = writer.consume(topic, BEGINNING, 1, committed=True)
    assert [one.record.value for one in found] == [b"done"]


def test_a_hanging_transaction_is_found_and_aborted(address: str) -> None:
    """No coordinator knows the transaction, as a producer without KIP-890 can leave it."""
    topic, transactional_id = new_topic(address), new_name("hanging")
    write_unknown_to_the_coordinator(address, topic, transactional_id)
    tool, place = (TRANSACTIONS, "--bootstrap-server", address), ("--topic", topic, "--partition", "0")
    (found,) = rows(ran(*tool, "find-hanging", *place))
    assert (found["Topic"], found["Partition"], found["StartOffset"]) == (topic, "0", "0")
    ran(*tool, "abort", *place, "--start-offset", found["StartOffset"])
    client = Librdkafka(address)
    client.produce(topic, "none", [Record(None, b"later")])
    (read,) = client.consume(topic, BEGINNING, 1, committed=True)
    assert read.record.value == b"later"


def write_unknown_to_the_coordinator(address: str, topic: str, transactional_id: str) -> None:
    with RawClient(int(address.rpartition(":")[2])) as raw:
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        until(lambda: raw.request(find, 3, FindCoordinatorResponse).error_code == ErrorCode.NONE)
        initial = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        mine = raw.request(initial, 4, InitProducerIdResponse)
        assert mine.error_code == ErrorCode.NONE
        records = encode_batch(
            [(None, b"hanging", (), NOW_MS - HOUR_MS)],
            producer_id=mine.producer_id,
            producer_epoch=mine.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=20_000, topic_data=topics)
        (part,) = raw.request(request, 9, ProduceResponse).responses[0].partition_responses
        assert part.error_code == ErrorCode.NONE


@pytest.mark.nightly
def test_performance_and_verifiable_consumers_read_all_records(address: str) -> None:
    topic = new_topic(address)
    at, named = ("--bootstrap-server", address), ("--topic", topic)
    number = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    ran(PRODUCER_PERFORMANCE, *at, *named, *number, "--transactional-id", new_name("transactional"))
    limit = ("--max-messages", "2000", "--group-id")
    measured, latency, *verified = all_ran(
        (CONSUMER_PERFORMANCE, *at, *named, "--num-records", "2000"),
        (END_TO_END_LATENCY, address, new_topic(address), "20", "all", "100"),
        (VERIFIABLE_CONSUMER, *at, *named, *limit, new_name("group")),
        (VERIFIABLE_CONSUMER, *at, *named, *limit, new_name("group"), "--group-protocol", "consumer"),
    )
    assert re.search(r", 2000, ", measured)
    assert "Avg latency" in latency
    for output in verified:
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 2000
        assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_transactional_copier_with_aborts_copies_each_record_once(address: str) -> None:
    source, sink, group = new_topic(address), new_topic(address), new_name("group")
    values = [b"%d" % number for number in range(500)]
    client = Librdkafka(address)
    client.produce(source, "none", [Record(None, value) for value in values])
    place = ("--broker-list", address, "--input-topic", source, "--input-partition", "0", "--output-topic", sink)
    how = ("--transaction-size", "50", "--enable-random-aborts", "--group-mode", "--use-group-metadata")
    ran(TRANSACTIONAL_COPIER, *place, *how, "--consumer-group", group, "--transactional-id", new_name("copier"))
    found = client.consume(sink, BEGINNING, len(values), committed=True)
    assert [one.record.value for one in found] == values
    assert client.committed(group, source)[0].offset == len(values)
