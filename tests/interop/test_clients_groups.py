"""Group members of every client: their partitions, complete records, and the start of the next member."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from clients.client import SECONDS_MAX
from clients.fixtures import BROKERS, opened
from clients.groups import Group
from clients.librdkafka import Librdkafka
from clients.members import Way
from clients.registry import ADMINISTRATORS, WAYS, WITHOUT_INSTANCES, Opened, lacks, parameter
from confluent_kafka import Consumer, TopicPartition

PARTITIONS = 4
EACH = 10  # Records of a partition.
CLOSE_SECONDS_MAX = 20
WITHOUT_METADATA = {"kcat", "kafka-go"}
# When stopped, it commits a record that it does not return any more.
SWALLOWS = {"kcat"}


@pytest.fixture(scope="module", params=BROKERS)
def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(request.param, tmp_path_factory.mktemp("groups")) as those:
        yield those


EACH_WAY = [
    pytest.param(name, way, marks=parameter(name).marks, id=f"{name}-{way}")
    for name, ways in WAYS.items()
    for way in ways
]


@pytest.mark.parametrize(("name", "way"), EACH_WAY)
def test_members_join_and_leave_without_losing_records(clients: Opened, name: str, way: Way) -> None:
    client = clients[name]
    with Group(clients.address, PARTITIONS) as group:
        first, _ = group.join(client, way), group.join(client, way)
        owned = group.settled()
        group.write(EACH)
        assert group.has_read_all() == Counter(group.written), "each of them once"
        assert {member: frozenset(one.partition for one in group.places(member)) for member in owned} == owned
        with group.writing():
            group.join(client, way)
            group.settled()
            if name not in SWALLOWS:
                group.leave(first)
                group.settled()
        group.has_read_all()
        group.leave_all()
        check_resumes(clients, group, name, way)


# Its leave request does not name its instance, so the broker refuses it, and keeps the member's place.
LEAVES_WITHOUT_ITS_NAME = ("franz-go", "consumer")
STATIC_WAYS = [
    pytest.param(name, way, marks=parameter(name).marks, id=f"{name}-{way}")
    for name, ways in WAYS.items()
    for way in ways
    if name not in WITHOUT_INSTANCES and way in ("range", "consumer") and (name, way) != LEAVES_WITHOUT_ITS_NAME
]


@pytest.mark.parametrize(("name", "way"), STATIC_WAYS)
def test_a_static_member_returns_to_its_partitions(clients: Opened, name: str, way: Way) -> None:
    client = clients[name]
    with Group(clients.address, PARTITIONS) as group:
        stays, leaves = group.join(client, way, "stays"), group.join(client, way, "goes")
        owned = group.settled()
        group.write(EACH)
        assert group.has_read_all() == Counter(group.written)
        group.leave(leaves)
        group.write(EACH)
        assert group.join(client, way, leaves) == leaves
        assert group.has_read_all() == Counter(group.written), "each of them once"
        assert group.settled() == owned
        assert {place.partition for place in group.places(stays)} == owned[stays]


# It declares version 1 of its subscription and leaves out fields of that version: no other client can read it.
HALF_A_SUBSCRIPTION = {"kafka-go"}


@pytest.mark.parametrize("way", ["range", "cooperative-sticky", "consumer"])
def test_different_clients_share_a_group(clients: Opened, way: Way) -> None:
    names = [name for name, ways in WAYS.items() if way in ways and name not in HALF_A_SUBSCRIPTION and not lacks(name)]
    with Group(clients.address, len(names) + 1) as group:
        members = [group.join(clients[name], way) for name in names]
        owned = group.settled()
        group.write(EACH)
        assert group.has_read_all() == Counter(group.written), "each of them once"
        assert {member: frozenset(one.partition for one in group.places(member)) for member in owned} == owned
        with group.writing():
            group.leave(members[0])
            group.settled()
        group.has_read_all()


@pytest.mark.parametrize("name", [parameter("confluent-kafka"), parameter("java-4.4.0"), parameter("franz-go")])
def test_a_group_migrates_to_the_consumer_protocol_and_back(clients: Opened, name: str) -> None:
    """The group has members of both protocols in between."""
    old, new = clients["kafka-python"], clients[name]
    with Group(clients.address, PARTITIONS) as group:
        first, second = group.join(old, "range"), group.join(old, "range")
        group.settled()
        with group.writing():
            third = group.join(new, "consumer")
            group.settled()
            group.leave(first)
            group.settled()
            group.leave(second)
            group.settled()
            group.join(old, "range")
            group.settled()
            group.leave(third)
            group.settled()
        group.has_read_all()


def test_a_consumer_with_manual_assignment_commits_on_close(clients: Opened) -> None:
    """With librdkafka's defaults. Without a coordinator it would wait for one for three quarters of a minute."""
    with Group(clients.address, 1) as group:
        group.write(EACH)
        consumer = Consumer({"bootstrap.servers": clients.address, "group.id": group.name})
        consumer.assign([TopicPartition(group.topic, 0, 0)])
        assert len(consumer.consume(EACH, SECONDS_MAX)) == EACH
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < CLOSE_SECONDS_MAX
        committed = clients.administrator("confluent-kafka").committed(group.name, group.topic)
        assert committed[0].offset == EACH


def check_resumes(clients: Opened, group: Group, name: str, way: Way) -> None:
    """Check that the next member begins exactly at the committed offsets."""
    teller = clients.administrator(name) if name in ADMINISTRATORS else Librdkafka(clients.address)
    committed = teller.committed(group.name, group.topic)
    assert committed.keys() == group.partitions
    if name not in WITHOUT_METADATA:
        assert {one.metadata for one in committed.values()} <= {f"read by {member}" for member in group.names}
    group.write(1)
    next_one = group.join(clients[name], way)
    group.has_read_all()
    firsts = {place.partition: place.offset for place in reversed(group.places(next_one))}
    assert firsts == {partition: one.offset for partition, one in committed.items()}
