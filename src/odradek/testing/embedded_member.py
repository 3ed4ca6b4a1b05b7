"""One broker of a test cluster, which shares its metadata with others, and conditions on several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from odradek.app.config.server_config import Settings
from odradek.app.serve.broker_startup import RunningBroker
from odradek.base.units import BrokerId, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination.sqlite import SqliteTree
from odradek.core.kernel.cluster_view import ClusterView, TopicInfo
from odradek.testing.configuration import places_of_member
from odradek.testing.embedded_broker import Broker
from odradek.testing.links import LinkedLoop
from odradek.testing.network import Network
from odradek.testing.tree_link import LinkedTree, TreeLink

T = TypeVar("T")


class Member(Broker):
    """A broker of a cluster, with its own lifecycle, address, directory and faults.

    `create_topic` and `delete_topic` send the request to this broker, which rejects it unless it is the controller. The
    methods of the cluster send it to the controller.
    """

    def __init__(
        self, broker_id: BrokerId, texts: Mapping[str, str], metadata: Path, network: Network, *, is_durable: bool
    ) -> None:
        """Create a broker; `metadata` is the cluster's directory, which contains the shared metadata tree."""
        self.id = broker_id
        self._network = network
        self._tree_link = TreeLink(network, broker_id)
        self._metadata = metadata
        super().__init__(texts, directory=metadata / f"broker{broker_id}")
        self._is_durable = is_durable

    def stop(self) -> None:
        with self._tree_link.leaving():
            super().stop()

    def kill(self) -> None:
        with self._tree_link.leaving():
            super().kill()

    def broker_epoch(self) -> int:
        """Return the epoch of the broker's registration, as known to the broker."""

        async def get_broker_epoch(running: RunningBroker) -> int:
            return running.shell.broker.controlled.broker_epoch

        return self._running_host().run_query(get_broker_epoch)

    def query_view(self, query: Callable[[ClusterView], T]) -> T:
        """Evaluate a query on this broker's current view of the cluster."""

        async def evaluate(running: RunningBroker) -> T:
            return query(running.shell.broker.view)

        return self._running_host().run_query(evaluate)

    def _settings(self, directory: Path, port: int) -> Settings:
        return super()._settings(directory, port)._replace(is_member=True)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        self._network.ports[self.port] = self.id
        return LinkedLoop(self._network, self.id)

    def _open_tree(self, path: Path, **options: Any) -> SqliteTree:
        return LinkedTree(path, link=self._tree_link, **options)

    def _places(self, directory: Path, port: int) -> dict[str, str]:
        return {**super()._places(directory, port), **places_of_member(self.id, self._metadata)}


def run_concurrently(action: Callable[[Member], object], brokers: Sequence[Member]) -> None:
    """Run an action on all brokers concurrently; raise the first failure, with the others as notes."""
    if not brokers:
        return
    with ThreadPoolExecutor(len(brokers), "odradek-testing-cluster") as pool:
        futures = [pool.submit(action, broker) for broker in brokers]
    failures = [failure for future in futures if (failure := future.exception()) is not None]
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"Also: {other}")
        raise failures[0]


def controlled_by(broker_id: BrokerId) -> Callable[[ClusterView], bool]:
    return lambda view: view.controller == broker_id


def are_led(alive: set[BrokerId]) -> Callable[[ClusterView], bool]:
    """Return a condition that every partition with a live replica among these brokers has a leader."""

    def condition(view: ClusterView) -> bool:
        partitions = [partition for topic in view.topics.values() for partition in topic.partitions]
        return all(one.leader >= 0 or alive.isdisjoint({*one.replicas}.difference(one.offline)) for one in partitions)

    return condition


def leaders_of_all(view: ClusterView) -> dict[Uuid, list[BrokerId]]:
    """Return the leaders of all partitions by topic id."""
    return {topic.id: [one.leader for one in topic.partitions] for topic in view.topics.values()}


def are_in_sync(brokers: set[BrokerId], topic_partition: TopicPartition | None = None) -> Callable[[ClusterView], bool]:
    """Return a condition that these brokers' replicas of one partition, or of all, are in sync."""

    def condition(view: ClusterView) -> bool:
        return all(
            brokers.intersection(one.replicas) <= {*one.isr}
            for topic in view.topics.values()
            for index, one in enumerate(topic.partitions)
            if topic_partition is None or topic_partition == (topic.name, index)
        )

    return condition


def is_led_by(broker: BrokerId, topic_partition: TopicPartition) -> Callable[[ClusterView], bool]:
    def condition(view: ClusterView) -> bool:
        topic = view.topics.get(topic_partition.topic)
        return topic is not None and topic.partitions[topic_partition.partition].leader == broker

    return condition


def has_brokers(running: set[BrokerId]) -> Callable[[ClusterView], bool]:
    return lambda view: view.brokers.keys() == running


def topic_named(view: ClusterView, name: str) -> TopicInfo | None:
    return next((topic for topic in view.topics.values() if topic.name == name), None)


def has_topic(topic: TopicInfo, view: ClusterView) -> bool:
    known = view.topic_by_id(topic.id)
    return known is not None and len(known.partitions) >= len(topic.partitions)


def lacks_topic(topic: TopicInfo, view: ClusterView) -> bool:
    return view.topic_by_id(topic.id) is None
