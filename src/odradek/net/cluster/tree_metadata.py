"""The cluster's metadata as one of its brokers reads it, and how it joins: the core's values and the tree.

All calls block.  How topics are changed is in metadata_changes.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, LeaderEpoch, ProducerId, TimestampMs, TopicName
from odradek.coordination import claims
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
from odradek.core.broker.effects import TakeProducerIds
from odradek.core.configs.topic_configs import told_invalid
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from odradek.core.transactions.producer_ids import ProducerIdBlock

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
# No broker gave out a greater id: its producer made it up, and to begin above it would leave none.
PRODUCER_ID_GIVEN_MAX = 1 << 62
# Of a topic whose own can't be read nothing is deleted until they can be.
UNREADABLE_OVERRIDES = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


class Membership(NamedTuple):
    """This broker's id and the cluster's."""

    broker_id: BrokerId
    cluster_id: str


class AnotherBroker(Unavailable):
    """A broker that is alive has this tree; the text is one sentence for a person."""


class Metadata:
    """One broker's door to a tree that others have, too.

    Methods raise TreeFailed when the tree does, BadZnodeError for foreign data.
    """

    def __init__(
        self, tree: Tree, where: str = "metadata.log.dir", registration_version: int = layout.WITH_FEATURES
    ) -> None:
        """`registration_version` is that in which a broker registers; messages name `where` the tree is."""
        self._tree = tree
        self.where = where
        self._registration_version = registration_version
        self._cluster_id = ""

    # Joining.

    def prepare(self, broker_id: BrokerId | None, reserved_max: int, new_cluster_id: str) -> Membership:
        """Makes what is missing in the tree; returns the broker's id and the cluster's.

        Without a broker id the next one above `reserved_max` is taken; without a cluster, `new_cluster_id` founds it.
        Raises AnotherBroker.
        """
        layout.ensure_startup_paths(self._tree)
        self._check_may_join()
        self._cluster_id = claims.cluster_id(self._tree, new_cluster_id)
        if broker_id is None:
            broker_id = claims.broker_id(self._tree, reserved_max)
        return Membership(broker_id, self._cluster_id)

    def _check_may_join(self) -> None:
        """Raises AnotherBroker for a broker that takes the tree for its own: it registers as controller at once."""
        controller = self._tree.exists(layout.CONTROLLER)
        for name in self._tree.children(layout.BROKER_IDS):
            stat = self._tree.exists(f"{layout.BROKER_IDS}/{name}")
            if stat is not None and controller is not None and stat.czxid == controller.czxid:
                raise AnotherBroker(detail=self._who_is_there(self.broker_named(name)))

    def check_id_is_free(self, broker: BrokerInfo, patience_ms: int) -> None:
        """Waits while the broker's id is registered at another address.  Raises AnotherBroker if that one lives on.

        Called before the logs are opened: with a copied configuration or disk they may be that broker's.  Our former
        self, at our own address, is waited for when they are open.
        """
        until = time.monotonic() + patience_ms / SECOND_MS
        while (other := self._registered(broker.id)) is not None and addresses(other) != addresses(broker):
            if time.monotonic() > until:
                raise AnotherBroker(detail=self._who_is_there(other))
            time.sleep(LOOK_SECONDS)

    def _registered(self, broker: BrokerId) -> BrokerInfo | None:
        """Returns how a broker is registered; None if it is not, or so that nobody can read it."""
        try:
            return self.broker_named(str(broker))
        except (NoNode, BadZnodeError):
            return None

    def enroll(self, broker: BrokerInfo, now: Callable[[], TimestampMs], patience_ms: int) -> int:
        """Registers the broker for as long as the session lives; returns its broker epoch.

        The node of an earlier session of this broker may still be there: that is waited for.  Raises AnotherBroker if
        the node's owner lives on.
        """
        path = layout.broker(broker.id)
        until = time.monotonic() + patience_ms / SECOND_MS
        while True:
            try:
                self._tree.create(path, self._registration(broker, now()), ephemeral=True)
            except NodeExists:
                stat = self._tree.exists(path)
                if stat is not None and stat.ephemeral_owner == self._tree.session_id:
                    return stat.czxid  # The answer to the creation was lost.
                if time.monotonic() > until:
                    raise AnotherBroker(detail=self._who_is_there(self.broker_named(str(broker.id)))) from None
                time.sleep(LOOK_SECONDS)
            else:
                stat = self._tree.exists(path)
                if stat is not None:
                    return stat.czxid

    def _registration(self, broker: BrokerInfo, now: TimestampMs) -> bytes:
        return layout.encode_broker(broker, now, version=self._registration_version)

    def _who_is_there(self, other: BrokerInfo) -> str:
        return f"{named(other)} is running already with the metadata in {self.where}."

    def tell_directory_failed(self, broker_id: BrokerId) -> None:
        """Has the controller ask a broker which of its replicas it can't reach any more."""
        path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
        self._tree.create(path, layout.encode_log_dir_event(broker_id), sequential=True)

    # Reading.

    def view(self) -> ClusterView:
        """Returns the cluster's topics; tells of those that can't be read."""
        topics, unreadable = self._all_topics()
        for name, why in unreadable.items():
            _LOG.error("topic %s is not served: %s", name, why)
        return ClusterView(self._cluster_id, topics=topics.values(), unreadable=unreadable)

    def topics(self) -> dict[TopicName, TopicInfo]:
        """Returns all topics but those that can't be read: one broken znode costs its topic, and not the others."""
        return self._all_topics()[0]

    def _all_topics(self) -> tuple[dict[TopicName, TopicInfo], dict[TopicName, str]]:
        """Returns the topics, and why each of the others can't be read."""
        topics: dict[TopicName, TopicInfo] = {}
        unreadable: dict[TopicName, str] = {}
        for name in map(TopicName, self._tree.children(layout.TOPICS)):
            try:
                topic = self.topic(name)
            except BadZnodeError as bad:
                unreadable[name] = str(bad)
                continue
            if topic is not None:
                topics[name] = topic
        return topics, unreadable

    def broker_named(self, name: str) -> BrokerInfo:
        broker_id = layout.broker_id(name)
        return self.read(layout.broker(broker_id), partial(layout.decode_broker, broker_id)).broker

    def topic(self, name: TopicName) -> TopicInfo | None:
        """Returns what is assigned and configured, without a look at the states: who leads is told by the controller.

        None where there is none.  Raises BadZnodeError.
        """
        try:
            assignment = self.read(layout.topic(name), layout.decode_topic)
        except NoNode:
            return None
        assigned = (replicas for _, replicas in sorted(assignment.partitions.items()))
        partitions = (PartitionInfo(NO_BROKER, LeaderEpoch(0), replicas, replicas) for replicas in assigned)
        return TopicInfo(name, assignment.topic_id, tuple(partitions), self.overrides(name))

    def overrides(self, name: TopicName) -> Mapping[str, str]:
        """Returns what is set on a topic; what keeps all of it, and says so, where that can't be read."""
        try:
            overrides = self.read(layout.config(layout.TOPIC_CONFIGS, name), layout.decode_config)
        except NoNode:
            return {}
        except BadZnodeError as bad:
            _LOG.error("%s: none of topic %s is deleted until it can be", bad, name)
            return UNREADABLE_OVERRIDES
        invalid = told_invalid(name, overrides)
        if invalid is not None:
            _LOG.error("%s", invalid)
        return overrides

    def read(self, path: str, decode: Callable[[bytes], T]) -> T:
        """Returns the content of a znode.  Raises BadZnodeError, which names the znode."""
        return decoded(path, decode, self._tree.get(path)[0])

    def are_being_deleted(self, names: Iterable[TopicName]) -> bool:
        """True if a topic of one of these names is not deleted whole."""
        return any(self._tree.exists(layout.delete_topic(name)) is not None for name in names)

    # Producer ids.

    def take_producer_ids(self, broker_id: BrokerId, effect: TakeProducerIds) -> ProducerIdBlock | None:
        """Returns a block that nobody had, beginning at `effect.at_least` or later; None if the tree can't give one."""
        at_least = effect.at_least if effect.at_least <= PRODUCER_ID_GIVEN_MAX else 0
        try:
            block = claims.producer_ids(self._tree, broker_id, at_least)
        except TreeFailed:
            return None
        return ProducerIdBlock(ProducerId(block.first), ProducerId(block.last))

    def give_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """Returns a block for a broker that asks this one as the controller.  Raises Refused."""
        self.check_controller()
        stat = self._tree.exists(layout.broker(broker_id))
        if stat is None:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if stat.czxid != broker_epoch:
            raise Refused(ErrorCode.STALE_BROKER_EPOCH)
        block = claims.producer_ids(self._tree, broker_id)
        return ProducerIdBlock(ProducerId(block.first), ProducerId(block.last))

    # The controller.

    def check_controller_epoch(self, epoch: int) -> None:
        """Raise Refused with STALE_CONTROLLER_EPOCH for an epoch above the latest: no controller is elected in it yet.

        Who is elected writes the epoch before all else.  A ZooKeeper server may lag behind, so that a lower epoch is
        believed only when a write has confirmed that it is the latest.
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
                text = f"controller epoch {epoch}, the latest in {self.where} is {latest}"
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
        """Returns the version of /controller_epoch in which this broker was elected.  Raises Refused."""
        try:
            owner = self._tree.exists(layout.CONTROLLER)
        except SessionExpired:
            raise Refused(ErrorCode.NOT_CONTROLLER) from None
        if owner is None or owner.ephemeral_owner != self._tree.session_id:
            raise Refused(ErrorCode.NOT_CONTROLLER)
        epoch = self._tree.exists(layout.CONTROLLER_EPOCH)
        assert epoch is not None, "it was counted up by the election"
        return epoch.version


def addresses(broker: BrokerInfo) -> set[tuple[str, int]]:
    """Returns where a broker can be reached."""
    return {(endpoint.host, endpoint.port) for endpoint in broker.endpoints}


def named(broker: BrokerInfo) -> str:
    """Returns how a sentence names a broker: by its id, and where it is."""
    at = " and ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints)
    return f"Broker {broker.id}{f' at {at}' if at else ''}"


def decoded(path: str, decode: Callable[[bytes], T], data: bytes) -> T:
    """Returns the content of a znode.  Raises BadZnodeError, which names the znode."""
    try:
        return decode(data)
    except BadZnodeError as bad:
        raise BadZnodeError(f"{path} can't be read: {bad}") from bad
