"""One broker on one simulated node: its processes start and end, its disk and the metadata tree persist.

start ──> booting ──> serving ──> stop (clean) ──┐
   ^                     ├──> kill ──────────────┤  the process is gone; the kernel has all written data
   └─────────────────────┴──> lose_power ────────┘  unsynced data is lost or torn
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from random import Random

from odradek.base.units import INT32_MAX, BrokerId
from odradek.base.uuids import Uuid, to_text
from odradek.coordination.tree import TreeFailed
from odradek.core.broker.broker import Broker
from odradek.core.broker.replicas import is_assigned
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, Endpoint, TopicInfo
from odradek.core.kernel.entropy import Entropy
from odradek.core.partition.storage import Storage, log_config
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.net.cluster.single_broker_metadata import SingleBrokerMetadata
from odradek.net.cluster.tree_metadata import Membership, Metadata
from sim.simclock import MILLISECOND_US, SECOND_US, Action, SimNode
from sim.simconnection import SimConnection
from sim.simdisk import SimDisk
from sim.simnet import SimNetwork
from sim.simshell import SimShell, clean
from sim.simsocket import SimSocket
from sim.simtree import SESSION_TIMEOUT_MS, SimTree, SimTreeServer
from support.tree_members import TopicsOfTree

PORT = 9092
DIRECTORY = "/data"
LISTENER = "PLAINTEXT"
BOOT_US = (20 * MILLISECOND_US, 800 * MILLISECOND_US)
RESTART_DELAY_US = 500 * MILLISECOND_US
FINISH_US_MAX = 30 * SECOND_US

Prepare = Callable[[SimShell], None]


class SimBroker:
    """One broker. `prepare` receives each new process before it serves, so that a test can inject a bug."""

    def __init__(
        self,
        broker_id: BrokerId,
        node: SimNode,
        network: SimNetwork,
        tree: SimTreeServer,
        configs: BrokerConfigs,
        *,
        session_dies_with_process: bool = True,
        prepare: Prepare | None = None,
    ) -> None:
        self.id = broker_id
        self.node = node
        self.disk = SimDisk()
        self.disk.drops_unsynced = True
        self.shell: SimShell | None = None  # While it serves.
        self._network = network
        self._tree_server = tree
        self._tree: SimTree | None = None
        self._configs = configs
        self._session_dies = session_dies_with_process
        self._prepare = prepare
        self._random = Random(f"{node.name} {node.random.random()}")
        self._uuids = itertools.count(1)
        self._endpoint = Endpoint(LISTENER, node.name, PORT)
        self.starts = 0
        self.on_ended: Action = lambda: None  # Whoever looks after it.
        self.watch_cleaner: Callable[[Clean | Cleaned], None] = lambda _: None
        self.run_clean = clean
        self.on_dropped: Action = lambda: None  # Called when a failed sync has dropped data.

    # From outside.

    def start(self) -> None:
        """Start a new process, which serves after a while."""
        assert self.shell is None
        self.node.boot()
        self.starts += 1
        self.node.after(self._random.randrange(*BOOT_US), self._serve)

    def kill(self) -> None:
        """Kill the process, as kill -9 does."""
        self.node.end_process()
        self._network.process_died(self.node)
        self._release_disk()
        self._end()

    def lose_power(self) -> None:
        self.node.lose_power()
        self._network.power_lost(self.node)
        self._replace_disk(self.disk.crash(self._random))
        self._end()

    def stop(self) -> None:
        """Stop the process, as SIGTERM does: complete running and parked requests, and close the logs."""
        shell = self.shell
        assert shell is not None, "it serves"
        self._network.stop_listening(self.node, PORT)
        for connection in list(shell.connections):
            connection.stop_reading()
        self._finish(shell, self.node.clock.now_us + FINISH_US_MAX)

    @property
    def is_running(self) -> bool:
        return self.shell is not None

    @property
    def is_offline(self) -> bool:
        """Return True if the broker serves without some of its logs."""
        return self.shell is not None and not all(one.is_online for one in self.shell.broker.partitions.values())

    # Its life.

    def _serve(self) -> None:
        self._tree = self._tree_server.open(SESSION_TIMEOUT_MS)
        metadata = SingleBrokerMetadata(self._tree)
        try:
            broker, changes, topics = self._open(self._tree, metadata)
        except (TreeFailed, DiskFailed):  # The last process's session still exists, or the disk fails.
            self._tree.close()
            self._release_disk()
            self.node.after(RESTART_DELAY_US, self._serve)
            return
        shell = self.shell = SimShell(
            self.node, self._random, broker, self.starts, metadata=metadata, change=changes.change
        )
        shell.watch_cleaner, shell.run_clean = self.watch_cleaner, self.run_clean
        shell.end_process = lambda: self.kill() if self.shell is shell else None
        if self._prepare is not None:
            self._prepare(shell)
        self._beat()
        self._network.listen(self.node, PORT, self._accept)
        shell.announce_topics(topics)

    def _open(self, tree: SimTree, metadata: SingleBrokerMetadata) -> tuple[Broker, TopicsOfTree, list[TopicInfo]]:
        """Open the tree and the logs, as app/serve/cluster_joining does; raise TreeFailed.

        Also return the writer of topic changes, which the broker is notified of.
        """
        now = self.node.now()
        membership = metadata.prepare(self.id, INT32_MAX, to_text(self._new_uuid()))
        storage = Storage([self._directory(metadata, membership)])
        us = BrokerInfo(self.id, (self._endpoint,))
        metadata.register_broker(us, lambda: now.wall, 0)
        changes = TopicsOfTree(tree, metadata)
        view = metadata.view()
        if view.topics:
            storage.set_strays_aside(partial(is_assigned, self.id, view), now.wall)
        entropy = Entropy(lambda: self._random.randrange(INT32_MAX), self._new_uuid)
        alone = ClusterView(membership.cluster_id, brokers={us.id: us})
        broker = Broker(self.id, alone, storage, self._configs, entropy)
        broker.start(now)
        return broker, changes, list(view.topics.values())

    def _directory(self, metadata: Metadata, membership: Membership) -> LogDirectory:
        topics = metadata.topics()
        return open_log_directory(
            self.disk,
            DIRECTORY,
            self.node.now().wall,
            broker_id=self.id,
            cluster_id=membership.cluster_id,
            config_of=lambda name: log_config(
                self._configs.for_topic(topics[name].configs if name in topics else {}),
            ),
        )

    def _new_uuid(self) -> Uuid:
        return Uuid((self.id << 64 | next(self._uuids)).to_bytes(16))

    def _accept(self, socket: SimSocket) -> None:
        if self.shell is not None and not socket.is_over:
            self.shell.connections[SimConnection(self.shell, socket, self._endpoint)] = None

    def _beat(self) -> None:
        if self._tree is not None:
            self._tree.beat()
            self.node.after(SESSION_TIMEOUT_MS * MILLISECOND_US // 3, self._beat)

    # Its end.

    def _finish(self, shell: SimShell, until_us: int) -> None:
        """Wait until all writes are synced, then end."""
        shell.settle()
        if shell.is_writing and self.node.clock.now_us < until_us:
            self.node.after(MILLISECOND_US, lambda: self._finish(shell, until_us))
            return
        shell.stop_answering()
        for connection in list(shell.connections):
            connection.close()
        shell.threads.finish()
        problems = shell.broker.stop(self.node.now())
        assert not problems or self.disk.failures, problems
        if self._tree is not None:
            self._tree.close()
        self.node.end_process()
        self._network.process_died(self.node)
        self._release_disk()
        self._end()

    def _release_disk(self) -> None:
        if self.disk.has_dropped:
            self.on_dropped()
        self._replace_disk(self.disk.kill())

    def _replace_disk(self, survivor: SimDisk) -> None:
        survivor.fail_as(self.disk)
        self.disk = survivor

    def _end(self) -> None:
        self.shell = None
        tree, self._tree = self._tree, None
        if tree is not None:
            tree.close() if self._session_dies else tree.abandon()
        self.on_ended()
