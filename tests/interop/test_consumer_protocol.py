"""Groups of the consumer protocol (KIP-848) with clients that support it: librdkafka, and Java's of 4.3.0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from clients.group_members import Command, Member, java, librdkafka, share, until
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs leave them out.
from kafka_peer import REAL_KAFKA

from support.serving import Serving, serving

PARTITIONS = 4
SETTINGS = {
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_session_timeout_ms": "6000",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_min_session_timeout_ms": "1000",
    "group_initial_rebalance_delay_ms": "0",
}
NEW = {"group.protocol": "consumer"}
# librdkafka has no cooperative assignor in common with the Java client; these two are the same in both.
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
CLASSIC_OF = {
    librdkafka: CLASSIC | {"partition.assignment.strategy": "range"},
    java: CLASSIC | {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
}
CLIENTS = [pytest.param(librdkafka, id="librdkafka"), pytest.param(java, id="java", marks=REAL_KAFKA)]
BOTH = pytest.param((librdkafka, java), id="both", marks=REAL_KAFKA)
CREATE_SECONDS_MAX = 60


class Group:
    """A group's members, its topic and the records written to it."""

    def __init__(self, broker: Serving, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.id = f"group-of-{topic}"
        self._producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        self._values = count()
        self.written: list[str] = []
        self.members: list[Member] = []
        self.create(topic)

    @property
    def partitions(self) -> set[str]:
        return {f"{self.topic}-{index}" for index in range(PARTITIONS)}

    def create(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
        made.result(CREATE_SECONDS_MAX)

    def start(self, command: Command, how: dict[str, str], subscription: str = "") -> Member:
        settings = {"group.id": self.id, "auto.offset.reset": "earliest", "enable.auto.commit": "false", **how}
        member = Member(command, self.broker.address, subscription or self.topic, settings)
        self.members.append(member)
        return member

    def write(self, records: int = 40) -> None:
        for _ in range(records):
            number = next(self._values)
            self.written.append(str(number))
            self._producer.produce(self.topic, str(number).encode(), partition=number % PARTITIONS)
        assert self._producer.flush(60) == 0

    def all_is_read(self) -> None:
        """Wait until the members have read and committed all records."""
        until(lambda: self._read() == set(self.written), lambda: sorted(set(self.written) - self._read(), key=int))
        until(lambda: self._committed() == len(self.written), lambda: (self._committed(), len(self.written)))

    def _read(self) -> set[str]:
        return {value for member in self.members for value in member.read}

    def was_read_once(self) -> bool:
        return sum(len(member.read) for member in self.members) == len(self.written)

    def _committed(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.id)]).values()
        return sum(one.offset for one in listed.result(60).topic_partitions if one.topic == self.topic)

    def is_classic(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        groups = admin.list_consumer_groups().result(60).valid
        (type_of_it,) = [one.type.name for one in groups if one.group_id == self.id]
        return bool(type_of_it == "CLASSIC")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("broker"), **SETTINGS) as running:
        yield running
        assert "Traceback" not in running.errors()


@pytest.fixture
def group(broker: Serving, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(broker, request.node.name.replace("[", "-").replace("]", ""))
    yield made
    for member in made.members:
        member.kill()


@pytest.mark.parametrize(
    "commands", [*[pytest.param((one.values[0],) * 2, id=one.id, marks=one.marks) for one in CLIENTS], BOTH]
)
def test_members_share_and_hand_over_partitions(group: Group, commands: tuple[Command, Command]) -> None:
    first = group.start(commands[0], NEW)
    share([first], group.partitions)
    group.write()
    group.all_is_read()
    second = group.start(commands[1], NEW)
    share([first, second], group.partitions)
    group.write()
    group.all_is_read()
    first.close()
    share([second], group.partitions)
    group.write()
    group.all_is_read()
    assert group.was_read_once()


@pytest.mark.share(2)
@pytest.mark.parametrize("command", CLIENTS)
def test_a_member_that_dies_is_replaced(group: Group, command: Command) -> None:
    first, second = group.start(command, NEW), group.start(command, NEW)
    share([first, second], group.partitions)
    first.kill()
    group.write()
    share([second], group.partitions)
    group.all_is_read()


@pytest.mark.parametrize("command", CLIENTS)
def test_a_static_member_returns_to_its_partitions(group: Group, command: Command) -> None:
    first = group.start(command, NEW | {"group.instance.id": "one"})
    second = group.start(command, NEW | {"group.instance.id": "two"})
    share([first, second], group.partitions)
    had, others = set(first.assigned), set(second.assigned)
    first.close()
    again = group.start(command, NEW | {"group.instance.id": "one"})
    share([again, second], group.partitions)
    assert again.assigned == had
    assert second.assigned == others
    assert sum(line.startswith("revoked") for line in second.output) <= 1  # The half that the first one received.


@pytest.mark.parametrize("command", CLIENTS)
def test_a_pattern_matches_a_topic_created_later(group: Group, command: Command) -> None:
    member = group.start(command, NEW, f"^{group.topic}.*")
    share([member], group.partitions)
    later = f"{group.topic}-later"
    group.create(later)
    share([member], group.partitions | {f"{later}-{index}" for index in range(PARTITIONS)})


@pytest.mark.share(2)
@pytest.mark.parametrize("command", CLIENTS)
def test_a_group_survives_a_kill_of_its_coordinator(tmp_path: Path, command: Command) -> None:
    with serving(tmp_path, **SETTINGS) as running:
        group = Group(running, "killed")
        try:
            first, second = group.start(command, NEW), group.start(command, NEW)
            share([first, second], group.partitions)
            group.write()
            for _ in range(3):
                running.kill()
                running.start()
                group.write()
                group.all_is_read()
            share([first, second], group.partitions)
            second.close()
            share([first], group.partitions)
        finally:
            for member in group.members:
                member.kill()
        assert "Traceback" not in running.errors()


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "commands", [*[pytest.param((one.values[0],) * 2, id=one.id, marks=one.marks) for one in CLIENTS], BOTH]
)
def test_an_active_group_migrates_and_back(group: Group, commands: tuple[Command, Command]) -> None:
    old, other = (group.start(command, CLASSIC_OF[command]) for command in commands)
    share([old, other], group.partitions)
    group.write()
    group.all_is_read()
    assert group.is_classic()
    new = group.start(commands[1], NEW)
    share([old, other, new], group.partitions)
    assert not group.is_classic()
    group.write()
    group.all_is_read()
    old.close()
    newer = group.start(commands[0], NEW)
    share([other, new, newer], group.partitions)
    group.write()
    group.all_is_read()
    new.close()
    newer.close()
    share([other], group.partitions)
    assert group.is_classic()
    group.write()
    group.all_is_read()


def test_an_administrator_describes_the_group(group: Group) -> None:
    member = group.start(librdkafka, NEW | {"client.id": "me"})
    share([member], group.partitions)
    admin = AdminClient({"bootstrap.servers": group.broker.address, "log_level": 0})
    (described,) = admin.describe_consumer_groups([group.id]).values()
    seen = described.result(60)
    assert (seen.state.name, seen.type.name, seen.partition_assignor) == ("STABLE", "CONSUMER", "uniform")
    (one,) = seen.members
    assert one.client_id == "me"
    assert {f"{part.topic}-{part.partition}" for part in one.assignment.topic_partitions} == group.partitions
    member.close()
    (described,) = admin.describe_consumer_groups([group.id]).values()
    assert described.result(60).state.name == "EMPTY"
