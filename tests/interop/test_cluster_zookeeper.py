"""Odradek brokers on a ZooKeeper ensemble: `zookeeper.connect`, each started alone as on its own machine."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, ZooKeeper

from odradek.base.units import BrokerId
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import ensure_paths
from odradek.coordination.zookeeper import open_zookeeper
from support.asking import leaders
from support.serving import NotReady, Serving
from support.waiting import SECONDS_MAX, until

pytestmark = OLD_KAFKA

BROKERS = (1, 2, 3)


def broker(folder: Path, number: int, connect: str, configs: Mapping[str, str] = {}) -> Serving:
    directory = folder / str(number)
    directory.mkdir()
    return Serving(
        directory,
        **{
            "broker.id": str(number),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "3000",
            **configs,
        },
    )


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper") as running:
        yield running


@pytest.fixture
def brokers(tmp_path: Path, ensemble: ZooKeeper) -> Iterator[dict[int, Serving]]:
    connect = f"127.0.0.1:{ensemble.port}/kafka/ours"
    with ExitStack() as stack:
        yield {number: stack.enter_context(broker(tmp_path, number, connect)) for number in BROKERS}


def servers(brokers: dict[int, Serving]) -> str:
    return ",".join(one.address for one in brokers.values())


def until_leaders(brokers: dict[int, Serving], numbers: tuple[int, ...], expected: set[int]) -> None:
    """Wait until these brokers lead the topic t, -1 for none, as each of some brokers knows it."""
    for number in numbers:
        address = brokers[number].address
        until(lambda: set(leaders(address, "t").values()) == expected)  # noqa: B023  # It is called here alone.


def test_kills_of_brokers_and_the_controller_lose_no_record(brokers: dict[int, Serving]) -> None:
    admin = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
    admin.create_topics([NewTopic("t", 6, 1)])["t"].result(SECONDS_MAX)
    until_leaders(brokers, BROKERS, {1, 2, 3})
    producer = Producer(
        {"bootstrap.servers": servers(brokers), "enable.idempotence": True, "message.timeout.ms": SECONDS_MAX * 1000}
    )
    ends: list[object] = []
    sent = []
    for killed in (admin.list_topics(timeout=SECONDS_MAX).controller_id, 3):
        for number in range(600):
            sent.append(b"%d-%d" % (killed, number))
            producer.produce("t", sent[-1], partition=number % 6, on_delivery=lambda error, _: ends.append(error))
            producer.poll(0)
        brokers[killed].kill()
        others = tuple(one for one in BROKERS if one != killed)
        until_leaders(brokers, others, {-1, *others})
        brokers[killed].start()
        until_leaders(brokers, BROKERS, {1, 2, 3})
        assert producer.flush(SECONDS_MAX) == 0
    assert ends == [None] * len(sent)
    consumer = Consumer(
        {"bootstrap.servers": servers(brokers), "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["t"])
    found = [message.value() for message in consumer.consume(len(sent), SECONDS_MAX)]
    consumer.close()
    assert Counter(found) == Counter(sent)
    assert not any("Traceback" in one.errors() for one in brokers.values())


def test_a_second_broker_with_the_same_id_does_not_start(tmp_path: Path, brokers: dict[int, Serving]) -> None:
    connect = brokers[1]._overrides["zookeeper.connect"]
    other = broker(tmp_path / "3", 2, connect)
    with pytest.raises(NotReady, match=f"Broker 2 at 127.0.0.1:{brokers[2].port} is already using the metadata"):
        other.start()


def test_znodes_have_kafkas_layout(ensemble: ZooKeeper, brokers: dict[int, Serving]) -> None:
    admin = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
    admin.create_topics([NewTopic("t", 3, 1, config={"retention.ms": "1000000"})])["t"].result(SECONDS_MAX)
    tree = open_zookeeper(f"127.0.0.1:{ensemble.port}/kafka/ours")
    try:
        assert tree.children(layout.BROKER_IDS) == ["1", "2", "3"]
        assert tree.children(layout.TOPICS) == ["t"]
        controller = layout.decode_controller(tree.get(layout.CONTROLLER)[0]).broker
        assert controller in BROKERS
        for index in range(3):
            state = layout.decode_partition_state(tree.get(f"/brokers/topics/t/partitions/{index}/state")[0])
            assert state.isr == (state.leader,)
            assert state.controller_epoch == 1
        assert layout.decode_config(tree.get("/config/topics/t")[0]) == {"retention.ms": "1000000"}
    finally:
        tree.close()


def test_leaders_stay_through_an_ensemble_outage_beyond_the_session(
    ensemble: ZooKeeper, brokers: dict[int, Serving]
) -> None:
    admin = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
    admin.create_topics([NewTopic("t", 3, 1)])["t"].result(SECONDS_MAX)
    until_leaders(brokers, BROKERS, {1, 2, 3})
    producer = Producer({"bootstrap.servers": servers(brokers), "message.timeout.ms": SECONDS_MAX * 1000})
    ends: list[object] = []

    def send() -> None:
        for partition in range(3):
            producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: ends.append(error))
        assert producer.flush(SECONDS_MAX) == 0

    ensemble.__exit__(None, None, None)
    for _ in range(6):  # Longer than their sessions: leaders stay leaders.
        send()
        time.sleep(1)
    assert not any(one.has_ended for one in brokers.values())
    with ensemble:
        until(lambda: "2" in _registered(ensemble))
        until(lambda: _registered(ensemble) == ["1", "2", "3"])
        until_leaders(brokers, BROKERS, {1, 2, 3})
        admin.create_topics([NewTopic("made-after", 3, 1)])["made-after"].result(SECONDS_MAX)
        send()
        assert ends == [None] * 21
        for one in brokers.values():
            one.stop()
    assert not any("Traceback" in one.errors() for one in brokers.values())


def test_a_start_that_waits_for_other_brokers_can_be_stopped(tmp_path: Path, ensemble: ZooKeeper) -> None:
    """Its lost data may be at broker 2, which is registered and does nothing: it would wait for minutes."""
    connect = f"127.0.0.1:{ensemble.port}/kafka/ours"
    ours = broker(tmp_path, 1, connect)
    with ours:
        admin = AdminClient({"bootstrap.servers": ours.address, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS_MAX)
    shutil.rmtree(tmp_path / "1" / "data")
    tree = open_zookeeper(connect)
    try:
        path = layout.partition_state("t", 0)
        state = layout.decode_partition_state(tree.get(path)[0])
        tree.set(path, layout.encode_partition_state(state._replace(isr=(1, 2))))
        ensure_paths(tree, [layout.broker(BrokerId(2))])
        with ThreadPoolExecutor(1) as threads:
            starting = threads.submit(ours.start, {"zookeeper.session.timeout.ms": "60000"})
            until(lambda: "unclean shutdown: broker 1 waits" in ours.errors())
            os.kill(ours.pid, signal.SIGTERM)
            with pytest.raises(NotReady, match="exit 0"):
                starting.result()
        assert "it starts" not in ours.errors()
        assert "Traceback" not in ours.errors()
        assert tree.children(layout.BROKER_IDS) == ["2"]
    finally:
        tree.close()


def _registered(ensemble: ZooKeeper) -> list[str]:
    tree = open_zookeeper(f"127.0.0.1:{ensemble.port}/kafka/ours")
    try:
        return tree.children(layout.BROKER_IDS)
    finally:
        tree.close()
