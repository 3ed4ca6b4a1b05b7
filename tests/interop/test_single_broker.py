"""A lone broker: a cluster of one, its own controller, which no other broker can join."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.base.errors import ErrorCode
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.log.files.log_file_names import CLEAN_SHUTDOWN
from odradek.testing import Broker
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support.asking import created, delete
from support.raw_client import RawClient
from support.serving import Serving, outcome_of_serve
from support.waiting import SECONDS_MAX, until

BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(directory=tmp_path) as made:
        yield made


@pytest.fixture
def tree(broker: Broker, tmp_path: Path) -> Iterator[SqliteTree]:
    """Open another session of the broker's tree."""
    (file,) = tmp_path.rglob(METADATA_FILE)
    with SqliteTree(file, poll_ms=5) as opened:
        yield opened


def make(address: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(SECONDS_MAX)


def send(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"x")
    assert producer.flush(SECONDS_MAX) == 0


def test_lone_broker_registers_and_becomes_controller_in_one_change(broker: Broker, tree: SqliteTree) -> None:
    make(broker.bootstrap_servers, "t", 2)
    controller, epoch = tree.get(layout.CONTROLLER), tree.get(layout.CONTROLLER_EPOCH)
    (name,) = tree.children(layout.BROKER_IDS)
    registered = tree.exists(f"{layout.BROKER_IDS}/{name}")
    assert registered is not None and registered.czxid == controller[1].czxid == epoch[1].mzxid
    assert str(layout.decode_controller(controller[0]).broker) == name
    state = layout.decode_partition_state(tree.get(layout.partition_state("t", 1))[0])
    assert (str(state.leader), state.leader_epoch, state.controller_epoch) == (name, 0, 1)


def test_lone_broker_offers_no_inter_broker_apis(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        answer = client.request(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert BETWEEN_BROKERS.isdisjoint(one.api_key for one in answer.api_keys)


def test_lone_broker_serves_on_after_its_session_ends(broker: Broker, tree: SqliteTree) -> None:
    """The session ends, for example, if another process opens the tree while this one is stopped for too long."""
    make(broker.bootstrap_servers, "before")
    (name,) = tree.children(layout.BROKER_IDS)
    first = tree.exists(f"{layout.BROKER_IDS}/{name}")
    assert first is not None
    with tree._write() as writer:
        writer.end_session(first.ephemeral_owner)
    send(broker.bootstrap_servers, "before")
    until(lambda: tree.children(layout.BROKER_IDS) == [name])
    again = tree.exists(f"{layout.BROKER_IDS}/{name}")
    assert again is not None and again.czxid > first.czxid
    until(lambda: layout.decode_controller_epoch(tree.get(layout.CONTROLLER_EPOCH)[0]) == 2)
    make(broker.bootstrap_servers, "after", 3)
    for topic in ("before", "after"):
        send(broker.bootstrap_servers, topic)


def test_a_topic_can_be_recreated_right_after_its_deletion(broker: Broker) -> None:
    """Tests and users delete a topic and create it again at once."""
    with RawClient(broker.port) as client:
        for _ in range(50):
            created(client, "t", partitions=3)
            assert delete(client, "t") == ErrorCode.NONE


def test_lone_broker_refuses_other_brokers(tmp_path: Path) -> None:
    with Serving(tmp_path) as broker:
        folder = f"--override=metadata.log.dir={broker.directory / 'data'}"
        other = f"--override=log.dirs={tmp_path / 'other'}"
        listener = "--override=listeners=PLAINTEXT://127.0.0.1:0"
        status, output = outcome_of_serve(tmp_path, folder, other, listener)
        assert status == 1
        assert "which only one broker can use" in output
        make(broker.address, "t")


def test_stop_before_ready_is_a_clean_stop(tmp_path: Path) -> None:
    """A stop during the start closes all that is open, and the next start finds a clean stop."""
    with Serving(tmp_path) as broker:
        make(broker.address, "many", 1_000)
        send(broker.address, "many")
    command = [sys.executable, "-m", "odradek", "serve", f"--override=log.dirs={broker.directory / 'data'}"]
    starting = subprocess.Popen([*command, "--override=listeners=PLAINTEXT://127.0.0.1:0"], stdout=subprocess.PIPE)
    until(lambda: bool(list((broker.directory / "data").glob(f"{METADATA_FILE}.session-*"))))
    starting.send_signal(signal.SIGTERM)
    output, _ = starting.communicate(timeout=SECONDS_MAX)
    assert (starting.returncode, output) == (0, b"")
    assert (broker.directory / "data" / CLEAN_SHUTDOWN).exists()
    with Serving(tmp_path) as broker:
        send(broker.address, "many")
