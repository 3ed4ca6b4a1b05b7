"""The cluster for tests: several brokers, one of them the controller; any may stop, and all can restart."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from test_testing_plugin import run

from odradek.base.errors import ErrorCode, Refused
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.core.configs.definition import ConfigError
from odradek.net.shell import shell
from odradek.testing import BrokerFailed, Cluster
from odradek.testing import topic_queries as topics
from odradek.testing.embedded_member import Member
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.asking import leaders
from support.raw_client import RawClient
from support.waiting import until

SECONDS_MAX = 120
HOUR_MS = 3_600_000
NO_LEADER = -1
BROKER, SET = 4, 0  # A resource's type, and an operation.

ITS_TESTS = """
def test_one(kafka_cluster):
    kafka_cluster[1].kill()


def test_another(kafka_cluster):
    assert all(broker.is_running for broker in kafka_cluster)
    kafka_cluster.create_topic("orders")
    assert (kafka_cluster.directory / "broker1").exists()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def produce(address: str, topic: str, *values: bytes, partition: int = -1) -> None:
    """Write values, each acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": address, "topic.metadata.refresh.interval.ms": 1000})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert not any(errors), errors


def consume(address: str, topic: str, count: int, group: str = "readers") -> list[bytes]:
    """Read as a member of a group, which commits what it has read."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values = [value for message in messages(consumer, count) if (value := message.value()) is not None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def messages(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []

    def exist() -> bool:
        found.extend(one for one in consumer.consume(count - len(found), 1) if one.error() is None)
        return len(found) >= count

    until(exist)
    return found


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.address})


def folders(cluster: Cluster, topic: str) -> list[str]:
    """Return the folders of the topic's partitions, including those that are being deleted."""
    return sorted(str(path.relative_to(cluster.directory)) for path in cluster.directory.glob(f"broker*/{topic}-*"))


def number(message: Message) -> int:
    value = message.value()
    assert value is not None
    return int(value)


# Life cycle.


def test_one_line_starts_a_cluster() -> None:
    with Cluster() as cluster:
        assert cluster.address == cluster.bootstrap_servers == ",".join(broker.address for broker in cluster)
        assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
        assert cluster[2] is cluster.brokers[1]
        found = admin(cluster).list_topics(timeout=SECONDS_MAX)
        assert {f"{one.host}:{one.port}" for one in found.brokers.values()} == set(cluster.address.split(","))
        assert found.controller_id == cluster.controller.id
        directory = cluster.directory
        assert cluster[3].directory == directory / "broker3"
    assert not directory.exists()


def test_invalid_arguments_are_refused_at_once(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"^broker\.id is set by the test's cluster"):
        Cluster(broker_id=5)
    with pytest.raises(ConfigError):
        Cluster(num_partitions="many")
    with pytest.raises(ValueError, match="at least one broker, not 0"):
        Cluster(brokers=0)
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = Cluster().address
    with pytest.raises(IndexError, match="unknown broker 4"):
        _ = cluster[4]
    with pytest.raises(RuntimeError, match="already running"):
        cluster[1].start()


def test_a_cluster_may_have_one_broker() -> None:
    with Cluster(brokers=1) as cluster:
        assert cluster.controller is cluster[1]
        with pytest.raises(RuntimeError, match="no other broker"):
            cluster.move_controller()
        cluster.create_topic("orders")
        produce(cluster.address, "orders", b"one")
        cluster.restart()
        assert consume(cluster.address, "orders", 1) == [b"one"]


def test_a_restarted_cluster_keeps_its_data(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path, num_partitions=6) as cluster:
        cluster.create_topic("orders")
        produce(cluster.address, "orders", *(b"%d" % i for i in range(60)))
        cluster.stop()
        assert not list(tmp_path.glob("*.session-*")), "the session of a stopped broker"
        assert not any(broker.is_running for broker in cluster)
        cluster.start()
        assert cluster.topics() == ["orders"]
        cluster.kill()
        cluster.start()
        assert sorted(consume(cluster.address, "orders", 60), key=int) == [b"%d" % i for i in range(60)]
        assert cluster.topics() == ["orders"]
    with Cluster(directory=tmp_path) as cluster:
        assert cluster.topics() == ["orders"]
        assert sorted(consume(cluster.address, "orders", 60, "others"), key=int) == [b"%d" % i for i in range(60)]


def test_a_cluster_runs_in_a_coroutine() -> None:
    async def work() -> list[bytes | None]:
        async with Cluster() as cluster:
            cluster.create_topic("orders", partitions=3)
            async with AIOKafkaProducer(bootstrap_servers=cluster.address) as producer:
                for partition in range(3):
                    await producer.send_and_wait("orders", b"%d" % partition, partition=partition)
            ours = {"bootstrap_servers": cluster.address, "group_id": "readers", "auto_offset_reset": "earliest"}
            async with AIOKafkaConsumer("orders", **ours) as consumer:
                return sorted([(await consumer.getone()).value for _ in range(3)])

    assert asyncio.run(asyncio.wait_for(work(), SECONDS_MAX)) == [b"0", b"1", b"2"]


def test_a_failure_of_a_broker_is_raised(cluster: Cluster) -> None:
    def fail() -> None:
        raise AssertionError("broken on purpose")

    failing = cluster[2]
    failing._live()._loop.call_soon_threadsafe(fail)
    with pytest.raises(BrokerFailed, match="broken on purpose"):
        until(lambda: bool(cluster.check()))
    with pytest.raises(BrokerFailed, match="broken on purpose"):
        cluster.close()
    assert not any(broker.is_running for broker in (failing,))


def test_the_fixture_provides_a_cluster(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, test_one_py=ITS_TESTS)


# Clients.


def test_any_address_leads_to_all_partitions(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=6)
    assert set(leaders(cluster.controller.address, "orders").values()) == {1, 2, 3}
    for broker in cluster:
        assert leaders(broker.address, "orders") == leaders(cluster.controller.address, "orders")
        for partition in range(6):
            produce(broker.address, "orders", b"%d-%d" % (broker.id, partition), partition=partition)
    everything = sorted(b"%d-%d" % (broker.id, partition) for broker in cluster for partition in range(6))
    for broker in cluster:
        assert sorted(consume(broker.address, "orders", 18, f"readers-{broker.id}")) == everything


def test_kafka_python_uses_the_cluster(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    producer = KafkaProducer(bootstrap_servers=cluster.address.split(","))
    for partition in range(3):
        producer.send("orders", b"%d" % partition, partition=partition).get(SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.address.split(","),
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1000,
    )
    assert sorted(next(consumer).value for _ in range(3)) == [b"0", b"1", b"2"]
    consumer.close()


def test_groups_continue_over_restarts_of_their_coordinators(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    for group in range(6):  # Their coordinators are on several brokers.
        produce(cluster.address, "orders", b"one-%d" % group)
        assert len(consume(cluster.address, "orders", group + 1, f"group-{group}")) == group + 1
    for broker in cluster:
        broker.restart()
    for group in range(6):
        produce(cluster.address, "orders", b"more-%d" % group)
        found = consume(cluster.address, "orders", 6, f"group-{group}") if group == 0 else None
        assert found is None or b"one-0" not in found


def test_any_broker_auto_creates_topics(cluster: Cluster) -> None:
    controller = cluster.controller
    for broker in cluster:
        assert (broker is controller) == (broker.id == controller.id)
        produce(broker.address, f"made-by-{broker.id}", b"one")
        assert consume(cluster.address, f"made-by-{broker.id}", 1, f"group-{broker.id}") == [b"one"]
    assert cluster.topics() == ["made-by-1", "made-by-2", "made-by-3"]


def test_created_topics_are_known_to_all_brokers(cluster: Cluster) -> None:
    for turn in range(20):
        cluster.create_topic("again", partitions=4, configs={"retention.ms": 1000 + turn})
        assert [broker.topics() for broker in cluster] == [["again"]] * 3
        cluster.delete_topic("again")
        assert [broker.topics() for broker in cluster] == [[]] * 3
    cluster.create_topic("orders")
    with pytest.raises(Refused) as refused:
        cluster.create_topic("orders")
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(Refused) as refused:
        cluster.delete_topic("not-there")
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = next(broker for broker in cluster if broker is not cluster.controller)
    with pytest.raises(Refused) as refused:
        other.create_topic("elsewhere")
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


def test_a_change_is_answered_as_soon_as_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer waits for no other event on the broker: there is none here."""
    monkeypatch.setattr(shell, "HOUSEKEEPING_MS", HOUR_MS)
    monkeypatch.setattr(topics, "TIMEOUT_MS", HOUR_MS)
    with Cluster() as cluster:
        for turn in range(5):
            cluster.create_topic("orders", partitions=1 + turn)
            cluster.delete_topic("orders")


def test_partitions_are_added(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    client = admin(cluster)
    client.create_partitions([NewPartitions("orders", 7)])["orders"].result(SECONDS_MAX)
    until(lambda: all(len(leaders(broker.address, "orders")) == 7 for broker in cluster))
    for partition in range(7):
        produce(cluster.address, "orders", b"%d" % partition, partition=partition)
    assert sorted(consume(cluster.address, "orders", 7)) == [b"%d" % partition for partition in range(7)]
    assert len(folders(cluster, "orders")) == 7


def test_a_topics_configuration_is_altered(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    alter(cluster, "orders", "500")
    until(lambda: all(is_refused(cluster, partition) for partition in range(3)))
    assert described(cluster, "orders") == ["500"] * 3


def test_unreadable_config_notices_do_not_block_others(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    with SqliteTree(cluster.directory / METADATA_FILE) as tree:
        for name in ("config_change_x", "other"):
            tree.create(f"{layout.CONFIG_CHANGES}/{name}", b"?")
        for data in (b"?", layout.encode_config_change("topics/not-there"), layout.encode_config_change("users/x")):
            tree.create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", data, sequential=True)
    alter(cluster, "orders", "500")
    until(lambda: described(cluster, "orders") == ["500"] * 3)
    cluster.check()


def alter(cluster: Cluster, topic: str, message_bytes: str) -> None:
    """Set max.message.bytes."""
    entry = ConfigEntry("max.message.bytes", message_bytes, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = admin(cluster)
    client.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def described(cluster: Cluster, topic: str) -> list[str]:
    """Return the topic's max.message.bytes on each broker."""
    found = []
    for broker in cluster:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        client = AdminClient({"bootstrap.servers": broker.address})
        answered = client.describe_configs([resource], broker=int(broker.id))[resource].result(SECONDS_MAX)
        found.append(str(answered["max.message.bytes"].value))
    return found


def is_refused(cluster: Cluster, partition: int) -> bool:
    """Return whether a record of 1,000 bytes is too large."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.address})
    producer.produce("orders", b"x" * 1000, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    return errors[0] is not None and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_the_default_broker_configuration_is_altered(cluster: Cluster) -> None:
    small = AlterableConfig(name="message.max.bytes", config_operation=SET, value="500")
    for_all = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[small])
    with RawClient(cluster[2].port) as client:
        request = IncrementalAlterConfigsRequest(resources=[for_all], validate_only=False)
        assert client.request(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code == 0
    for broker in cluster:
        until(lambda broker=broker: message_bytes_max(broker) == "500")
    cluster.create_topic("orders", partitions=3)
    for partition in range(3):
        assert is_refused(cluster, partition)
    cluster.restart()
    assert [message_bytes_max(broker) for broker in cluster] == ["500"] * 3


def message_bytes_max(broker: Member) -> str:
    resource = ConfigResource(ResourceType.BROKER, str(broker.id))
    client = AdminClient({"bootstrap.servers": broker.address})
    return str(client.describe_configs([resource])[resource].result(SECONDS_MAX)["message.max.bytes"].value)


def test_a_fault_applies_to_one_broker(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    leader = cluster[leaders(cluster.controller.address, "orders")[0]]
    fault = leader.faults.answer("Produce", error="NOT_LEADER_OR_FOLLOWER")
    for partition in (1, 2, 0):
        assert fault.count == 0
        produce(cluster.address, "orders", b"one", partition=partition)
    assert fault.count == 1


# Brokers that stop and restart.


def test_the_controller_moves(cluster: Cluster) -> None:
    before = cluster.controller
    for _ in range(3):
        now = cluster.move_controller()
        assert now is not before
        assert cluster.controller is now
        assert admin(cluster).list_topics(timeout=SECONDS_MAX).controller_id == now.id
        cluster.create_topic(f"made-by-{len(cluster.topics())}", partitions=3)
        before = now
    assert cluster.topics() == ["made-by-0", "made-by-1", "made-by-2"]


def test_a_killed_controller_is_replaced(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    for partition in range(3):
        produce(cluster.address, "orders", b"%d" % partition, partition=partition)
    killed = cluster.controller
    its_own = killed.leaders("orders").index(killed.id)
    killed.kill()
    assert cluster.controller is not killed
    known = [broker for broker in cluster if broker.is_running]
    for broker in known:
        until(lambda broker=broker: leaders(broker.address, "orders")[its_own] == NO_LEADER)
    cluster.create_topic("later", partitions=4)
    assert killed.id not in leaders(known[0].address, "later").values()
    for partition in range(4):
        produce(known[1].address, "later", b"one", partition=partition)
    killed.start()
    until(lambda: leaders(cluster.controller.address, "orders")[its_own] == killed.id)
    assert sorted(consume(cluster.address, "orders", 3)) == [b"0", b"1", b"2"]
    assert sorted(cluster.topics()) == ["later", "orders"]


def test_stops_of_each_broker_keep_each_acknowledged_record_once(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=6)
    writing = BackgroundProducer(cluster.address, "orders")
    for _ in range(2):
        for broker in cluster:
            writing.wait_for_progress()
            broker.stop()
            cluster.controller  # noqa: B018  # Waits for one.
            writing.wait_for_progress()
            broker.start()
    writing.wait_for_progress()
    acknowledged = writing.end()
    found = Counter(map(number, everything(cluster.address, "orders", 6)))
    assert not [value for value in acknowledged if found[value] != 1]


def test_kills_of_each_broker_keep_each_acknowledged_record_once(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=6)
    writing = BackgroundProducer(cluster.address, "orders")
    for broker in cluster:
        writing.wait_for_progress()
        broker.kill()
        writing.wait_for_progress()
        broker.start()
    acknowledged = writing.end()
    found = Counter(map(number, everything(cluster.address, "orders", 6)))
    assert not [value for value in acknowledged if found[value] != 1]


def test_a_topic_is_deleted_while_a_broker_is_down() -> None:
    with Cluster(log_segment_delete_delay_ms=1) as cluster:
        cluster.create_topic("orders", partitions=6)
        produce(cluster.address, "orders", *(b"%d" % i for i in range(30)))
        down = next(broker for broker in cluster if broker is not cluster.controller)
        down.stop()
        cluster.delete_topic("orders")
        for broker in cluster:
            assert not broker.is_running or broker.topics() == []
        client = admin(cluster)
        with pytest.raises(KafkaException) as failed:
            client.create_topics([NewTopic("orders", 1, 1)])["orders"].result(SECONDS_MAX)
        assert failed.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        until(lambda: {folder.partition("/")[0] for folder in folders(cluster, "orders")} == {f"broker{down.id}"})
        cluster.move_controller()  # The remaining work is in the tree.
        down.start()
        until(lambda: not folders(cluster, "orders"))
        until(lambda: is_recreated(cluster, "orders"))
        produce(cluster.address, "orders", b"new", partition=0)
        assert consume(cluster.address, "orders", 1) == [b"new"]
        assert len(folders(cluster, "orders")) == 2


def test_a_topic_is_deleted_while_the_controller_stops(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=6)
    cluster.controller.stop()
    cluster.delete_topic("orders")
    cluster.start()
    until(lambda: not [folder for folder in folders(cluster, "orders") if not folder.endswith("-delete")])
    assert cluster.topics() == []
    assert [broker.topics() for broker in cluster] == [[]] * 3


def test_a_broker_registers_again_after_its_session_ended(cluster: Cluster) -> None:
    """The session ends as after a long silence; the broker then learns of the changes that it missed."""
    cluster.create_topic("orders", partitions=6)
    for turn, broker in enumerate((*cluster, cluster.controller)):
        epoch = end_session(cluster, broker)
        until(lambda broker=broker, epoch=epoch: registered(cluster, broker) > epoch)
        cluster.start()  # It returns when each broker knows all others again.
        assert cluster.controller.is_running
        for partition in range(6):
            produce(broker.address, "orders", b"%d" % turn, partition=partition)
        alter(cluster, "orders", str(1000 + turn))
        until(lambda turn=turn: described(cluster, "orders") == [str(1000 + turn)] * 3)
        cluster.create_topic(f"made-{turn}", partitions=3)
    assert len(consume(cluster.address, "orders", 24)) == 24


def end_session(cluster: Cluster, broker: Member) -> int:
    """End the broker's session; return the epoch of its registration."""
    with SqliteTree(cluster.directory / METADATA_FILE) as tree:
        stat = tree.exists(layout.broker(broker.id))
        assert stat is not None
        with tree._write() as writer:
            writer.end_session(stat.ephemeral_owner)
        return stat.czxid


def registered(cluster: Cluster, broker: Member) -> int:
    with SqliteTree(cluster.directory / METADATA_FILE) as tree:
        stat = tree.exists(layout.broker(broker.id))
        return -1 if stat is None else stat.czxid


def test_the_last_running_broker_becomes_the_controller(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    for partition in range(3):
        produce(cluster.address, "orders", b"%d" % partition, partition=partition)
    cluster[1].stop()
    cluster[2].kill()
    assert cluster.controller is cluster[3]
    until(lambda: sorted(set(leaders(cluster[3].address, "orders").values())) == [NO_LEADER, 3])
    cluster.create_topic("alone", partitions=2)
    assert set(leaders(cluster[3].address, "alone").values()) == {3}
    cluster.start()
    assert sorted(consume(cluster.address, "orders", 3)) == [b"0", b"1", b"2"]


def is_recreated(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.create_topic(topic, partitions=2)
    except Refused as refused:
        assert refused.code == ErrorCode.TOPIC_ALREADY_EXISTS
        return False
    return True


def everything(address: str, topic: str, partitions: int) -> list[Message]:
    """Return all records of a topic, up to its current ends."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    until(lambda: all(NO_LEADER not in leaders(one, topic).values() for one in address.split(",")))
    count = sum(consumer.get_watermark_offsets(place, timeout=SECONDS_MAX)[1] for place in places)
    consumer.assign(places)
    found = messages(consumer, count)
    consumer.close()
    return found


class BackgroundProducer:
    """An idempotent producer that keeps writing numbers in a thread, and its acknowledged ones."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 1,
                "topic.metadata.refresh.interval.ms": 500,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": SECONDS_MAX * 1000,
            }
        )
        self._acknowledged: list[int] = []
        self._errors: list[object] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        value = 0
        while not self._ended.is_set():
            if len(self._producer) < 1000:
                self._producer.produce(self._topic, b"%d" % value, on_delivery=self._delivered)
                value += 1
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged.append(number(message))
        else:
            self._errors.append(error)

    def wait_for_progress(self) -> None:
        """Wait until some more are acknowledged."""
        before = len(self._acknowledged)
        until(lambda: bool(self._errors) or len(self._acknowledged) >= before + 20)

    def end(self) -> list[int]:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0
        assert not self._errors
        return self._acknowledged
