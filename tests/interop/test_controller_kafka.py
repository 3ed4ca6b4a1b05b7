"""Apache Kafka brokers with an Odradek controller: it directs them through a real ZooKeeper, unnoticed by clients.

The controller has no socket here, so brokers write ISRs themselves, as they do before Kafka 2.7.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from struct import Struct

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka, ZooKeeper

from odradek.api.cluster.controller_requests import Versions, errors, to_message
from odradek.base.units import BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Create, Tree, ensure_paths
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.controller.controller import Controller
from odradek.core.kernel.cluster_view import Endpoint, LeaderAndIsr, TopicAssignment
from odradek.net.controller.controller_thread import ControllerThread
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

US = BrokerId(100)
BROKERS = (1, 2, 3)
SECONDS_MAX = 30
RESPONSES = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}
_LENGTH = Struct(">i")


class Channel:
    """A connection to one broker, in a thread: each request is answered before the next."""

    def __init__(
        self,
        at: Endpoint,
        versions: Versions,
        put_event: Callable[[events.Event], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._at = at
        self._versions = versions
        self._put_event = put_event
        self._is_stopped = is_stopped
        self._requests: SimpleQueue[ControlRequest | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def send(self, request: ControlRequest | None) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self.send(None)
        self._thread.join()

    def _run(self) -> None:
        connection: socket.socket | None = None
        while (sent := self._requests.get()) is not None:
            while not self._is_stopped():
                try:
                    if connection is None:
                        connection = socket.create_connection((self._at.host, self._at.port), SECONDS_MAX)
                    found = errors(sent, self._send_request(connection, sent))
                except OSError:  # It registers before it listens; or it has stopped, which the tree shows.
                    connection = None
                    time.sleep(0.05)
                    continue
                assert found is not None, f"{sent.request} was refused"
                self._put_event(events.Answered(sent, found))
                break

    def _send_request(
        self, connection: socket.socket, sent: ControlRequest
    ) -> LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse:
        message = to_message(sent, self._versions)
        version = {
            LeaderAndIsrRequest: self._versions.leader_and_isr,
            UpdateMetadataRequest: self._versions.update_metadata,
            StopReplicaRequest: self._versions.stop_replica,
        }[type(message)]
        connection.sendall(b"".join(encode_request(message, version, 1, "controller")))
        (size,) = _LENGTH.unpack(_received(connection, _LENGTH.size))
        _, response = decode_response(RESPONSES[type(message)], version, memoryview(_received(connection, size)))
        return response  # type: ignore[return-value]


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


class OurController:
    """A controller without a broker, with a session of its own."""

    def __init__(self, address: str, versions: Versions) -> None:
        self.tree = open_zookeeper(address, makes_chroot=True)
        layout.ensure_startup_paths(self.tree)
        self.controller = Controller(US)
        self.failures: list[Exception] = []
        self._is_closed = False
        self._versions = versions
        self._channels: dict[tuple[BrokerId, int], Channel] = {}
        self._thread = ControllerThread(
            self.controller,
            self.tree,
            US,
            now=_now,
            may_be_unclean=_may_be_unclean,
            send=self._send,
            answered=lambda event: None,
            failed=self.failures.append,
        )
        self._thread.start()

    def _send(self, requests: Sequence[ControlRequest]) -> None:
        for request in requests:
            live = self.controller.context.brokers[request.broker]
            key = request.broker, live.epoch
            if key not in self._channels:
                self._channels[key] = Channel(
                    live.info.endpoints[0], self._versions, self._thread.put_event, partial(self._is_stopped, *key)
                )
            self._channels[key].send(request)

    def _is_stopped(self, broker: BrokerId, epoch: int) -> bool:
        live = self.controller.context.brokers.get(broker)
        return self._is_closed or live is None or live.epoch != epoch

    def close(self) -> None:
        self._is_closed = True
        self._thread.close()
        for channel in self._channels.values():
            channel.close()
        self.tree.close()
        assert not self.failures


def _now() -> TimestampMs:
    return TimestampMs(time.time_ns() // 1_000_000)


def _may_be_unclean(config: Mapping[str, str]) -> bool:
    return config.get("unclean.leader.election.enable") == "true"


def create_topic(tree: Tree, name: str, *replicas: tuple[int, ...]) -> None:
    topic = TopicName(name)
    assigned = {index: tuple(map(BrokerId, brokers)) for index, brokers in enumerate(replicas)}
    assignment = TopicAssignment(assigned, Uuid(name.encode().ljust(16, b"-")[:16]))
    config = layout.encode_config({"min.insync.replicas": "1"})
    ensure_paths(tree, ["/config/topics"])
    tree.multi(
        [
            Create(layout.config(layout.TOPIC_CONFIGS, topic), config),
            Create(layout.topic(topic), layout.encode_topic(assignment)),
        ]
    )


def state_of(tree: Tree, name: str, index: int = 0) -> LeaderAndIsr:
    data, stat = tree.get(layout.partition_state(TopicName(name), index))
    found = layout.decode_partition_state(data)
    return LeaderAndIsr(
        found.leader, found.leader_epoch, found.isr, found.recovery, found.controller_epoch, stat.version
    )


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Clients:
    """A producer and a consumer of librdkafka that know all brokers."""

    def __init__(self, brokers: Mapping[int, OldKafka]) -> None:
        self.servers = ",".join(broker.address for broker in brokers.values())
        self.producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "log_level": 0, "linger.ms": 0})
        self.sent: list[bytes] = []
        self._lost: list[object] = []

    def send(self, topic: str, count: int) -> None:
        for number in range(count):
            value = b"%d" % (len(self.sent))
            self.sent.append(value)
            self.producer.produce(topic, value, partition=number % 2, on_delivery=self._delivered)
        assert self.producer.flush(SECONDS_MAX) == 0 and not self._lost

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._lost.append(error)

    def read(self, topic: str) -> list[bytes]:
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.assign([_from_start(topic, index) for index in range(2)])
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS_MAX
        while len(found) < len(self.sent) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
        consumer.close()
        return sorted(found, key=int)

    def topics(self) -> dict[str, list[int]]:
        """Return the topics, and the leader of each partition."""
        try:
            found = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=SECONDS_MAX)
        except KafkaException:  # A broker has not received any yet.
            return {}
        return {
            name: [one.leader for _, one in sorted(topic.partitions.items())] for name, topic in found.topics.items()
        }


def _from_start(topic: str, index: int):  # type: ignore[no-untyped-def]
    from confluent_kafka import OFFSET_BEGINNING
    from confluent_kafka import TopicPartition as Theirs

    return Theirs(topic, index, OFFSET_BEGINNING)


@contextmanager
def cluster(
    folder: Path, version: str, protocol: str, versions: Versions
) -> Iterator[tuple[OurController, dict[int, OldKafka]]]:
    """Start our controller first, so that it is elected, then the brokers."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        address = f"127.0.0.1:{zookeeper.port}/kafka"
        ours = OurController(address, versions)
        stack.callback(ours.close)
        brokers = started_brokers(stack, folder, version, protocol, address)
        yield ours, brokers


def started_brokers(stack: ExitStack, folder: Path, version: str, protocol: str, zookeeper: str) -> dict[int, OldKafka]:
    brokers: dict[int, OldKafka] = {}
    for number in BROKERS:
        settings = {
            "broker.id": str(number),
            "inter.broker.protocol.version": protocol,
            "controlled.shutdown.enable": "false",
            "auto.leader.rebalance.enable": "false",
            # On a busy machine shorter sessions end, and leaders change without a kill.
            "zookeeper.session.timeout.ms": "6000",
        }
        # Clients get no controller, as ours is no broker.
        broker = OldKafka(folder / str(number), version, settings, zookeeper=zookeeper, awaits_controller=False)
        brokers[number] = stack.enter_context(broker)
    return brokers


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("version", "protocol", "versions"),
    [
        pytest.param(V3, "2.6", Versions(7, 8, 4), id="3.9.1"),
        pytest.param(V3, "2.6", Versions(4, 6, 2), id="3.9.1-as-2.6", marks=pytest.mark.soak),
        pytest.param(V0, "0.11.0", Versions(0, 3, 0), id="0.11.0.3"),
    ],
)
def test_kafka_brokers_follow_our_controller(tmp_path: Path, version: str, protocol: str, versions: Versions) -> None:
    with cluster(tmp_path, version, protocol, versions) as (ours, brokers):
        assert ours.controller.epoch == 1
        create_topic(ours.tree, "flights", (1, 2, 3), (2, 3, 1))
        clients = Clients(brokers)
        wait_until(lambda: clients.topics().get("flights") == [1, 2], "the topic is told")
        clients.send("flights", 500)

        brokers[1].kill()
        wait_until(lambda: state_of(ours.tree, "flights", 0).leader == 2, "another one leads")
        assert state_of(ours.tree, "flights", 0).isr == (2, 3) and state_of(ours.tree, "flights", 0).leader_epoch == 1
        clients.send("flights", 500)

        brokers[1].start()
        wait_until(lambda: set(state_of(ours.tree, "flights", 0).isr) == {1, 2, 3}, "it has caught up")
        wait_until(lambda: set(state_of(ours.tree, "flights", 1).isr) == {1, 2, 3}, "it has caught up")
        states = ours.controller.context.states
        both = [TopicPartition(TopicName("flights"), index) for index in range(2)]
        wait_until(lambda: all(set(states[one].isr) == {1, 2, 3} for one in both), "the controller has heard of it")
        data = layout.encode_partitions([TopicPartition(TopicName("flights"), 0)])
        ours.tree.create(layout.PREFERRED_REPLICA_ELECTION, data)
        wait_until(lambda: clients.topics()["flights"] == [1, 2], "the preferred replica leads again")
        clients.send("flights", 500)
        assert clients.read("flights") == clients.sent

        brokers[3].kill()
        ensure_paths(ours.tree, [layout.delete_topic(TopicName("flights"))])
        wait_until(lambda: "flights" not in clients.topics(), "clients don't see it any more")
        wait_until(lambda: ours.tree.exists(layout.broker(BrokerId(3))) is None, "its session ends")
        assert ours.tree.exists(layout.topic(TopicName("flights"))) is not None, "a broker that is down still has it"
        brokers[3].start()
        wait_until(lambda: ours.tree.exists(layout.topic(TopicName("flights"))) is None, "it is gone")
        wait_until(lambda: not list(tmp_path.glob("*/data/flights-[01]")), "its logs are gone")

        create_topic(ours.tree, "flights", (3, 1, 2), (2, 3, 1))
        wait_until(lambda: clients.topics().get("flights") == [3, 2], "another one of its name is told")
        clients = Clients(brokers)
        clients.send("flights", 100)
        assert clients.read("flights") == clients.sent


def story(tree: Tree, brokers: Mapping[int, OldKafka]) -> Iterator[list[tuple[int, int, tuple[int, ...]]]]:
    """Yield leader, leader epoch and ISR of each partition after each event; broker 1 stays alive."""
    replicas = ((3, 1), (3,), (1, 3), (3, 2), (2, 3))

    def states() -> list[LeaderAndIsr]:
        return [state_of(tree, "flights", index) for index in range(len(replicas))]

    def seen() -> list[tuple[int, int, tuple[int, ...]]]:
        return [(state.leader, state.leader_epoch, tuple(sorted(state.isr))) for state in states()]

    def leaders() -> list[int]:
        return [state.leader for state in states()]

    def all_in_sync() -> bool:
        return all(set(state.isr) == set(each) for state, each in zip(states(), replicas, strict=True))

    def killed(number: int) -> None:
        brokers[number].kill()
        wait_until(lambda: tree.exists(layout.broker(BrokerId(number))) is None, "its session ends")

    create_topic(tree, "flights", *replicas)
    last = layout.partition_state(TopicName("flights"), len(replicas) - 1)
    wait_until(lambda: tree.exists(last) is not None, "the topic has leaders")
    yield seen()
    killed(3)
    wait_until(lambda: leaders() == [1, -1, 1, 2, 2] and 3 not in states()[4].isr, "others lead")
    yield seen()
    killed(2)
    wait_until(lambda: leaders() == [1, -1, 1, -1, -1], "nobody leads what they had")
    yield seen()
    brokers[3].start()
    wait_until(lambda: leaders()[1] == 3 and set(states()[0].isr) == {1, 3}, "it leads what it alone has")
    yield seen()
    brokers[2].start()
    wait_until(all_in_sync, "all have caught up")
    yield seen()
    preferred = [TopicPartition(TopicName("flights"), index) for index in (0, 2, 3)]
    tree.create(layout.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(preferred))
    wait_until(lambda: leaders()[0] == leaders()[3] == 3, "the preferred ones lead again")
    yield seen()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_kafkas_controller_reaches_the_same_states(tmp_path: Path) -> None:
    with cluster(tmp_path / "ours", V3, "2.6", Versions(7, 8, 4)) as (ours, brokers):
        found = list(story(ours.tree, brokers))
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(tmp_path / "zookeeper"))
        address = f"127.0.0.1:{zookeeper.port}/kafka"
        brokers = started_brokers(stack, tmp_path / "theirs", V3, "2.6", address)  # 1 is the controller.
        tree = open_zookeeper(address)
        stack.callback(tree.close)
        assert list(story(tree, brokers)) == found
