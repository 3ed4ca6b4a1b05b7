"""The command line on a cluster of three Apache Kafka brokers: each request goes to the broker that can answer it.

Tests leave the cluster whole; those that kill or stop a broker come last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from client_peers import quick_config
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_cluster import NODES, KafkaCluster
from kafka_peer import REAL_KAFKA

from odradek.app.commands.cluster_command import UNAVAILABLE
from odradek.app.main import main
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.replica_status import log_ends, min_insync_replicas
from odradek.client.cluster.cluster import Cluster
from odradek.client.consumer.group_offsets import Committed, commit_offsets
from odradek.client.producer.delivery import produce
from odradek.client.producer.idempotence import Sequences
from odradek.client.producer.producer import Producer, now_ms
from odradek.client.producer.transactional import TransactionalProducer
from odradek.record.builder import encode_batch
from support.terminals import own
from support.waiting import SECONDS_MAX, until

pytestmark = [
    *REAL_KAFKA,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.own_peer("commands against brokers of Apache Kafka"),
]

LED = 3  # Partitions of `topic`: the first is led by broker 1, the second by broker 2, the third by broker 3.
ON_ALL = set(NODES)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def cluster(kafka: KafkaCluster) -> Iterator[Cluster]:
    with Cluster(quick_config(kafka[1].address)) as connected:
        yield connected.connect()


def created(kafka: KafkaCluster, assignment: list[list[int]]) -> str:
    name = f"t-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka.addresses, "log_level": 0})
    topic = NewTopic(name, len(assignment), replica_assignment=assignment)
    for future in admin.create_topics([topic]).values():
        future.result(SECONDS_MAX)
    kafka.await_brokers(NODES)
    return name


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """Create a topic whose partitions are on one broker each."""
    return created(kafka, [[1], [2], [3]])


class Outcome:
    """The output and the status of a command."""

    def __init__(self, capfd: pytest.CaptureFixture[str], address: str, *arguments: str) -> None:
        capfd.readouterr()
        self.status = main([*arguments, "-b", address])
        captured = capfd.readouterr()
        self.out, self.err = captured.out, own(captured.err)

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """A runner of commands that bootstraps from the next broker each time."""

    def __init__(self, kafka: KafkaCluster, capfd: pytest.CaptureFixture[str], nodes: Iterable[int] = NODES) -> None:
        self._addresses = [kafka[node].address for node in nodes]
        self._capfd = capfd

    def __call__(self, *arguments: str, status: int = 0) -> Outcome:
        self._addresses.append(self._addresses.pop(0))
        outcome = Outcome(self._capfd, self._addresses[-1], *arguments)
        assert outcome.status == status, (arguments, outcome.out, outcome.err)
        return outcome

    def at_each(self, *arguments: str) -> list[Any]:
        """Run a command at each broker in turn, and return its output, which is the same at all of them."""
        found = [self(*arguments, "--json").json for _ in self._addresses]
        assert all(each == found[0] for each in found)
        assert isinstance(found[0], list)
        return found[0]


@pytest.fixture
def run(kafka: KafkaCluster, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(kafka, capfd)


def at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def filled(cluster: Cluster, topic: str, records: int = 10) -> None:
    with Producer(cluster) as producer:
        for number in range(records):
            for partition in range(LED):
                producer.send(topic, b"%d-%d" % (partition, number), partition=partition)


def test_topics_are_the_same_from_every_bootstrap_broker(kafka: KafkaCluster, run: Terminal) -> None:
    names = [f"t-{uuid4().hex[:12]}" for _ in NODES]
    for name in names:
        run("topic", "create", name, "-p", "3", "-r", "3", "-c", "retention.ms=3600000")
        run("topic", "grow", name, "-p", "4")
        run("topic", "config", name, "--set", "retention.ms=7200000")
    kafka.await_brokers(NODES)
    assert {each["topic"]: each["partitions"] for each in run.at_each("topic", "list")} == dict.fromkeys(names, 4)
    for each in run.at_each("topic", "describe", *names):
        assert [set(part["isr"]) for part in each["partitions"]] == [ON_ALL] * 4
        assert each["configs"]["retention.ms"] == "7200000"
    for name in names:
        run("topic", "delete", name)
    kafka.await_brokers(NODES)
    assert run.at_each("topic", "list") == []


def test_records_are_read_from_every_leader(run: Terminal, cluster: Cluster, topic: str) -> None:
    filled(cluster, topic)
    (described,) = run.at_each("topic", "describe", topic)
    assert [(each["leader"], each["end_offset"]) for each in described["partitions"]] == [(1, 10), (2, 10), (3, 10)]
    assert len(run("consume", topic).out.split()) == 30
    trimmed = run("topic", "trim", topic, "--before-offset", "4", "--execute", "--json").json
    assert [each["new"] for each in trimmed] == [4, 4, 4]
    assert len(run("consume", topic).out.split()) == 18
    segments = run("topic", "segments", topic, "--json").json
    assert [(each["partition"], each["end_offset"]) for each in segments] == [(0, 10), (1, 10), (2, 10)]
    refused = run("topic", "compact", topic, status=1).err
    assert refused.count("is not an Odradek broker") == len(NODES)


def test_groups_are_listed_from_every_coordinator(
    kafka: KafkaCluster, run: Terminal, cluster: Cluster, topic: str
) -> None:
    filled(cluster, topic)
    names = [f"g{number}-{topic}" for number in range(9)]
    for name in names:
        commit_offsets(cluster, name, {at(topic, partition): Committed(7) for partition in range(LED)})
    modern = Consumer(
        {"bootstrap.servers": kafka.addresses, "group.id": f"modern-{topic}", "group.protocol": "consumer"}
    )
    try:
        modern.subscribe([topic])
        until(lambda: modern.poll(0.2) is not None or len(modern.assignment()) == LED)
        listed = {each["group"]: each for each in run.at_each("group", "list") if topic in each["group"]}
        assert set(listed) == {*names, f"modern-{topic}"}
        assert len({each["coordinator"] for each in listed.values()} & ON_ALL) > 1
        described = run("group", "describe", *listed, "--json").json
        for each in described:
            assert each["coordinator"]["id"] == listed[each["group"]]["coordinator"]
            assert [part["end"] for part in each["offsets"]] == [10, 10, 10]
        assert {each["group"]: each["type"] for each in described}[f"modern-{topic}"] == "consumer"
    finally:
        modern.close()
    run("group", "reset-offsets", *names, "--topic", topic, "--to-offset", "3", "--execute")
    lags = [part["lag"] for each in run("group", "describe", *names, "--json").json for part in each["offsets"]]
    assert lags == [7] * len(names) * LED
    for name in names[:3]:
        run("group", "delete-offsets", name, "--topic", f"{topic}:0,1")
    (described,) = run("group", "describe", names[0], "--json").json
    assert [part["partition"] for part in described["offsets"]] == [2]
    mixed = run("group", "describe", names[0], "nobody", names[1], "--json", status=1)
    assert [each["group"] for each in mixed.json] == [names[0], names[1]], "what could be described is"
    assert "group nobody" in mixed.err
    assert run("group", "delete", *names).out.count("deleted") == len(names)
    assert not [each for each in run.at_each("group", "list") if each["group"] in names]


class Careless(Sequences):
    """Identity of an old producer whose coordinator forgot the transaction, so that nothing ends it."""

    transactional_id = "careless"
    produce_version_max = 11  # Later ones join the transaction by themselves.


def test_transactions_are_listed_from_every_coordinator(run: Terminal, cluster: Cluster, topic: str) -> None:
    ids = [f"id{number}-{topic}" for number in range(9)]
    producers = {name: TransactionalProducer(cluster, name) for name in ids}
    for producer in producers.values():
        producer.begin_transaction()
        for partition in range(LED):
            producer.send(topic, b"open", partition=partition)
        producer.flush()
    listed = {each["transactional_id"]: each for each in run.at_each("txn", "list", "--state", "ongoing")}
    assert set(listed) == set(ids)
    # Where an id goes its hash says, and who leads there whom an earlier test has stopped.
    assert {each["coordinator"] for each in listed.values()} <= ON_ALL
    for each in run("txn", "describe", *ids, "--json").json:
        assert each["coordinator"]["id"] == listed[each["transactional_id"]]["coordinator"]
        assert each["partitions"] == {topic: [0, 1, 2]}
    for partition in range(LED):
        described = run("txn", "describe-producers", "--topic", topic, "--partition", str(partition), "--json").json
        assert sorted(each["producer_id"] for each in described) == sorted(
            each["producer_id"] for each in listed.values()
        )
    assert run("txn", "find-hanging", "--older-than", "0s", "--json").json == [], "each has its coordinator"
    for name in ids:
        run("txn", "abort", name)
    until(lambda: run("txn", "list", "--state", "ongoing", "--json").json == [])
    assert run("consume", topic, "--committed").out == ""


def test_hanging_transactions_are_found_at_every_leader(run: Terminal, cluster: Cluster, topic: str) -> None:
    identity = TransactionalProducer(cluster, "careless").identity
    for partition in range(LED):
        hanging = encode_batch([(None, b"hanging", (), now_ms())])
        produce(cluster, {at(topic, partition): hanging}, sequences=Careless(identity, lambda: identity))
    found = run("txn", "find-hanging", "--older-than", "0s", "--json", status=1).json
    assert [(each["topic"], each["partition"]) for each in found] == [(topic, partition) for partition in range(LED)]
    for partition in range(LED):
        run("txn", "abort", "--topic", topic, "--partition", str(partition), "--start-offset", "0")
    assert run("txn", "find-hanging", "--older-than", "0s", "--json").json == []


def test_each_broker_is_configured_individually(run: Terminal) -> None:
    key = "message.max.bytes"
    for node in NODES:
        run("broker", "config", str(node), "--set", f"{key}={2_000_000 + node}")

    def value(node: int) -> str | None:
        configs = run("broker", "config", str(node), "--json").json
        return next((each["value"] for each in configs if each["key"] == key), None)

    for node in NODES:
        until(lambda node=node: value(node) == str(2_000_000 + node))
        run("broker", "config", str(node), "--delete", key)
    run("broker", "config", "--default", "--set", "log.retention.ms=86400000")
    until(lambda: "log.retention.ms" in run("broker", "config", "--default", "--json").out)
    run("broker", "config", "--default", "--delete", "log.retention.ms")
    assert "no broker given: name one of 1, 2, 3" in run("broker", "config", status=2).err


def test_log_ends_of_each_replica_are_returned(kafka: KafkaCluster, cluster: Cluster) -> None:
    topic = created(kafka, [[2, 3, 1]])
    name = at(topic, 0)
    produce(cluster, {name: encode_batch([(None, b"%d" % number, (), now_ms()) for number in range(10)])})
    cluster.refresh([topic])
    for node in NODES:
        until(lambda node=node: log_ends(cluster.connection(node), [name, at(topic, 7)]) == {name: 10})
    assert min_insync_replicas(cluster.connection(1), [topic, "no-such-topic"]) == {topic: 2}


def test_doctor_checks_every_broker(kafka: KafkaCluster, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", kafka[3].address, "--json"]) == 0
    findings = json.loads(capfd.readouterr().out)["findings"]
    messages = {each["check"]: each["says"] for each in findings}
    for node in NODES:
        assert messages[f"broker {node}"].startswith(f"advertises {kafka[node].address}, and is reachable there")


def test_requests_report_a_broker_that_hangs(
    kafka: KafkaCluster, capfd: pytest.CaptureFixture[str], cluster: Cluster, tmp_path: Path
) -> None:
    topic = created(kafka, [[2, 3, 1], [2, 1, 3], [2, 3, 1]])
    names = [f"g{number}-{topic}" for number in range(9)]
    for name in names:
        commit_offsets(cluster, name, {at(topic, 0): Committed(0)})
    impatient = tmp_path / "client.properties"
    impatient.write_text("request.timeout.ms=2000\nsocket.connection.setup.timeout.ms=2000\n")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    run = Terminal(kafka, capfd, (1, 3))
    kafka[2].pause()
    try:
        run("produce", topic, "--file", str(lines), "--command-config", str(impatient))
        listed = [each["group"] for each in run("group", "list", "--json", "--command-config", str(impatient)).json]
        assert [each for each in listed if topic in each] == names
        consumed = run("consume", topic, "--command-config", str(impatient)).out
        assert sorted(consumed.split(), key=int) == lines.read_text().split()
        first_hangs = f"{kafka[2].address},{kafka[1].address}"
        assert Outcome(capfd, first_hangs, "topic", "list", "--command-config", str(impatient)).status == 0
    finally:
        kafka[2].resume()
    kafka.await_brokers(NODES)
    run("topic", "delete", topic)


def test_requests_report_a_broker_that_is_down(
    kafka: KafkaCluster, capfd: pytest.CaptureFixture[str], cluster: Cluster, topic: str
) -> None:
    filled(cluster, topic)
    names = [f"g{number}-{topic}" for number in range(9)]
    for name in names:
        commit_offsets(cluster, name, {at(topic, partition): Committed(7) for partition in range(LED)})
    producers = [TransactionalProducer(cluster, f"id{number}-{topic}") for number in range(9)]
    run = Terminal(kafka, capfd, (1, 3))
    kafka[2].kill()
    # At first its cluster has not noticed, and sends all clients there.
    listed = [each["group"] for each in run("group", "list", "--json").json]
    assert [each for each in listed if topic in each] == names
    ids = {each["transactional_id"] for each in run("txn", "list", "--json").json}
    assert {each for each in ids if topic in each} == {f"id{number}-{topic}" for number in range(9)}
    no_leader = f"odradek: {topic}-1: the partition has no leader (LEADER_NOT_AVAILABLE)\n"
    described = run("group", "describe", names[0], "--json").json[0]["offsets"]
    assert [each["end"] for each in described] == [10, None, 10]
    (shown,) = run("topic", "describe", topic, "--json").json
    assert [(each["leader"], each["end_offset"]) for each in shown["partitions"]] == [(1, 10), (-1, None), (3, 10)]
    consumed = run("consume", topic, status=1)
    assert sorted(consumed.out.split()) == sorted(f"{partition}-{n}" for partition in (0, 2) for n in range(10))
    assert consumed.err == no_leader
    assert run("consume", topic, "--partition", "2").err == ""
    trimmed = run("topic", "trim", topic, "--before-offset", "4", "--execute", "--json", status=1)
    assert [(each["partition"], each["new"]) for each in trimmed.json] == [(0, 4), (2, 4)]
    assert trimmed.err == f"odradek: deleted 8 records\n{no_leader}"
    segments = run("topic", "segments", topic, "--json", status=1)
    assert ([each["partition"] for each in segments.json], segments.err) == ([0, 2], no_leader)
    hanging = run("txn", "find-hanging", "--topic", topic, "--json", status=1)
    assert (hanging.json, hanging.err) == ([], no_leader)
    assert "broker 2 is not in the cluster: choose one of 1, 3" in run("broker", "config", "2", status=1).err
    status = run("cluster", "status", "--json", status=UNAVAILABLE).json
    assert {each["why"] for each in status["partitions"]} == {"broker 2 is down"}
    assert {(each["topic"] == topic, each["state"]) for each in status["partitions"]} <= {
        (True, "offline"),
        (False, "offline"),  # A topic of an earlier test.
        (False, "at min ISR"),
    }
    assert {each["min_insync_replicas"] for each in status["partitions"]} == {2}
    run("topic", "create", f"late-{topic}", "-p", "3", "-r", "2")
    # The first bootstrap server is the one that is down.
    assert Outcome(capfd, kafka.addresses.replace(kafka[1].address, kafka[2].address, 1), "topic", "list").status == 0
    run("topic", "delete", f"late-{topic}", topic)
    assert run("group", "delete", *names).out.count("deleted") == len(names)
    for producer in producers:
        with producer.transaction():
            pass
    kafka.start(2)
