"""The broker for tests: its life cycle, its data, and its lack of side effects on the process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.base.errors import ErrorCode, Refused
from odradek.core.configs.definition import ConfigError
from odradek.log.files.disk_failures import DirectoryInUse
from odradek.testing import Broker, BrokerFailed
from support.ports import free_port
from support.raw_client import Closed, RawClient

SECONDS_MAX = 120
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def produce(address: str, topic: str, *values: bytes) -> list[int]:
    """Produce with acks=all; return the offsets."""
    producer = Producer({"bootstrap.servers": address})
    offsets: list[int] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(SECONDS_MAX) == 0
    return offsets


def consume(address: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, SECONDS_MAX)
    consumer.close()
    return [message.value() for message in messages]


def test_one_line_starts_a_broker() -> None:
    with Broker() as broker:
        assert broker.address == broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert produce(broker.address, "made-by-writing-to-it", b"one", b"two") == [0, 1]
        assert consume(broker.address, "made-by-writing-to-it", 2) == [b"one", b"two"]
        assert (broker.directory / "made-by-writing-to-it-0").is_dir()
        directory = broker.directory
    assert not directory.exists()
    assert not broker.is_running


def test_several_brokers_run_at_once() -> None:
    with Broker() as one, Broker() as two, Broker() as three:
        brokers = [one, two, three]
        for number, broker in enumerate(brokers):
            produce(broker.address, "t", b"%d" % number)
        assert [consume(broker.address, "t", 1) for broker in brokers] == [[b"0"], [b"1"], [b"2"]]
        assert len({broker.port for broker in brokers} | {broker.directory for broker in brokers}) == 6


def test_a_restart_keeps_the_data() -> None:
    with Broker() as broker:
        produce(broker.address, "t", b"before")
        address = broker.address
        broker.restart()
        assert broker.address == address
        assert produce(address, "t", b"after") == [1]
        assert consume(address, "t", 2) == [b"before", b"after"]


def test_a_client_outlives_a_restart() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        producer = Producer({"bootstrap.servers": broker.address})
        offsets: list[int] = []
        for value in (b"one", b"two", b"three"):
            producer.produce("t", value, on_delivery=lambda _, message: offsets.append(message.offset()))
            assert producer.flush(SECONDS_MAX) == 0
            broker.restart()
        assert offsets == [0, 1, 2]


def test_a_broker_stops_and_starts_again(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path)
    broker.start()
    broker.stop()
    broker.stop()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert not broker.is_running
    with pytest.raises(RuntimeError, match="not running"):
        broker.topics()
    broker.start()
    with pytest.raises(RuntimeError, match="running"):
        broker.start()
    broker.close()
    assert (tmp_path / "meta.properties").exists(), "a directory that was given is kept"


def test_a_killed_broker_keeps_acknowledged_records(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        produce(broker.address, "t", b"acknowledged")
        with RawClient(broker.port) as client:
            client.ping()
            broker.kill()
            with pytest.raises(Closed):
                client.ping()
        assert not (tmp_path / CLEAN_SHUTDOWN).exists(), "as after kill -9, nobody has closed the logs"
        assert list(tmp_path.glob("*.session-*")), "and nobody has left the cluster"
        broker.start()
        assert consume(broker.address, "t", 1) == [b"acknowledged"]
        assert produce(broker.address, "t", b"more") == [1]


def test_the_port_stays_reserved_while_stopped() -> None:
    with Broker() as broker:
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", broker.port))
        broker.start()
        port = broker.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


def test_a_requested_port_is_used() -> None:
    with socket.socket() as probe:
        port = free_port()
        probe.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            Broker(port=port).start()
    with Broker(port=port) as broker:
        assert broker.port == port


def test_a_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    with Broker(directory=tmp_path), pytest.raises(DirectoryInUse):
        Broker(directory=tmp_path).start()


def test_kafkas_configuration_keys_are_used() -> None:
    configs = {"message.max.bytes": 5_000, "auto.create.topics.enable": False}
    with Broker(configs, num_partitions=3, log_retention_ms=60_000) as broker:
        broker.create_topic("t")
        broker.create_topic("small", 1, {"max.message.bytes": 100, "cleanup.policy": ["compact", "delete"]})
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = admin.list_topics(timeout=SECONDS_MAX).topics
        assert (len(topics["t"].partitions), len(topics["small"].partitions)) == (3, 1)
        assert admin.list_topics("absent", timeout=SECONDS_MAX).topics["absent"].error is not None
    with Broker(**{"num.partitions": 2}) as broker:
        broker.create_topic("t")
        assert broker.topics() == ["t"]
        assert (broker.directory / "t-1").exists()


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"num.partition": 3}, "num.partitions"),
        ({"num.partitions": "three"}, "num.partitions"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, "port="),
        ({"log_dirs": "/tmp"}, "directory="),
    ],
)
def test_an_invalid_configuration_is_refused(configs: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Broker(**configs)


def test_topics_are_created_listed_and_deleted() -> None:
    with Broker() as broker:
        broker.create_topic("a", partitions=2)
        broker.create_topic("b")
        assert broker.topics() == ["a", "b"]
        with pytest.raises(Refused) as refused:
            broker.create_topic("a")
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        broker.delete_topic("a")
        assert broker.topics() == ["b"]
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            broker.delete_topic("a")


def test_a_broker_runs_in_a_coroutine() -> None:
    """The caller's loop runs on while the broker starts, serves and stops."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story() -> list[bytes]:
        nonlocal turns
        counting = asyncio.create_task(count())
        async with Broker() as broker:
            assert turns > 0
            producer = AIOKafkaProducer(bootstrap_servers=broker.address, acks="all")
            await producer.start()
            await producer.send_and_wait("t", b"one")
            await producer.stop()
            consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, group_id=None, enable_auto_commit=False)
            await consumer.start()
            consumer.assign([AioTopicPartition("t", 0)])
            await consumer.seek_to_beginning()
            values = [(await consumer.getone()).value]
            await consumer.stop()
            turns = 0
        assert turns > 0
        counting.cancel()
        return values

    assert asyncio.run(story()) == [b"one"]


def test_the_process_is_left_as_it_was() -> None:
    with Broker() as broker:  # Modules imported by the first broker are no change of the second.
        produce(broker.address, "t", b"one")
    gc.collect()
    before, descriptors, threads = state(), open_files(), set(threading.enumerate())
    frozen = gc.get_freeze_count()
    with Broker() as broker:
        broker.create_topic("t")
        with RawClient(broker.port) as client:
            client.ping()
        assert state() == before
        broker.kill()
        broker.start()
    gc.collect()
    assert state() == before
    assert gc.get_freeze_count() <= frozen, "what conftest.py has frozen may have gone"
    # Other tests have brokers in this process too, which open a file and begin a thread now and then.
    deadline = time.monotonic() + SECONDS_MAX
    while open_files() > descriptors:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "odradek-testing" not in [thread.name for thread in set(threading.enumerate()) - threads]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def state() -> list[object]:
    root = logging.getLogger()
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return [
        [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE)],
        wakeup,
        resource.getrlimit(resource.RLIMIT_NOFILE),
        (gc.get_threshold(), gc.isenabled()),
        (root.level, list(root.handlers), logging.getLogger("odradek").handlers),
        asyncio.get_event_loop_policy(),
        Path.cwd(),
        sys.excepthook,
        threading.excepthook,
    ]


def broken(client_id: str) -> bool:
    raise AssertionError("an invariant is broken")


def test_a_failure_of_the_broker_is_raised_in_the_test(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BrokerFailed, match="an invariant is broken") as raised, Broker() as broker:
        broker.faults.drop("ApiVersions", client_id=broken)
        with RawClient(broker.port) as client, pytest.raises(Closed):
            client.ping()
        with pytest.raises(BrokerFailed, match="an invariant is broken"):
            broker.topics()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port))
    assert isinstance(raised.value.__cause__, AssertionError)
    assert [record.levelname for record in caplog.records if record.name == "odradek.testing.host"] == ["CRITICAL"]


def test_a_test_failure_caused_by_the_broker_has_a_note() -> None:
    with pytest.raises(Closed) as raised, Broker() as broker:
        broker.faults.drop("ApiVersions", client_id=broken)
        with RawClient(broker.port) as client:
            client.ping()
    assert "an invariant is broken" in "".join(raised.value.__notes__)


def test_a_failed_broker_starts_again() -> None:
    with Broker() as broker:
        produce(broker.address, "t", b"kept")
        fault = broker.faults.drop("ApiVersions", client_id=broken)
        with RawClient(broker.port) as client, pytest.raises(Closed):
            client.ping()
        with pytest.raises(BrokerFailed):
            broker.stop()
        fault.clear()
        broker.start()
        assert consume(broker.address, "t", 1) == [b"kept"]


@pytest.mark.parametrize("is_given", [False, True])
def test_only_a_given_directory_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_given: bool) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda descriptor, real=real: (synced.append(descriptor), real(descriptor)))
    with Broker(directory=tmp_path if is_given else None) as broker:
        produce(broker.address, "t", b"one")
    assert bool(synced) == is_given


def test_a_broker_may_be_killed_right_after_its_start() -> None:
    """At that moment some results of its threads are still on their way to the loop."""
    for _ in range(30):
        with Broker() as broker:
            broker.kill()


def test_an_unclosed_broker_is_removed_at_exit() -> None:
    script = "from odradek.testing import Broker; b = Broker().start(); b.create_topic('t'); print(b.directory)"
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.stderr == ""
    assert not Path(ended.stdout.strip()).exists()


def test_a_forked_process_leaves_the_broker_alone() -> None:
    with Broker() as broker:
        child = os.fork()
        if not child:
            broker._at_exit()
            os._exit(0)
        os.waitpid(child, 0)
        assert produce(broker.address, "t", b"one") == [0]
        assert broker.directory.exists()
