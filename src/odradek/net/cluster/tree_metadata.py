"""Cluster metadata as one broker reads it from the tree, and the broker's registration.

All calls block. net/cluster/metadata_changes.py changes topics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, LeaderEpoch, ProducerId, TimestampMs, TopicName
from odradek.coordination import id_claims
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import (
    BadVersion,
    Check,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    Stat,
    Tree,
    TreeFailed,
    Unavailable,
)
from odradek.core.broker.effects import AllocateProducerIds
from odradek.core.configs.topic_configs import invalid_overrides_message
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from odradek.core.transactions.producer_ids import ProducerIdBlock

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.1
# No broker assigned a greater id. Its producer invented it, and allocating above it would leave no ids.
PRODUCER_ID_GIVEN_MAX = 1 << 62
# Overrides of a topic with an unreadable configuration; nothing is deleted until it can be read.
UNREADABLE_OVERRIDES = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


class Membership(NamedTuple):
    """Ids of this broker and of the cluster."""

    broker_id: BrokerId
    cluster_id: str


class AnotherBroker(Unavailable):
    """Raised if a live broker uses this tree; the text is one sentence for people."""


class Metadata:
    """Access of one broker to a tree shared with others.

    Methods raise TreeFailed when the tree does, and BadZnodeError for foreign data.
    """

    def __init__(
        self, tree: Tree, where: str = "metadata.log.dir", registration_version: int = layout.WITH_FEATURES
    ) -> None:
        """Create access to a tree; messages call its location `where`.

        `registration_version` is the format version of the broker's registration.
        """
        self._tree = tree
        self.where = where
        self._registration_version = registration_version
        self._cluster_id = ""

    # Registration.

    def prepare(self, broker_id: BrokerId | None, reserved_max: int, new_cluster_id: str) -> Membership:
        """Create missing nodes of the tree; return the ids of the broker and of the cluster.

        Without a broker id, the next one above `reserved_max` is allocated. If there is no cluster, it is created with
        `new_cluster_id`. Raises AnotherBroker.
        """
        layout.ensure_startup_paths(self._tree)
        self._check_may_join()
        self._cluster_id = id_claims.cluster_id(self._tree, new_cluster_id)
        if broker_id is None:
            broker_id = id_claims.broker_id(self._tree, reserved_max)
        return Membership(broker_id, self._cluster_id)

    def _check_may_join(self) -> None:
        """Raise AnotherBroker if a lone broker owns the tree: it registers as controller in the same multi."""
        controller = self._tree.exists(layout.CONTROLLER)
        for name in self._tree.children(layout.BROKER_IDS):
            stat = self._tree.exists(f"{layout.BROKER_IDS}/{name}")
            if stat is not None and controller is not None and stat.czxid == controller.czxid:
                raise AnotherBroker(detail=self._in_use_message(self.broker_named(name)))

    def check_id_is_free(self, broker: BrokerInfo, timeout_ms: int) -> None:
        """Wait while the broker's id is registered at another address; raise AnotherBroker if it stays.

        Called before the logs are opened, because with a copied configuration or disk they may belong to that broker.
        An earlier registration of this broker, at its own address, is waited for when the logs are open.
        """
        until = time.monotonic() + timeout_ms / SECOND_MS
        while (other := self._registered(broker.id)) is not None and addresses(other) != addresses(broker):
            if time.monotonic() > until:
                raise AnotherBroker(detail=self._in_use_message(other))
            time.sleep(POLL_SECONDS)

    def _registered(self, broker: BrokerId) -> BrokerInfo | None:
        """Return a broker's registration, or None if it does not exist or is unreadable."""
        try:
            return self.broker_named(str(broker))
        except (NoNode, BadZnodeError):
            return None

    def register_broker(self, broker: BrokerInfo, now: Callable[[], TimestampMs], timeout_ms: int) -> int:
        """Register the broker for as long as the session lives, and return its broker epoch.

        The node of an earlier session of this broker may still exist; this method waits for its removal. Raises
        AnotherBroker if the owner of the node stays alive.
        """
        path = layout.broker(broker.id)
        until = time.monotonic() + timeout_ms / SECOND_MS
        while True:
            try:
                self._tree.create(path, self._registration(broker, now()), ephemeral=True)
            except NodeExists:
                stat = self._tree.exists(path)
                if stat is not None and stat.ephemeral_owner == self._tree.session_id:
                    return stat.czxid  # The response to the creation was lost.
                if time.monotonic() > until:
                    raise AnotherBroker(detail=self._in_use_message(self.broker_named(str(broker.id)))) from None
                time.sleep(POLL_SECONDS)
            else:
                stat = self._tree.exists(path)
                if stat is not None:
                    return stat.czxid

    def _registration(self, broker: BrokerInfo, now: TimestampMs) -> bytes:
        return layout.encode_broker(broker, now, version=self._registration_version)

    def _in_use_message(self, other: BrokerInfo) -> str:
        return f"{describe_broker(other)} is already using the metadata in {self.where}."

    def propagate_log_dir_event(self, broker_id: BrokerId) -> None:
        """Notify the controller so that it asks the broker for its offline replicas."""
        path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
        self._tree.create(path, layout.encode_log_dir_event(broker_id), sequential=True)

    # Reads of the tree.

    def view(self) -> ClusterView:
        """Return the cluster's topics, and log the unreadable ones."""
        topics, unreadable = self._all_topics()
        for name, reason in unreadable.items():
            _LOG.error("topic %s is unavailable: %s", name, reason)
        return ClusterView(self._cluster_id, topics=topics.values(), unreadable=unreadable)

    def topics(self) -> dict[TopicName, TopicInfo]:
        """Return all readable topics; an unreadable znode affects only its own topic."""
        return self._all_topics()[0]

    def _all_topics(self) -> tuple[dict[TopicName, TopicInfo], dict[TopicName, str]]:
        """Return the readable topics, and the reason for each unreadable one."""
        topics: dict[TopicName, TopicInfo] = {}
        unreadable: dict[TopicName, str] = {}
        for name in self._topic_names():
            try:
                topic = self.topic(name)
            except BadZnodeError as bad:
                unreadable[name] = str(bad)
                continue
            if topic is not None:
                topics[name] = topic
        return topics, unreadable

    def _topic_names(self) -> list[TopicName]:
        """Return the names of all topics, none in a tree that no broker has prepared yet."""
        try:
            return [TopicName(name) for name in self._tree.children(layout.TOPICS)]
        except NoNode:
            return []

    def broker_named(self, name: str) -> BrokerInfo:
        broker_id = layout.broker_id(name)
        return self.read(layout.broker(broker_id), partial(layout.decode_broker, broker_id)).broker

    def topic(self, name: TopicName) -> TopicInfo | None:
        """Return a topic's assignment and configuration, or None if it does not exist.

        Does not read partition states, because the controller sends the leaders. Raises BadZnodeError.
        """
        try:
            assignment = self.read(layout.topic(name), layout.decode_topic)
        except NoNode:
            return None
        assigned = (replicas for _, replicas in sorted(assignment.partitions.items()))
        partitions = (PartitionInfo(NO_BROKER, LeaderEpoch(0), replicas, replicas) for replicas in assigned)
        return TopicInfo(name, assignment.topic_id, tuple(partitions), self.overrides(name))

    def overrides(self, name: TopicName) -> Mapping[str, str]:
        """Return a topic's overrides; if they are unreadable, log it and return overrides that keep all data."""
        try:
            overrides = self.read(layout.config(layout.TOPIC_CONFIGS, name), layout.decode_config)
        except NoNode:
            return {}
        except BadZnodeError as bad:
            _LOG.error("%s: retention of topic %s is suspended until its configuration is readable", bad, name)
            return UNREADABLE_OVERRIDES
        invalid = invalid_overrides_message(name, overrides)
        if invalid is not None:
            _LOG.error("%s", invalid)
        return overrides

    def read(self, path: str, decode: Callable[[bytes], T]) -> T:
        """Return the content of a znode.  Raises BadZnodeError, which names the znode."""
        return decoded(path, decode, self._tree.get(path)[0])

    def are_being_deleted(self, names: Iterable[TopicName]) -> bool:
        """Return whether the deletion of a topic with one of these names is incomplete."""
        return any(self._tree.exists(layout.delete_topic(name)) is not None for name in names)

    # Producer ids.

    def take_producer_ids(self, broker_id: BrokerId, effect: AllocateProducerIds) -> ProducerIdBlock | None:
        """Allocate an unused block that begins at `effect.at_least` or later; None if the tree fails."""
        at_least = effect.at_least if effect.at_least <= PRODUCER_ID_GIVEN_MAX else 0
        try:
            block = id_claims.producer_ids(self._tree, broker_id, at_least)
        except TreeFailed:
            return None
        return ProducerIdBlock(ProducerId(block.first), ProducerId(block.last))

    def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """Allocate a block for a broker that requests it from the controller.  Raises Refused."""
        self.check_controller()
        stat = self._tree.exists(layout.broker(broker_id))
        if stat is None:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if stat.czxid != broker_epoch:
            raise Refused(ErrorCode.STALE_BROKER_EPOCH)
        block = id_claims.producer_ids(self._tree, broker_id)
        return ProducerIdBlock(ProducerId(block.first), ProducerId(block.last))

    # Checks of the controller.

    def check_controller_epoch(self, epoch: int) -> None:
        """Raise Refused with STALE_CONTROLLER_EPOCH for an epoch above the latest.

        No controller is elected in such an epoch yet. An elected controller writes the epoch before anything else. A
        ZooKeeper server may lag behind, so a lower epoch is trusted only after a write has confirmed that it is the
        latest.
        """
        while True:
            try:
                data, stat = self._tree.get(layout.CONTROLLER_EPOCH)
            except NoNode:
                latest, stat = 0, None
            else:
                latest = layout.decode_controller_epoch(data) if data else 0
            if epoch <= latest:
                return
            if stat is None or self._is_latest(stat):
                text = f"controller epoch {epoch} does not match the latest epoch {latest} in {self.where}"
                raise Refused(ErrorCode.STALE_CONTROLLER_EPOCH, text)

    def _is_latest(self, controller_epoch: Stat) -> bool:
        try:
            self._tree.multi([Check(layout.CONTROLLER_EPOCH, controller_epoch.version)])
        except MultiFailed as failed:
            if not isinstance(failed.error, BadVersion | NoNode):
                raise
            return False
        return True

    def check_controller(self) -> int:
        """Return the version of /controller_epoch from this broker's election.  Raises Refused."""
        try:
            owner = self._tree.exists(layout.CONTROLLER)
        except SessionExpired:
            raise Refused(ErrorCode.NOT_CONTROLLER) from None
        if owner is None or owner.ephemeral_owner != self._tree.session_id:
            raise Refused(ErrorCode.NOT_CONTROLLER)
        epoch = self._tree.exists(layout.CONTROLLER_EPOCH)
        assert epoch is not None, "the election incremented the controller epoch"
        return epoch.version


def addresses(broker: BrokerInfo) -> set[tuple[str, int]]:
    """Return the addresses at which a broker can be reached."""
    return {(endpoint.host, endpoint.port) for endpoint in broker.endpoints}


def describe_broker(broker: BrokerInfo) -> str:
    """Return the name of a broker for messages: its id and addresses."""
    at = " and ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints)
    return f"Broker {broker.id}{f' at {at}' if at else ''}"


def decoded(path: str, decode: Callable[[bytes], T], data: bytes) -> T:
    """Return the content of a znode.  Raises BadZnodeError, which names the znode."""
    try:
        return decode(data)
    except BadZnodeError as bad:
        raise BadZnodeError(f"failed to read {path}: {bad}") from bad
