"""One broker's session of a tree shared by several brokers, and its operations on it."""

from __future__ import annotations

from pathlib import Path

from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Tree
from odradek.core.broker.effects import Change, Changed, DeleteTopics
from odradek.core.controller.controller_steps import Elect, ReadDeletions, RemoveTopics
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from odradek.net.cluster.metadata_changes import MetadataChanges
from odradek.net.cluster.tree_metadata import Metadata
from odradek.net.controller.controller_tree import ControllerTree

US = BrokerId(1)
T = TopicName("t")
LONG_MS = 300_000


def controller_door(tree: Tree, broker: BrokerId = US) -> ControllerTree:
    return ControllerTree(tree, broker, lambda: TimestampMs(5), lambda _: False, lambda _: None)


class TopicsOfTree:
    """A self-elected controller that creates and deletes topics in a tree, without regard to leaders."""

    def __init__(self, tree: Tree, metadata: Metadata) -> None:
        """Create the controller, and complete the deletions of an earlier one."""
        self._door = controller_door(tree)
        self._door.execute(Elect())
        marked = ReadDeletions()
        self._door.execute(marked)
        self._door.execute(RemoveTopics(marked.result))
        self._changes = MetadataChanges(tree, metadata)

    def change(self, change: Change) -> Changed:
        changed = self._changes.change(change)
        if isinstance(change, DeleteTopics):  # At once, as if no broker had replicas of them.
            self._door.execute(RemoveTopics(list(changed.topics)))
        return changed


class TreeMember:
    def __init__(self, path: Path, broker: BrokerId = US) -> None:
        self.tree = SqliteTree(path, poll_ms=5)
        self.broker = broker
        self.metadata = Metadata(self.tree, "the folder")
        self.change = MetadataChanges(self.tree, self.metadata).change
        try:
            self.metadata.prepare(broker, 1000, f"cluster-of-{broker}")
        except BaseException:
            self.tree.close()
            raise

    def register_broker(self, timeout_ms: int = LONG_MS) -> int:
        info = BrokerInfo(self.broker, (Endpoint("PLAINTEXT", "127.0.0.1", 9090 + self.broker),))
        return self.metadata.register_broker(info, lambda: TimestampMs(5), timeout_ms)

    def is_elected(self) -> bool:
        elect = Elect()
        controller_door(self.tree, self.broker).execute(elect)
        return elect.result is not None


def topic(name: str = T, partitions: int = 2, number: int = 1) -> TopicInfo:
    one = PartitionInfo(US, LeaderEpoch(0), (US,), (US,))
    return TopicInfo(TopicName(name), Uuid(number.to_bytes(16, "big")), (one,) * partitions, {"retention.ms": "1"})
