"""Queries and changes of the metadata tree by a test cluster, like those of a Kafka operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.coordination.tree import NodeExists, NoNode, Tree
from odradek.testing.host import SECONDS_MAX, BrokerFailed

CHECK_SECONDS = 0.005


def session(directory: Path, *, is_durable: bool) -> SqliteTree:
    return SqliteTree(directory / METADATA_FILE, durable=is_durable)


def controller(tree: Tree) -> BrokerId | None:
    """Return the elected controller, or None."""
    try:
        return layout.decode_controller(tree.get(layout.CONTROLLER)[0]).broker
    except NoNode:
        return None


def registered_epoch(tree: Tree, broker: BrokerId) -> int | None:
    """Return the epoch of a broker's current registration, or None."""
    stat = tree.exists(layout.broker(broker))
    return None if stat is None else stat.czxid


def elect_another(tree: Tree, before: BrokerId, check: Callable[[], None]) -> None:
    """Delete /controller until a different broker is elected, or raise BrokerFailed."""
    deadline = time.monotonic() + SECONDS_MAX
    while (elected := controller(tree)) is None or elected == before:
        check()
        if time.monotonic() > deadline:
            raise BrokerFailed(f"no other broker was elected within {SECONDS_MAX} s: broker {before} won each election")
        if elected is not None:
            with suppress(NoNode):
                tree.delete(layout.CONTROLLER)
        time.sleep(CHECK_SECONDS)


def replicas(tree: Tree, name: TopicPartition) -> tuple[BrokerId, ...]:
    """Return the replicas of a partition, the preferred one first, or an empty tuple if there is no topic."""
    try:
        topic = layout.decode_topic(tree.get(layout.topic(name.topic))[0])
    except NoNode:
        return ()
    return topic.partitions.get(name.partition, ())


def prefer(tree: Tree, name: TopicPartition, broker: BrokerId) -> None:
    """Make a broker the first of a partition's replicas."""
    path = layout.topic(name.topic)
    data, stat = tree.get(path)
    topic = layout.decode_topic(data)
    others = tuple(one for one in topic.partitions[name.partition] if one != broker)
    partitions = {**topic.partitions, name.partition: (broker, *others)}
    tree.set(path, layout.encode_topic(topic._replace(partitions=partitions)), stat.version)


def elect_preferred(tree: Tree, name: TopicPartition) -> None:
    """Request a preferred leader election for a partition, and wait until the controller has handled it."""
    deadline = time.monotonic() + SECONDS_MAX
    path = layout.PREFERRED_REPLICA_ELECTION
    is_requested = False
    while not is_requested or tree.exists(path) is not None:
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the controller did not elect a leader within {SECONDS_MAX} s")
        if not is_requested:
            with suppress(NodeExists):  # Another election is pending; wait for its end.
                tree.create(path, layout.encode_partitions([name]))
                is_requested = True
        time.sleep(CHECK_SECONDS)


def is_free(tree: Tree, name: str) -> bool:
    """Return whether no topic has the name and no remains of one exist."""
    return tree.exists(layout.topic(TopicName(name))) is None
