"""Creation, growth and deletion of topics in the tree, on clients' requests, by the controller broker.

The assignment and configuration are written in the same form as by Apache Kafka under ZooKeeper. The controller watches
them and elects the leaders. A topic is marked for deletion, and deleted once all its replicas are deleted.

One multi changes one topic, so a topic exists completely or not at all. A concurrent change by another broker appears
as NodeExists or BadVersion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import (
    Check,
    Create,
    Delete,
    DiskBroken,
    MultiFailed,
    NodeExists,
    NoNode,
    NoRoom,
    Operation,
    SessionExpired,
    SetData,
    Tree,
    TreeFailed,
)
from odradek.core.broker.effects import Change, Changed, CreatePartitions, CreateTopics, DeleteTopics, NewPartitions
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.net.cluster.tree_metadata import Metadata, decoded

_LOG = logging.getLogger(__name__)


class MetadataChanges:
    """Topic changes of one broker, which are effective only while it is the controller."""

    def __init__(self, tree: Tree, metadata: Metadata) -> None:
        self._tree = tree
        self._metadata = metadata

    def change(self, change: Change) -> Changed:
        """Apply a change, topic by topic; return a topic's refusal in the result and never raise it."""
        changed: dict[TopicName, TopicInfo | None] = {}
        refused: dict[TopicName, Refused] = {}
        for name, operations in self._operations(change).items():
            try:
                self._write(operations())
                changed[name] = None if isinstance(change, DeleteTopics) else self._metadata.topic(name)
            except MultiFailed as failed:
                refused[name] = _refusal(name, failed.error)
            except TreeFailed as failed:
                refused[name] = _refusal(name, failed)
            except BadZnodeError as bad:
                _LOG.error("failed to change topic %s: %s", name, bad)
                refused[name] = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(bad))
            except Refused as refusal:
                refused[name] = refusal
        return Changed(change.token, changed, refused)

    def _write(self, operations: list[Operation]) -> None:
        if not operations:
            return
        try:
            self._tree.multi([Check(layout.CONTROLLER_EPOCH, self._metadata.check_controller()), *operations])
        except MultiFailed as failed:
            if failed.index == 0:
                raise Refused(ErrorCode.NOT_CONTROLLER) from failed
            raise

    def _operations(self, change: Change) -> Mapping[TopicName, Callable[[], list[Operation]]]:
        """Return the operations of each topic separately, so that a deleted topic does not block the others."""
        match change:
            case CreateTopics():
                return {topic.name: partial(self._creation, topic) for topic in change.topics}
            case CreatePartitions():
                return {name: partial(self._growth, name, growth) for name, growth in change.topics.items()}
            case DeleteTopics():
                return {name: partial(self._deletion, name, topic_id) for name, topic_id in change.topics.items()}

    def _growth(self, name: TopicName, growth: NewPartitions) -> list[Operation]:
        self._tree.check_room()
        data, stat = self._tree.get(layout.topic(name))
        assignment = decoded(layout.topic(name), layout.decode_topic, data)
        first = len(assignment.partitions)
        # If the topic has grown since this was planned, the first partitions exist already.
        added = growth.added[first - growth.first :] if first >= growth.first else ()
        if not added:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic '{name}' already has {first} partition(s).")
        more = {first + place: info.replicas for place, info in enumerate(added)}
        grown = assignment._replace(partitions={**assignment.partitions, **more})
        return [SetData(layout.topic(name), layout.encode_topic(grown), stat.version)]

    def _deletion(self, name: TopicName, topic_id: Uuid) -> list[Operation]:
        if self._metadata.read(layout.topic(name), layout.decode_topic).topic_id != topic_id:
            raise NoNode(layout.topic(name), "A topic with the same name but another id exists.")
        mark = layout.delete_topic(name)
        return [] if self._tree.exists(mark) is not None else [Create(mark)]

    def _creation(self, topic: TopicInfo) -> list[Operation]:
        self._tree.check_room()
        replicas = {index: info.replicas for index, info in enumerate(topic.partitions)}
        config = layout.config(layout.TOPIC_CONFIGS, topic.name)
        # A configuration may remain from a topic of this name, or may have been set before the topic existed.
        stat = self._tree.exists(config)
        data = layout.encode_config(topic.configs)
        mark = layout.delete_topic(topic.name)
        return [
            # Fails while a topic of this name is being deleted, even if its own node is already deleted.
            Create(mark),
            Delete(mark),
            Create(config, data) if stat is None else SetData(config, data, stat.version),
            Create(layout.topic(topic.name), layout.encode_topic(layout.TopicAssignment(replicas, topic.id))),
        ]


def _refusal(name: TopicName, error: TreeFailed) -> Refused:
    if isinstance(error, NodeExists):
        return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if isinstance(error, NoNode):
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if isinstance(error, SessionExpired):  # This broker is no longer the controller.
        return Refused(ErrorCode.NOT_CONTROLLER)
    if isinstance(error, NoRoom | DiskBroken):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"failed to change the metadata: {error}")
