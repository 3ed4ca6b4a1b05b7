"""How long a cluster of three is about many partitions: made, without a broker, without its controller, started.

    python bench/controllers.py [--targets odradek,odradek-zookeeper,kafka] [--topics 10] [--partitions 1000]

Odradek as `serve --brokers 3`, with the SQLite file, and on a ZooKeeper; Apache Kafka 3.9.1 on a ZooKeeper of the same
kind.  Brokers are killed with kill -9.  The seconds of a loss are from the end of the broker's session, which is given
apart: on a ZooKeeper it lasts as long as is configured, on the SQLite file it ends with the process and is part of the
figure.  Each figure ends when every broker that lives has told a client the whole of it: who is the controller, who
leads each partition, and which have no leader.

made: topics of one replica, from the request on.  lost, back: a broker that is not the controller.  controller lost:
until another one has made a topic.  stopped: SIGTERM to all at once.  started: from the start of all processes.  cpu:
the processor time of the three brokers together.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from clusters import BROKERS, CLUSTERS, Cluster, until
from growth import Numbers, show

from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ClientError
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

TIMEOUT_MS = 300_000
METADATA_VERSION, CREATE_VERSION = 8, 4
NO_LEADER = -1

Partition = tuple[str, int]


class Seen(NamedTuple):
    """What a broker tells clients."""

    controller: int
    leaders: dict[Partition, int]


class Client:
    """What clients are told by each broker, and topics made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._connections: dict[int, Connection] = {}

    def seen(self, broker: int) -> Seen | None:
        """Returns what a broker tells of all topics; None if it does not answer."""
        with suppress(ClientError):
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            found = self._connection(broker).call(request, MetadataResponse, version=METADATA_VERSION)
            leaders = {
                (topic.name or "", partition.partition_index): partition.leader_id
                for topic in found.topics
                for partition in topic.partitions
            }
            return Seen(found.controller_id, leaders)
        self._connections.pop(broker).close() if broker in self._connections else None
        return None

    def create(self, controller: int, topics: Sequence[str], partitions: int) -> bool:
        """Makes topics of one replica; returns False if that broker does not do it, or not now."""
        creatable_topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name in topics
        ]
        request = CreateTopicsRequest(topics=creatable_topics, timeout_ms=TIMEOUT_MS)
        with suppress(ClientError):
            connection = self._connection(controller)
            response = connection.call(request, CreateTopicsResponse, version=CREATE_VERSION, timeout_ms=TIMEOUT_MS)
            return not any(topic.error_code for topic in response.topics)
        return False

    def _connection(self, broker: int) -> Connection:
        port = self._cluster.port(broker)
        connection = self._connections.get(broker)
        if connection is None or not connection.is_open:
            config = ClientConfig(f"127.0.0.1:{port}", client_id="bench-controllers", request_timeout_ms=TIMEOUT_MS)
            connection = self._connections[broker] = Connection(("127.0.0.1", port), config)
        return connection

    def wait_for(self, brokers: Iterable[int], condition: Callable[[Seen], bool]) -> Seen:
        """Returns what the last of the brokers tells when all of them have told what is wanted."""
        last = Seen(NO_LEADER, {})

        def is_satisfied(broker: int) -> bool:
            nonlocal last
            seen = self.seen(broker)
            last = seen or last
            return seen is not None and condition(seen)

        for broker in brokers:
            until(lambda broker=broker: is_satisfied(broker))  # type: ignore[misc]
        return last


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return round(time.monotonic() - begun, 2)


def measured(cluster: Cluster, topics: int, partitions: int, numbers: Numbers) -> None:
    client, count = Client(cluster), topics * partitions
    cluster.start()
    first = client.wait_for(BROKERS, lambda seen: seen.controller in BROKERS)

    def create_topics() -> None:
        names = [f"bench-{number:03}" for number in range(topics)]
        if not client.create(first.controller, names, partitions):
            raise RuntimeError("topics can't be made")
        client.wait_for(BROKERS, lambda seen: is_led(seen, count))

    cpu = cluster.cpu_seconds()
    numbers["made s"] = seconds_of(create_topics)
    numbers["made cpu s"] = round(cluster.cpu_seconds() - cpu, 1)
    victim = next(broker for broker in BROKERS if broker != first.controller)
    lose(cluster, client, victim, numbers, "")
    numbers["back s"] = seconds_of(lambda: bring_back(cluster, client, victim, count))
    lose(cluster, client, first.controller, numbers, "controller ")
    count += 1  # Of the topic that was made meanwhile.
    numbers["controller back s"] = seconds_of(lambda: bring_back(cluster, client, first.controller, count))
    numbers["stopped s"] = seconds_of(cluster.stop)
    numbers["started s"] = seconds_of(lambda: start_all(cluster, client, count))
    numbers["started cpu s"] = round(cluster.cpu_seconds(), 1)


def is_led(seen: Seen, count: int) -> bool:
    return len(seen.leaders) == count and NO_LEADER not in seen.leaders.values() and seen.controller in BROKERS


def lose(cluster: Cluster, client: Client, victim: int, numbers: Numbers, prefix: str) -> None:
    """Kills a broker; if it was the controller, another one has to make a topic, too."""
    others = [broker for broker in BROKERS if broker != victim]
    before = client.wait_for(others[:1], lambda seen: True)
    expected = {one: NO_LEADER if leader == victim else leader for one, leader in before.leaders.items()}
    was_controller = before.controller == victim

    def has_new_leaders(seen: Seen) -> bool:
        has_controller = seen.controller in BROKERS and (seen.controller != victim)
        return has_controller and expected.items() <= seen.leaders.items()

    def wait_until_settled() -> None:
        after = client.wait_for(others, has_new_leaders)
        if was_controller:
            until(lambda: client.create(after.controller, ["bench-after"], 1))
            client.wait_for(others, lambda seen: seen.leaders.get(("bench-after", 0), NO_LEADER) in others)

    cluster.kill(victim)
    numbers[f"{prefix}session s"] = seconds_of(lambda: cluster.wait_for_session(victim))
    numbers[f"{prefix}lost s"] = seconds_of(wait_until_settled)


def bring_back(cluster: Cluster, client: Client, broker: int, count: int) -> None:
    cluster.start_again(broker)
    client.wait_for(BROKERS, lambda seen: is_led(seen, count))


def start_all(cluster: Cluster, client: Client, count: int) -> None:
    cluster.start()
    client.wait_for(BROKERS, lambda seen: is_led(seen, count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="odradek,odradek-zookeeper,kafka")
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1000, help="of each topic")
    arguments = parser.parse_args()
    rows = dict[str, Numbers]()
    try:
        for name in arguments.targets.split(","):
            rows[name] = Numbers()
            folder = Path(tempfile.mkdtemp(prefix="odradek-controllers-"))
            with ExitStack() as stack:
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                cluster = CLUSTERS[name](folder / name)
                stack.callback(cluster.close)
                measured(cluster, arguments.topics, arguments.partitions, rows[name])
            print(name, rows[name], file=sys.stderr, flush=True)
    finally:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
