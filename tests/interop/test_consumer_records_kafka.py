"""Records of consumer-protocol groups in __consumer_offsets: Apache Kafka reads ours, and Odradek reads Kafka's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clients.group_members import Member, librdkafka, share
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs leave them out.
from kafka_peer import REAL_KAFKA, KafkaBroker, dump_log

from odradek.base.uuids import Uuid
from odradek.core.coordinators.state_log import NOBODY
from odradek.record.record_batch import iter_batches
from odradek.record.records import iter_records
from odradek.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from support.consumer_group import GROUP, Consumers, owned
from support.raw_client import RawClient

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("exchanges directories with a running Apache Kafka")]

PAYLOADS = re.compile(r"key: (\{.*\}) payload: (\{.*\}|<DELETE>|null)")
KINDS = {3, 5, 6, 7, 8, 16}


def test_kafka_reads_all_kinds_of_records(tmp_path: Path) -> None:
    broker = Consumers(tmp_path / "data")
    topic = broker.create("t", 2)
    broker.join("a", "t", instance_id="i", rack_id="r", server_assignor="range")
    broker.join("b", subscribed_topic_regex="t|u")
    broker.beat("a", 2, topic_partitions=owned(topic, 0, 1))
    broker.beat("a", 2, topic_partitions=owned(topic, 0))
    broker.beat("b", -1)
    broker.broker.stop(broker.now)
    (log,) = (tmp_path / "data").glob("__consumer_offsets-0/*.log")
    read = PAYLOADS.findall(dump_log(tmp_path, log, options=("--offsets-decoder",)))
    records = [(json.loads(key), json.loads(value) if value.startswith("{") else None) for key, value in read]
    assert {int(key["type"]) for key, _ in records} == KINDS
    by_kind = {int(key["type"]): value["data"] for key, value in records if value is not None}
    assert by_kind[3]["epoch"] == 4
    assert by_kind[6]["assignmentEpoch"] == 3
    assert by_kind[16]["topics"] == ["t"]
    (has,) = by_kind[8]["assignedPartitions"]
    assert by_kind[8]["memberEpoch"] == 3
    assert (has["partitions"], has["assignmentEpochs"]) == ([0], [2])
    removed = {key["data"]["memberId"] for key, value in records if value is None and "memberId" in key["data"]}
    assert removed == {"b"}


def test_odradek_reads_the_records_of_kafka(tmp_path: Path) -> None:
    settings = {"group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": "100"}
    how = {"group.id": GROUP, "group.protocol": "consumer"}
    with KafkaBroker(tmp_path / "kafka", settings=settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
        (made,) = admin.create_topics([NewTopic("t", 4, 1)]).values()
        made.result(60)
        with (
            Member(librdkafka, kafka.address, "t", how | {"group.instance.id": "i"}) as first,
            Member(librdkafka, kafka.address, "^t.*", how) as second,
        ):
            share([first, second], {f"t-{index}" for index in range(4)})
            described = describe(kafka.port)
    broker = Consumers(tmp_path / "ours")
    shard = broker.broker.groups.shards.shard(0)
    (log,) = kafka.data.glob("__consumer_offsets-0/*.log")
    for batch in iter_batches(log.read_bytes()):
        for record in iter_records(batch):
            assert record.key is not None
            shard.replay(record.key, record.value, NOBODY)
    kept = broker.group().kept
    assert (kept.epoch, kept.assigned.epoch) == (described.group_epoch, described.assignment_epoch)
    assert broker.group().state == described.group_state == "Stable"
    assert len(described.members) == 2
    for theirs in described.members:
        member = kept.members[theirs.member_id]
        assert member.current.epoch == theirs.member_epoch
        assert partitions(theirs.assignment) == {
            topic: set(epochs) for topic, epochs in member.current.assigned.items()
        }
        assert partitions(theirs.target_assignment) == kept.target_of(member.id)
        assert (member.said.instance_id, member.said.client_id) == (theirs.instance_id, theirs.client_id)
        assert sorted(member.said.topics) == sorted(theirs.subscribed_topic_names)
        assert member.said.regex == theirs.subscribed_topic_regex
    assert list(kept.regexes.values()) == [frozenset({"t"})]


def describe(port: int) -> DescribedGroup:
    with RawClient(port) as client:
        request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
        (group,) = client.request(request, 1, ConsumerGroupDescribeResponse).groups
    return group


def partitions(assignment: Assignment) -> dict[Uuid, set[int]]:
    return {Uuid(one.topic_id): set(one.partitions) for one in assignment.topic_partitions}
