"""`odradek serve --brokers 3`: brokers killed, stopped or paused under clients that notice nothing."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, product
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]

from support.asking import leaders
from support.certificates import PASSWORD, Authority, written
from support.faults import Faults, Operations
from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

PARTITIONS = 6
SET = AlterConfigOpType.SET


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServingCluster]:
    with ServingCluster(tmp_path) as running:
        yield running
    assert "Traceback" not in running.errors()
    assert " ERROR " not in running.errors()


def admin(cluster: ServingCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})


def create(cluster: ServingCluster, topic: str, partitions: int = PARTITIONS) -> None:
    client = admin(cluster)
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS_MAX)


def has_created(cluster: ServingCluster, topic: str) -> bool:
    """Create the topic and return True, or return False while the name is taken."""
    try:
        create(cluster, topic)
    except KafkaException as failed:
        assert failed.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        return False
    return True


def until_leaders(cluster: ServingCluster, broker: int, expected: set[int]) -> None:
    """Wait until these brokers lead the topic t, -1 for none, as one of the brokers knows it."""
    until(lambda: set(leaders(cluster.address_of(broker), "t").values()) == expected)


def controller(cluster: ServingCluster) -> int:
    found: int = admin(cluster).list_topics(timeout=SECONDS_MAX).controller_id
    return found


def read(cluster: ServingCluster, topic: str, count: int) -> list[bytes]:
    """Return all values of a topic, at least `count`, as read by a new group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    while (message := consumer.poll(SECONDS_MAX if len(values) < count else 2)) is not None:
        if message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


class Writing:
    """A producer that writes until it is stopped, and its acknowledged records."""

    def __init__(self, cluster: ServingCluster, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.address,
                "enable.idempotence": True,
                "message.timeout.ms": SECONDS_MAX * 1000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._stopped = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0.002)
        assert self._producer.flush(SECONDS_MAX) == 0

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]
        else:
            self.failed.append(error)

    def is_making_progress(self) -> bool:
        """Return whether many more records were acknowledged in all partitions."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > before + 100 * PARTITIONS)
        return True

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(SECONDS_MAX)
        assert not self.failed, self.failed[:3]


def test_kills_of_each_broker_lose_and_duplicate_no_record(cluster: ServingCluster) -> None:
    assert sorted(cluster.lines) == [f"ready PLAINTEXT://localhost:{cluster.port + number}\n" for number in range(3)]
    create(cluster, "t")
    until_leaders(cluster, 1, {1, 2, 3})
    writing = Writing(cluster, "t")
    try:
        assert writing.is_making_progress()
        first = controller(cluster)
        for broker in (first, *({1, 2, 3} - {first})):
            cluster.kill(broker)
            assert writing.is_making_progress()
    finally:
        writing.stop()
    for broker_id in (1, 2, 3):
        until_leaders(cluster, broker_id, {1, 2, 3})
    found = Counter(read(cluster, "t", len(writing.acknowledged)))
    assert found == Counter(writing.acknowledged)


def test_killing_the_first_process_ends_all_brokers(tmp_path: Path) -> None:
    cluster = ServingCluster(tmp_path).start()
    pids = cluster.pids()
    assert len(pids) == 3
    os.kill(cluster.pid, signal.SIGKILL)
    until(lambda: not any(_runs(pid) for pid in pids.values()))
    with cluster:  # On the same data, on the same ports.
        create(cluster, "t")
    assert "Traceback" not in cluster.errors()


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_stop_ends_all_brokers_and_keeps_the_records(tmp_path: Path) -> None:
    cluster = ServingCluster(tmp_path)
    with cluster:
        create(cluster, "t")
        writing = Writing(cluster, "t")
        assert writing.is_making_progress()
        writing.stop()
        pids = cluster.pids()
        assert cluster.stop() == 0
        assert not any(_runs(pid) for pid in pids.values())
    with cluster:
        assert Counter(read(cluster, "t", len(writing.acknowledged))) == Counter(writing.acknowledged)


def test_a_paused_broker_returns_after_its_session_ended(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, configs={"zookeeper.session.timeout.ms": "2000"}) as cluster:
        create(cluster, "t")
        for paused in (controller(cluster), *({1, 2, 3} - {controller(cluster)})):
            other = 1 if paused != 1 else 2
            cluster.signal(paused, signal.SIGSTOP)
            until_leaders(cluster, other, {-1, 1, 2, 3} - {paused})
            cluster.signal(paused, signal.SIGCONT)
            for broker_id in (1, 2, 3):
                until_leaders(cluster, broker_id, {1, 2, 3})
        writing = Writing(cluster, "t")
        assert writing.is_making_progress()
        writing.stop()
        assert Counter(read(cluster, "t", len(writing.acknowledged))) == Counter(writing.acknowledged)
        assert len(cluster.lines) == 3, "no process was started again"
    assert "Traceback" not in cluster.errors()


def test_a_topic_is_deleted_while_one_of_its_brokers_is_down(cluster: ServingCluster) -> None:
    create(cluster, "t")
    down = next(broker for broker in (1, 2) if broker != controller(cluster))
    directory = cluster.directory / "data" / f"broker{down}"
    until(lambda: any(directory.glob("t-[0-9]")))
    cluster.signal(down, signal.SIGSTOP)  # For the others it stays alive, and it answers no request.
    client = admin(cluster)
    deleted = client.delete_topics(["t"])["t"]
    until(lambda: not any(leaders(cluster.address_of(broker_id), "t") for broker_id in (1, 2, 3) if broker_id != down))
    deleted.result(SECONDS_MAX)
    cluster.signal(down, signal.SIGKILL)
    until(lambda: not any(directory.glob("t-[0-9]")))
    until(lambda: has_created(cluster, "t"))  # The name is free once the controller has learned of the deletion.
    until_leaders(cluster, down, {1, 2, 3})


def test_partitions_are_added_by_a_new_controller(cluster: ServingCluster) -> None:
    create(cluster, "t", 2)
    cluster.kill(controller(cluster))
    client = admin(cluster)
    client.create_partitions([NewPartitions("t", 5)])["t"].result(SECONDS_MAX)
    until(lambda: all(len(leaders(cluster.address_of(broker_id), "t")) == 5 for broker_id in (1, 2, 3)))
    for broker_id in (1, 2, 3):
        until_leaders(cluster, broker_id, {1, 2, 3})


def test_brokers_use_mutual_tls_with_each_other(tmp_path: Path) -> None:
    authority = Authority()
    known = authority.known("localhost")
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(tmp_path / "broker.pem", known.encrypted_key() + known.chain),
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": written(tmp_path / "authority.pem", authority.pem),
        "ssl.client.auth": "required",
    }
    configs = {**stores, "security.inter.broker.protocol": "SSL", "num.partitions": "3"}
    client = {
        "bootstrap.servers": "",
        "security.protocol": "SSL",
        "ssl.ca.pem": authority.pem,
        "ssl.certificate.pem": known.chain,
        "ssl.key.pem": known.pkcs8_key(),
        "ssl.key.password": PASSWORD,
    }
    with ServingCluster(tmp_path, configs=configs, protocol="SSL") as cluster:
        client["bootstrap.servers"] = cluster.address
        producer = Producer({**client, "message.timeout.ms": SECONDS_MAX * 1000})
        ends: list[object] = []
        for number in range(30):
            producer.produce(f"t{number % 3}", b"%d" % number, on_delivery=lambda error, _: ends.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        assert ends == [None] * 30
        found = AdminClient(client).list_topics(timeout=SECONDS_MAX).topics.values()
        assert {one.leader for topic in found for one in topic.partitions.values()} == {1, 2, 3}
    assert "Traceback" not in cluster.errors()


def test_partitions_in_a_failed_directory_have_no_leader(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    cluster = ServingCluster(tmp_path, configs={"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    cluster.environment = faults.environment
    with cluster:
        create(cluster, "t", 12)
        until_leaders(cluster, 1, {1, 2, 3})
        until(lambda: sum(1 for _ in (tmp_path / "b" / "broker2").glob("t-*[0-9]")) == 2)
        lost = {int(path.name.removeprefix("t-")) for path in (tmp_path / "b" / "broker2").glob("t-*[0-9]")}
        faults.fail(Operations.ALL, "b/broker2")
        producer = Producer({"bootstrap.servers": cluster.address, "log_level": 0, "message.timeout.ms": 1_000})
        for number in lost:
            producer.produce("t", b"in vain", partition=number)
        producer.flush(SECONDS_MAX)
        for broker_id in (1, 2, 3):
            until_leaders(cluster, broker_id, {-1, 1, 2, 3})
            found = leaders(cluster.address_of(broker_id), "t")
            assert {number for number, leader in found.items() if leader == -1} == lost
        faults.repair()
        cluster.kill(2)
        for broker_id in (1, 2, 3):
            until_leaders(cluster, broker_id, {1, 2, 3})
    assert "Traceback" not in cluster.errors()


def test_a_topic_configuration_applies_on_every_broker(cluster: ServingCluster) -> None:
    topics = [f"t{number}" for number in range(20)]  # All brokers might learn of a single topic before it is altered.
    client = admin(cluster)
    for topic in topics:
        create(cluster, topic)
        (altered,) = client.incremental_alter_configs(
            [
                ConfigResource(
                    ConfigResource.Type.TOPIC,
                    topic,
                    incremental_configs=[ConfigEntry("max.message.bytes", "1000", incremental_operation=SET)],
                )
            ]
        ).values()
        altered.result(SECONDS_MAX)
    producer = Producer(
        {"bootstrap.servers": cluster.address, "log_level": 0, "message.timeout.ms": SECONDS_MAX * 1000}
    )
    for topic, partition in product(topics, range(PARTITIONS)):

        def is_refused(topic: str = topic, partition: int = partition) -> bool:
            ends: list[KafkaError | None] = []
            producer.produce(topic, b"x" * 2_000, partition=partition, on_delivery=lambda error, _: ends.append(error))
            assert producer.flush(SECONDS_MAX) == 0
            return ends[0] is not None and ends[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

        until(is_refused)


class Churn:
    """A client that creates topics, writes to them and deletes them as fast as it can, and ignores failures."""

    def __init__(self, cluster: ServingCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._stopped = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client = admin(self._cluster)
        for number in cycle(range(3)):
            if self._stopped.is_set():
                return
            topic = f"{self._name}-{number}"
            with suppress(KafkaException):
                client.create_topics([NewTopic(topic, 20, 1)], request_timeout=10)[topic].result()
            producer = Producer({"bootstrap.servers": self._cluster.address, "log_level": 0})
            for _ in range(100):
                producer.produce(topic, b"thrown away")
            producer.poll(0.2)
            with suppress(KafkaException):
                client.delete_topics([topic], request_timeout=10)[topic].result()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(SECONDS_MAX)


def disturbed(folder: Path, seconds: float, seed: int) -> None:
    """Kill and pause brokers while topics come and go; check a bystander's acknowledged records."""
    random = Random(seed)
    with ServingCluster(folder, configs={"zookeeper.session.timeout.ms": "2000"}) as cluster:
        create(cluster, "t")
        writing = Writing(cluster, "t")
        churns = [Churn(cluster, name) for name in ("a", "b", "c")]
        until_end = time.monotonic() + seconds
        while time.monotonic() < until_end:
            time.sleep(random.uniform(0.5, 2))
            broker = random.choice((1, 2, 3))
            if random.random() < 0.6:
                cluster.kill(broker)
            else:
                cluster.signal(broker, signal.SIGSTOP)
                time.sleep(random.uniform(0.5, 4))
                cluster.signal(broker, signal.SIGCONT)
        for churn in churns:
            churn.stop()
        assert writing.is_making_progress()
        writing.stop()
        create(cluster, "last")
        assert Counter(read(cluster, "t", len(writing.acknowledged))) == Counter(writing.acknowledged)
    assert "Traceback" not in cluster.errors()
    assert " ERROR " not in cluster.errors()


@pytest.mark.nightly
def test_topics_are_created_and_deleted_while_brokers_fail(tmp_path: Path) -> None:
    disturbed(tmp_path, 8, 16)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_topics_are_created_and_deleted_for_long_while_brokers_fail(tmp_path: Path, seed: int) -> None:
    disturbed(tmp_path, 60, seed)
