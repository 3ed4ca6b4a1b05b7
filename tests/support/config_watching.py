"""A broker that learns through a metadata tree of configs altered by other brokers; and one of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from odradek.base.secret import Secret
from odradek.base.units import LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.passwords import PasswordEncoder
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Tree, TreeFailed
from odradek.core.broker.config_handlers import apply_altered_configs, apply_remote_configs
from odradek.core.broker.effects import AlterConfigs, Altered, Changed, ConfigOwner, CreateTopics
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.edits import ConfigEdit, KeyEdit, Operation
from odradek.core.kernel.cluster_view import PartitionInfo, TopicInfo
from odradek.log.files.log_config import LogConfig
from odradek.net.cluster.config_watch import ConfigWatch
from odradek.net.cluster.config_writer import ConfigChanges
from odradek.net.cluster.tree_metadata import Metadata
from support.in_memory import US, Harness
from support.tree_members import TopicsOfTree
from support.waiting import until

T, BROKER, ALL = ConfigOwner(True, "t"), ConfigOwner(False, str(US)), ConfigOwner(False, "")
SET, DELETE = Operation.SET, Operation.DELETE
PASSWORD, LOCATION = (f"listener.name.x.ssl.keystore.{what}" for what in ("password", "location"))
SECRET = "hidden"
Keys = list[tuple[str, Operation, str]]
PARTITION = PartitionInfo(US, LeaderEpoch(0), (US,), (US,))


class Line:
    """A tree that records its reads, which fail while `failure` is set."""

    def __init__(self, tree: SqliteTree) -> None:
        self.tree = tree
        self.failure: TreeFailed | None = None
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tree, name)
        if name not in ("get", "get_all", "children", "exists"):
            return found

        def reading(where: str | Sequence[str], *watch: Any) -> Any:
            if self.failure is not None:
                raise self.failure
            self.read += [where] if isinstance(where, str) else where
            return found(where, *watch)

        return reading


class Side:
    """The config changes of one session; `unreadable` is the error of a keystore, if any."""

    def __init__(self, tree: Tree, configs: BrokerConfigs, secret: str = SECRET) -> None:
        self.tree = tree
        self.unreadable = ""
        self.in_force = 0  # The number of changes applied outside the core.
        self.changes = ConfigChanges(tree, US, configs, PasswordEncoder(Secret(secret)), self._prepare)

    def _prepare(self, before: BrokerConfigs, after: BrokerConfigs) -> Callable[[], None]:
        if self.unreadable and after.is_set(LOCATION) and before.describe([LOCATION]) != after.describe([LOCATION]):
            raise ConfigError(self.unreadable)
        return self._put_in_force

    def _put_in_force(self) -> None:
        self.in_force += 1

    def alter(self, edits: Mapping[ConfigOwner, Keys], now: int = 0) -> Altered:
        altered = self.try_to_alter(edits, now)
        assert not altered.refused, altered.refused
        return altered

    def try_to_alter(self, edits: Mapping[ConfigOwner, Keys], now: int = 0) -> Altered:
        owned = {owner: ConfigEdit(tuple(KeyEdit(*key) for key in keys)) for owner, keys in edits.items()}
        return self.changes.change(AlterConfigs(1, owned), TimestampMs(now))


class Writer(Side):
    """Another broker that alters configs."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree, BrokerConfigs.parse({}))
        self.metadata = Metadata(tree)
        self.metadata.prepare(US, 1000, "cluster")
        self.topics = TopicsOfTree(tree, self.metadata)

    def make(self, *names: str) -> list[TopicInfo]:
        made = [TopicInfo(TopicName(name), Uuid(name.encode().rjust(16)[-16:]), (PARTITION,)) for name in names]
        assert not self.topics.change(CreateTopics(1, tuple(made))).refused
        return made

    def put(self, path: str, data: bytes) -> None:
        if self.tree.exists(path) is None:
            self.tree.create(path)
        self.tree.set(path, data)

    def notice(self, data: bytes) -> str:
        return self.tree.create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", data, sequential=True)


class Watching(Side):
    """A broker that watches configs; the read ones are applied when `apply_changes` is called."""

    def __init__(self, tree: Tree, directory: Path, secret: str = SECRET) -> None:
        self.harness = Harness(directory)
        super().__init__(tree, self.harness.configs, secret)
        self.watch = ConfigWatch(tree, US, self.changes)
        self.readings: list[Altered | None] = []
        self._due: SimpleQueue[None] = SimpleQueue()

    def begin(self) -> None:
        """Start watching, as a broker does at startup."""
        self.watch.skip_existing_notices()
        configs, in_force = self.changes.read_starting_configs()
        self.harness.configs.replace_values(configs)
        in_force()

    def start(self) -> None:
        self.watch.start(lambda: self._due.put(None))
        self.apply_changes()

    def know(self, *topics: TopicInfo) -> None:
        """Add topics with replicas on the broker."""
        self.harness.learn(Changed(1, {topic.name: topic for topic in topics}))

    def apply_changes(self) -> None:
        """Read the configs once for each notification; unreadable ones are not reread."""
        while True:
            try:
                self._due.get_nowait()
            except Empty:
                return
            self.read()

    def read(self) -> Altered | None:
        altered = self.watch.read()
        self.readings.append(altered)
        if altered is not None:
            for _ in apply_remote_configs(self.harness.broker, altered, self.harness.now):
                pass
        return altered

    def alter_here(self, edits: Mapping[ConfigOwner, Keys]) -> None:
        """Alter configs on this broker."""
        for _ in apply_altered_configs(self.harness.broker, self.try_to_alter(edits), self.harness.now):
            pass

    def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            self.apply_changes()
            return condition()

        until(holds)

    def set_on(self, topic: str = "t") -> Mapping[str, str]:
        return self.harness.broker.view.topics[TopicName(topic)].configs

    def log_config(self, topic: str = "t") -> LogConfig:
        return self.harness.broker.partitions[TopicPartition(TopicName(topic), 0)].log.config

    def value(self, key: str) -> int:
        return self.harness.configs.int(key)
