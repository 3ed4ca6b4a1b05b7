"""`odradek tree copy`: a broker's logs and metadata moved to Apache Kafka 3.9.1 under a ZooKeeper, and back again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from contents import admin, consumer, create_topics
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.app.main import main
from odradek.coordination import claims
from odradek.coordination.sqlite import SqliteTree
from support.serving import Serving
from support.terminals import own

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("exchanges directories with a running Apache Kafka")]

SECONDS_MAX = 60
SETTINGS = {"broker.id": "1", "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
CONFIG = {"retention.ms": "-1", "segment.bytes": "1048576"}
GROUP = "g"

Run = tuple[int, str, str]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of relative locations."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("odradek.app.commands.tree_copy.CONNECT_MS_MAX", 500)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metadata.sqlite").touch()
    return tmp_path


def copy(capfd: pytest.CaptureFixture[str], *places: str | Path) -> Run:
    status = main(["tree", "copy", *map(str, places)])
    captured = capfd.readouterr()
    return status, captured.out, own(captured.err)


def send(address: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def read_and_commit(address: str, topic: str, count: int) -> list[str]:
    """Return so many of the values that the group has not read yet."""
    member = consumer(address, GROUP, **{"auto.offset.reset": "earliest"})
    member.subscribe([topic])
    try:
        found = [message.value().decode() for message in member.consume(count, SECONDS_MAX)]
        member.commit(asynchronous=False)
    finally:
        member.close()
    return found


def committed(address: str, topic: str) -> int:
    reader = consumer(address, GROUP)
    try:
        return int(reader.committed([TopicPartition(topic, 0)], SECONDS_MAX)[0].offset)
    finally:
        reader.close()


def retention(address: str, topic: str) -> str:
    client = admin(address)
    (described,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(described.result(SECONDS_MAX)["retention.ms"].value)


def test_a_broker_moves_to_kafka_and_back(
    zookeeper: ZooKeeper, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ensemble, data, back = f"127.0.0.1:{zookeeper.port}/moved", tmp_path / "data", tmp_path / "back"
    with Serving(tmp_path, **SETTINGS) as ours:
        create_topics(ours.address, {"t": (2, CONFIG)})
        send(ours.address, "t", "a", "b", "c")
        assert read_and_commit(ours.address, "t", 2) == ["a", "b"]
        status, _, err = copy(capfd, data, ensemble)
        assert status == 1 and "broker 1 is using the metadata in" in err
        assert ours.stop() == 0
        status, out, _ = copy(capfd, data, ensemble)
        assert status == 0 and out.startswith("copied 2 topics, "), out
        status, _, err = copy(capfd, data, ensemble)
        assert status == 1 and f"{ensemble} already contains a cluster" in err

    kafka = OldKafka(tmp_path / "kafka", V3, SETTINGS | {"log.dirs": str(data)}, zookeeper=ensemble)
    with kafka:
        assert (committed(kafka.address, "t"), retention(kafka.address, "t")) == (2, "-1")
        assert read_and_commit(kafka.address, "t", 1) == ["c"]
        send(kafka.address, "t", "d", "e")
        create_topics(kafka.address, {"new": (1, {})})
        send(kafka.address, "new", "x")
        status, _, err = copy(capfd, ensemble, back)
        assert status == 1 and "broker 1 is using the metadata in" in err
        kafka.stop()

    assert copy(capfd, ensemble, back)[0] == 0
    settings = SETTINGS | {"log.dirs": str(data), "metadata.log.dir": str(back)}
    (tmp_path / "again").mkdir()
    with Serving(tmp_path / "again", **settings) as ours:
        assert (committed(ours.address, "t"), retention(ours.address, "t")) == (3, "-1")
        assert read_and_commit(ours.address, "t", 2) == ["d", "e"]
        assert read_and_commit(ours.address, "new", 1) == ["x"]
        assert "Traceback" not in ours.errors() and "ERROR" not in ours.errors()


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ("nowhere", "to", "nowhere has no metadata.sqlite: use a broker's metadata.log.dir, or HOST:PORT/CHROOT"),
        ("127.0.0.1:1/x", "to", "ZooKeeper at 127.0.0.1:1 did not respond within"),
        ("empty", "to", "empty/metadata.sqlite is not a metadata file of Odradek"),
    ],
)
def test_refused_copies_get_one_sentence(
    source: str, target: str, sentence: str, places: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = copy(capfd, source, target)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"odradek: {sentence}" in err
    assert not (places / target).exists()


def test_a_failed_copy_prints_one_sentence_only(tmp_path: Path) -> None:
    """It runs in a process of its own: pytest keeps log output away from standard error."""
    program = (
        "import sys; from odradek.app.commands import tree_copy; tree_copy.CONNECT_MS_MAX = 500; "
        "from odradek.app.main import main; sys.exit(main(['tree', 'copy', '127.0.0.1:1/x', 'to']))"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "odradek: ZooKeeper at 127.0.0.1:1 did not respond within 500 ms\n"


def test_an_empty_location_is_refused(places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (places / "from").mkdir()
    with SqliteTree(places / "from" / "metadata.sqlite") as tree:
        claims.cluster_id(tree, "AAAAAAAAAAAAAAAAAAAAAQ")
    for from_place, to_place in (("", "to"), ("from", "")):
        status, _, err = copy(capfd, from_place, to_place)
        assert (status, err.count("\n")) == (2, 1) and "empty location" in err
    assert not (places / "to").exists() and not (places / "metadata.sqlite").exists()


def test_a_missing_chroot_is_reported(zookeeper: ZooKeeper, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = copy(capfd, f"127.0.0.1:{zookeeper.port}/nothing", tmp_path / "to")
    assert (status, err) == (1, f"odradek: ZooKeeper at 127.0.0.1:{zookeeper.port} has no chroot /nothing\n")
