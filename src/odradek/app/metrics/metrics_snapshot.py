"""Snapshot of the broker for one scrape: copies made on the loop, where nothing changes concurrently.

A broker has thousands of partitions, and the loop has clients to serve. The snapshot therefore reads a few partitions
in each turn of the loop.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from odradek.api.request.log_fields import api_name
from odradek.app.metrics.metrics_loop_lag import LoopLag
from odradek.app.metrics.metrics_replication import Replication
from odradek.base.units import TopicPartition
from odradek.core.broker.broker import Broker
from odradek.core.cleaner.cleaning_steps import CleanerStats
from odradek.core.groups.classic.classic_group_states import State as ClassicState
from odradek.core.groups.shard.group import CLASSIC, CONSUMER
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.partition.partition import Partition
from odradek.core.transactions.transaction_states import TransactionState
from odradek.net.clients.listener import Listener
from odradek.net.loop.traffic import Latencies
from odradek.net.shell.shell import Shell

PARTITIONS_PER_TURN = 200
# Exported even with a count of 0, so that nobody takes one for a metric that does not exist.
GROUP_STATES = (
    *((CLASSIC, state.value) for state in ClassicState if state is not ClassicState.DEAD),
    *((CONSUMER, state) for state in ("Empty", "Assigning", "Reconciling", "Stable")),
)
TRANSACTION_STATES = tuple((state.title,) for state in TransactionState)

Labels = TypeVar("Labels", bound=tuple[str, ...])


class Histogram(NamedTuple):
    """Copy of Latencies."""

    times: int
    seconds: float
    buckets: tuple[int, ...]

    @classmethod
    def of(cls, latencies: Latencies) -> Histogram:
        return cls(latencies.count, latencies.seconds, tuple(latencies.buckets))


class OneLog(NamedTuple):
    topic: str
    partition: str
    size_bytes: int
    start_offset: int
    end_offset: int
    segments: int


@dataclass(slots=True)
class Snapshot:
    """State of one broker at one moment; each partition is copied separately soon after that moment."""

    broker_id: int
    cluster_id: str
    is_controller: bool
    brokers: int
    requests: Mapping[tuple[str, str], Histogram]
    syncs: Histogram
    bytes_in: int
    bytes_out: int
    connections: Mapping[str, int]
    connections_accepted: int
    connections_refused: int
    parked: int
    fetch_sessions: int
    lag: Histogram
    lag_max_seconds: float
    groups: Mapping[tuple[str, str], int]
    group_offsets: int
    transactions: Mapping[tuple[str], int]
    cleaner: CleanerStats
    uncleanable: Mapping[str, int]  # Partitions, by log directory.
    replication: Replication
    producer_ids: int = 0
    logs: list[OneLog] = field(default_factory=list)
    messages_in: dict[str, int] = field(default_factory=dict)
    topic_bytes_in: dict[str, int] = field(default_factory=dict)
    partitions: int = 0
    leaders: int = 0
    offline: int = 0
    damaged: int = 0
    directories: Mapping[str, bool] = field(default_factory=dict)  # Offline state, by path.
    loop_seconds: float = 0.0


def _uncleanable(broker: Broker) -> dict[str, int]:
    online = (partition for partition in broker.cleaner.set_aside.reasons if partition.is_online)
    found = Counter(partition.log.directory.rpartition("/")[0] for partition in online)
    return dict.fromkeys((directory.path for directory in broker.storage), 0) | found


def _counted(known: Iterable[Labels], found: Iterable[Labels]) -> dict[Labels, int]:
    return dict.fromkeys(known, 0) | Counter(found)


class Collection:
    """Collector of one scrape's snapshot, in steps on the loop.

    `done` receives the snapshot; cancelling it ends the steps.
    """

    def __init__(self, shell: Shell, listeners: Sequence[Listener], lag: LoopLag) -> None:
        self.done: Future[Snapshot] = Future()
        self._shell = shell
        self._listeners = listeners
        self._lag = lag
        self._partitions: Iterator[tuple[TopicPartition, Partition]]
        self._topics: Iterator[TopicInfo] = iter(())  # The cluster's topics, if this broker is its controller.
        self._snapshot: Snapshot

    def start_collection(self) -> None:
        """Start the steps. Called on the loop."""
        if self.done.set_running_or_notify_cancel():
            self._step(self._collect_totals)

    def _step(self, work: Callable[[], bool]) -> None:
        started = time.monotonic()
        try:
            is_done = work()
        except Exception as error:  # A failed scrape must not end the broker.
            self.done.set_exception(error)
            return
        self._snapshot.loop_seconds += time.monotonic() - started
        if is_done:
            self.done.set_result(self._snapshot)
        else:
            self._shell.soon(lambda: self._step(self._collect_next))

    def _collect_totals(self) -> bool:
        broker, traffic = self._shell.broker, self._shell.traffic
        is_controller = broker.view.controller == broker.id
        self._partitions = iter(list(broker.partitions.items()))
        if is_controller:
            self._topics = iter(list(broker.view.topics.values()))
        self._snapshot = Snapshot(
            broker_id=broker.id,
            cluster_id=broker.view.cluster_id,
            is_controller=is_controller,
            brokers=len(broker.view.brokers),
            requests={
                (api_name(key), str(version)): Histogram.of(latencies)
                for (key, version), latencies in sorted(traffic.requests.items())
            },
            syncs=Histogram.of(traffic.syncs),
            bytes_in=traffic.bytes_in,
            bytes_out=traffic.bytes_out,
            connections={listener.name: len(listener) for listener in self._listeners},
            connections_accepted=traffic.connections_accepted,
            connections_refused=traffic.connections_refused,
            parked=len(broker.purgatory),
            directories={one.path: one.failure is not None for one in broker.storage},
            fetch_sessions=len(broker.sessions),
            lag=Histogram.of(self._lag.lags),
            lag_max_seconds=self._lag.max_seconds,
            groups=_counted(
                GROUP_STATES,
                ((group.type, group.state) for shard in broker.groups.shards for group in shard.groups.values()),
            ),
            group_offsets=sum(len(shard.offsets) for shard in broker.groups.shards),
            transactions=_counted(
                TRANSACTION_STATES,
                ((one.state.title,) for shard in broker.transactions.shards for one in shard.transactions.values()),
            ),
            cleaner=broker.cleaner.stats,
            uncleanable=_uncleanable(broker),
            replication=Replication.of(broker, self._shell.member.unclean_elections),
        )
        return False

    def _collect_next(self) -> bool:
        return self._collect_partitions() and self._collect_topics()

    def _collect_topics(self) -> bool:
        broker, remaining = self._shell.broker, PARTITIONS_PER_TURN
        for topic in self._topics:
            self._snapshot.replication.add_controller_topic(topic, broker.view.brokers)
            remaining -= len(topic.partitions)
            if remaining <= 0:
                return False
        return True

    def _collect_partitions(self) -> bool:
        broker, snapshot = self._shell.broker, self._snapshot
        batch = list(islice(self._partitions, PARTITIONS_PER_TURN))
        for name, partition in batch:
            if broker.partitions.get(name) is not partition:
                continue  # Deleted since the last turn.
            snapshot.partitions += 1
            if partition.info.leader == broker.id:
                snapshot.leaders += 1
            if not partition.is_online:
                snapshot.offline += 1
                continue
            log = partition.log
            topic = str(name.topic)
            snapshot.producer_ids += len(log.producers)
            snapshot.damaged += log.damaged_places
            snapshot.logs.append(
                OneLog(topic, str(name.partition), log.size, log.start_offset, log.end_offset, len(log.segments))
            )
            snapshot.replication.add_partition(broker, name, partition)
            snapshot.messages_in[topic] = snapshot.messages_in.get(topic, 0) + log.appended_records
            snapshot.topic_bytes_in[topic] = snapshot.topic_bytes_in.get(topic, 0) + log.appended_bytes
        return len(batch) < PARTITIONS_PER_TURN
