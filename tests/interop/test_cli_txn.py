"""`odradek txn` with real brokers, and the use of transactions by `odradek produce` and `consume`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from client_peers import BROKERS, STARTERS, quick_config
from kafka_peer import KafkaBroker

from odradek.app.main import main
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.producer.delivery import produce
from odradek.client.producer.idempotence import Sequences
from odradek.client.producer.producer import now_ms
from odradek.client.producer.transactional import TransactionalProducer
from odradek.record.builder import encode_batch
from odradek.testing import Broker
from support.terminals import own
from support.waiting import SECONDS_MAX, until

ODRADEK = [sys.executable, "-m", "odradek"]


class Terminal:
    """A runner of commands on one broker."""

    def __init__(self, address: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capfd = capfd

    def run(self, *arguments: str, status: int = 0) -> str:
        """Return standard output, or the sentence on standard error if a status other than 0 is expected."""
        returned = main([*arguments, "--bootstrap-server", self.address])
        captured = self._capfd.readouterr()
        errors = own(captured.err)
        assert returned == status, errors
        assert errors.count("\n") == (1 if status else 0), errors
        return errors if status else captured.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))


@pytest.fixture(params=BROKERS)
def terminal(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(STARTERS[request.param](), capfd)


@pytest.fixture
def topic(terminal: Terminal) -> str:
    name = f"txn-{uuid4().hex[:12]}"
    terminal.run("topic", "create", name, "--partitions", "2")
    return name


@pytest.fixture
def transactional_id(topic: str) -> str:
    return f"id-of-{topic}"


@pytest.fixture
def producer(terminal: Terminal, transactional_id: str) -> Iterator[TransactionalProducer]:
    with Cluster(quick_config(terminal.address)) as cluster:
        yield TransactionalProducer(cluster, transactional_id)


def opened(producer: TransactionalProducer, topic: str) -> None:
    """Write one record to each partition, in a transaction that stays open."""
    producer.begin_transaction()
    for partition in range(2):
        producer.send(topic, b"open-%d" % partition, partition=partition)
    producer.flush()


def states(terminal: Terminal, *options: str) -> dict[str, str]:
    return {each["transactional_id"]: each["state"] for each in terminal.json("txn", "list", *options)}


def test_a_transaction_is_described_and_aborted(
    terminal: Terminal, topic: str, transactional_id: str, producer: TransactionalProducer
) -> None:
    assert states(terminal)[transactional_id] == "Empty"
    opened(producer, topic)
    assert states(terminal, "--state", "ongoing")[transactional_id] == "Ongoing"
    assert states(terminal, "--producer-id", str(producer.identity.producer_id)).keys() == {transactional_id}
    assert states(terminal, "--pattern", f"id-of-{topic}").keys() == {transactional_id}
    assert transactional_id not in states(terminal, "--longer-than", "1h")
    until(lambda: transactional_id in states(terminal, "--longer-than", "5ms"))
    assert transactional_id in terminal.run("txn", "list").split()
    (described,) = terminal.json("txn", "describe", transactional_id)
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    identity = producer.identity
    assert (described["producer_id"], described["epoch"]) == (identity.producer_id, identity.epoch)
    assert described["partitions"] == {topic: [0, 1]}
    assert 0 <= described["duration_ms"] < SECONDS_MAX * 1_000
    text = terminal.run("txn", "describe", transactional_id)
    assert f"{transactional_id}  Ongoing  producer {identity.producer_id}" in text
    assert f"partitions {topic}:0,1" in text
    assert terminal.run("consume", topic, "--committed") == ""
    assert (
        terminal.run("txn", "abort", transactional_id)
        == f"aborted the transaction of {transactional_id}; its producer is fenced\n"
    )
    refused = terminal.run("txn", "abort", transactional_id, status=1)
    assert f"transactional id {transactional_id} has no open transaction" in refused
    with pytest.raises(ErrorResponse):
        producer.commit()
    with pytest.raises(ErrorResponse, match="PRODUCER_FENCED"):
        producer.abort()
    assert terminal.run("consume", topic, "--committed") == ""
    assert sorted(terminal.run("consume", topic).split()) == ["open-0", "open-1"], "who does not ask gets all of it"


def test_an_unknown_transactional_id_is_not_created(terminal: Terminal, transactional_id: str) -> None:
    for verb in ("describe", "abort"):
        refused = terminal.run("txn", verb, transactional_id, status=1)
        assert refused == (
            f"odradek: transactional id {transactional_id}: the transactional id does not exist "
            "(TRANSACTIONAL_ID_NOT_FOUND)\n"
        )
    assert transactional_id not in states(terminal)


def test_producers_of_a_partition_are_described(
    terminal: Terminal, topic: str, transactional_id: str, producer: TransactionalProducer
) -> None:
    subprocess.run(
        [*ODRADEK, "produce", topic, "-p", "0", "-b", terminal.address],
        input=b"a\nb\nc\n",
        check=True,
        timeout=SECONDS_MAX,
    )
    opened(producer, topic)
    plain, open_one = terminal.json("txn", "describe-producers", "--topic", topic, "--partition", "0")
    if plain["transaction_start"] is not None:
        plain, open_one = open_one, plain
    assert (plain["epoch"], plain["last_sequence"], plain["transaction_start"]) == (0, 2, None), "it is idempotent"
    assert (open_one["producer_id"], open_one["epoch"]) == (producer.identity.producer_id, producer.identity.epoch)
    assert (open_one["last_sequence"], open_one["transaction_start"]) == (0, 3)
    table = terminal.run("txn", "describe-producers", "--topic", topic, "-p", "0").splitlines()
    assert len(table) == 4
    refused = terminal.run("txn", "describe-producers", "--topic", topic, "-p", "7", status=1)
    assert f"partition 7 does not exist: topic {topic} has 2" in refused
    producer.abort()


def test_abort_by_offset_ends_the_transaction_in_one_partition(
    terminal: Terminal, topic: str, producer: TransactionalProducer
) -> None:
    """kafka-transactions does the same to a hanging transaction; in a live one the other partition still waits."""
    opened(producer, topic)
    for partition in range(2):
        subprocess.run(
            [*ODRADEK, "produce", topic, "-p", str(partition), "-b", terminal.address],
            input=b"after-%d\n" % partition,
            check=True,
            timeout=SECONDS_MAX,
        )
    place = ("txn", "abort", "--topic", topic, "--partition", "1", "--start-offset")
    assert "starting at offset 1" in terminal.run(*place, "1", status=1)
    assert terminal.run("consume", topic, "--committed") == ""
    done = terminal.run(*place, "0")
    assert done == f"aborted the transaction of producer {producer.identity.producer_id} at {topic}-1 offset 0\n"
    assert terminal.run("consume", topic, "--committed") == "after-1\n"
    assert "starting at offset 0" in terminal.run(*place, "0", status=1)
    producer.abort()
    assert sorted(terminal.run("consume", topic, "--committed").split()) == ["after-0", "after-1"]


def test_an_open_transaction_is_not_reported_as_hanging(
    terminal: Terminal, topic: str, producer: TransactionalProducer
) -> None:
    opened(producer, topic)
    found = terminal.json("txn", "find-hanging", "--topic", topic, "--older-than", "0s")
    assert found == [], "its coordinator holds it open"
    table = terminal.run("txn", "find-hanging", "--topic", f"{topic}:1").split()
    assert table[:5] == ["topic", "partition", "transactional", "id", "producer"], "the columns are there without rows"
    producer.commit()


@contextmanager
def lax(kind: str, folder: Path) -> Iterator[str]:
    """Return the address of a broker without KIP-890, which accepts any write into a transaction."""
    if kind == "odradek":
        with Broker(transaction_partition_verification_enable=False) as ours:
            yield ours.address
    else:
        with KafkaBroker(folder, settings={"transaction.partition.verification.enable": "false"}) as theirs:
            yield theirs.address


class Careless(Sequences):
    """Identity of an old producer whose coordinator forgot the transaction, so that nothing ends it."""

    transactional_id = "careless"
    produce_version_max = 11  # Later ones join the transaction by themselves.


@pytest.mark.parametrize("kind", BROKERS)
def test_a_hanging_transaction_is_found_and_ended(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with lax(kind, tmp_path / "kafka") as address, Cluster(quick_config(address)) as cluster:
        terminal = Terminal(address, capfd)
        terminal.run("topic", "create", "t", "--partitions", "2")
        identity = TransactionalProducer(cluster, "careless").identity
        for partition in (TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)):
            produce(cluster, {partition: encode_batch([(None, b"%d" % partition.partition, (), now_ms())])})
        hanging = encode_batch([(None, b"hanging", (), now_ms())])
        produce(cluster, {TopicPartition(TopicName("t"), 1): hanging}, sequences=Careless(identity, lambda: identity))
        assert terminal.json("txn", "find-hanging") == [], "it may still be ended in order"
        assert main(["txn", "find-hanging", "--older-than", "0s", "--json", "-b", address]) == 1
        (found,) = json.loads(capfd.readouterr().out)
        assert (found["topic"], found["partition"], found["transaction_start"]) == ("t", 1, 1)
        assert (found["transactional_id"], found["producer_id"]) == ("careless", identity.producer_id)
        assert sorted(terminal.run("consume", "t", "--committed").split()) == ["0", "1"]
        produce(cluster, {TopicPartition(TopicName("t"), 1): encode_batch([(None, b"after", (), now_ms())])})
        assert sorted(terminal.run("consume", "t", "--committed").split()) == ["0", "1"], "readers wait"
        terminal.run("txn", "abort", "--topic", "t", "--partition", "1", "--start-offset", "1")
        assert terminal.json("txn", "find-hanging", "--older-than", "0s") == []
        assert sorted(terminal.run("consume", "t", "--committed").split()) == ["0", "1", "after"]


def test_a_group_reads_committed_records(terminal: Terminal, topic: str, producer: TransactionalProducer) -> None:
    with producer.transaction():
        producer.send(topic, b"first", partition=0)
    opened(producer, topic)
    assert terminal.run("consume", topic, "--group", topic, "--committed") == "first\n"
    producer.abort()
    with producer.transaction():
        producer.send(topic, b"last", partition=0)
    until(lambda: terminal.run("consume", topic, "--committed").split() == ["first", "last"])
    assert terminal.run("consume", topic, "--group", topic, "--committed") == "last\n"


@pytest.mark.parametrize(
    ("options", "is_numbered"), [((), True), (("--no-idempotence",), False), (("--acks", "1"), False)]
)
def test_produce_is_idempotent_by_default(
    terminal: Terminal, topic: str, options: tuple[str, ...], is_numbered: bool
) -> None:
    command = [*ODRADEK, "produce", topic, "-p", "1", "-b", terminal.address, *options]
    subprocess.run(command, input=b"a\nb\n", check=True, timeout=SECONDS_MAX)
    assert terminal.run("consume", topic) == "a\nb\n"
    producers = terminal.json("txn", "describe-producers", "--topic", topic, "--partition", "1")
    assert [each["last_sequence"] for each in producers] == ([1] if is_numbered else [])
