"""Members of the simulated cluster with real brokers: their registry, logs and view of the cluster.

The result of each request is compared with the state of the simpler member (simcontroller). Clients of every broker
write to its partitions; acknowledged records stay as long as their topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Container

from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, BrokerId, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.core.broker.broker import Broker
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.disks.flushes import Sync
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView
from odradek.core.kernel.entropy import Entropy
from odradek.core.partition.storage import Storage, log_config
from odradek.log.directory.directory_loading import open_log_directory
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from sim.simcontroller import SimCluster, SimMember
from sim.simdisk import SimDisk

DIRECTORY = "/data"
CONFIGS = BrokerConfigs.parse({})


class SimControlled(SimMember):
    """A member with a broker."""

    cluster: ControlledCluster

    def __init__(self, cluster: SimCluster, broker: BrokerId) -> None:
        super().__init__(cluster, broker)
        self.disk = SimDisk()
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        uuids = itertools.count(1)
        logs = open_log_directory(
            self.disk,
            DIRECTORY,
            self._now(),
            broker_id=self.id,
            cluster_id="cluster",
            config_of=lambda _: log_config(self.cluster.configs.for_topic({})),
        )
        entropy = Entropy(
            lambda: self.cluster.random.randrange(INT32_MAX),
            lambda: Uuid((self.id << 96 | self.starts << 64 | next(uuids)).to_bytes(16)),
        )
        view = ClusterView("cluster", self.id, {self.id: BrokerInfo(self.id)})
        self.broker = Broker(self.id, view, Storage([logs]), self.cluster.configs, entropy)
        self.broker.start(self.node.now())
        super().start()

    def kill(self) -> None:
        super().kill()
        for directory in self.broker.storage:
            directory.abandon()

    def fail_directory(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            here = self.broker.partitions.get(partition)
            if here is not None:
                here.take_offline()
        super().fail_directory(*partitions)

    def take(self, sent: ControlRequest) -> dict[TopicPartition, ErrorCode] | None:
        remembered = super().take(sent)
        if self.epoch < 0:
            return None
        if self.broker.controlled.broker_epoch != self.epoch:
            self.broker.on_registered(self.epoch)
        try:
            errors = whole(self.broker.apply_controller_request(sent, {}, self.node.now()))
        except Refused:
            assert remembered is None, f"{sent} is refused"
            return None
        assert remembered is not None, f"{sent} is taken"
        self.apply_full_disk(remembered)
        # A repeated request fails as in Apache Kafka, and the controller ignores that.
        reported = {one: code for one, code in errors.items() if code is not ErrorCode.STALE_CONTROLLER_EPOCH}
        assert reported == {
            one: code for one, code in remembered.items() if code is not ErrorCode.STALE_CONTROLLER_EPOCH
        }
        self.check()
        return errors

    def apply_full_disk(self, remembered: dict[TopicPartition, ErrorCode]) -> None:
        """Apply failures of the broker for lack of space; no disk is full here."""

    def check(self) -> None:
        """Check that the broker leads its assigned partitions, and returns current metadata to clients."""
        led = {one for one, state in self.states.items() if state.state.leader == self.id}
        leading = {name: one.leading for name, one in self.broker.partitions.items() if one.leading is not None}
        assert leading.keys() == led, f"{self.id} leads {sorted(leading)}, not {sorted(led)}"
        for name, one in leading.items():
            assert one.epoch == self.states[name].state.leader_epoch
        topics = self.broker.view.topics
        returned = {
            TopicPartition(topic.name, index): info
            for topic in topics.values()
            for index, info in enumerate(topic.partitions)
            if info.replicas
        }
        assert returned.keys() == self.metadata.keys()
        for name, info in returned.items():
            state, replicas, offline = self.metadata[name]
            epochs = state.partition_epoch, state.controller_epoch
            assert info == (state.leader, state.leader_epoch, replicas, state.isr, offline, *epochs)

    # What its clients do.

    def write(self, partition: TopicPartition, value: bytes) -> bool:
        """Append a value; return True if it is safe."""
        leading = self.broker.partitions[partition].leader()
        batch = Batch.checked(memoryview(encode_batch([(None, value, (), self._now())])))
        append = self.broker.stage(leading, batch, self.node.now(), all_replicas=True)
        self.broker.commit(self.node.now())
        for effect in self.broker.take_effects():
            if isinstance(effect, Sync):
                self.broker.on_event(effect.run(), self.node.now())
        return append.is_safe

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        log = self.broker.partitions[partition].log
        records = log.read(Offset(0), INT32_MAX, log.end_offset).read()
        return [record.value for batch in iter_batches(memoryview(records)) for record in decode(batch)]


class ControlledCluster(SimCluster):
    """A cluster of such members, and the records acknowledged to their clients."""

    members: dict[BrokerId, SimControlled]  # type: ignore[assignment]

    def __init__(self, seed: int, brokers: int = 3) -> None:
        super().__init__(seed, brokers)
        self.configs = CONFIGS
        self.members = {id: SimControlled(self, id) for id in self.members}
        self._numbers = itertools.count()
        self.acknowledged: dict[tuple[Uuid, TopicPartition], list[bytes]] = {}

    def write(self, member: SimControlled) -> None:
        """Let a client write to a partition that the broker leads."""
        led = sorted(name for name, one in member.broker.partitions.items() if one.leading is not None)
        if not led:
            return
        partition = self.random.choice(led)
        value = b"%d" % next(self._numbers)
        if member.write(partition, value):
            topic_id = member.topic_ids[partition.topic]
            self.acknowledged.setdefault((topic_id, partition), []).append(value)

    def check(self) -> None:
        super().check()
        topics, marked = self.topics(), self.admin.children(layout.DELETE_TOPICS)
        for member in self.members.values():
            if member.is_alive:
                member.check()
                self.check_logs(member, topics.keys())
        for (topic_id, partition), values in self.acknowledged.items():
            topic, state = topics.get(partition.topic), self.state(*partition)
            if topic is None or topic.topic_id != topic_id or state is None or state.leader not in self.members:
                continue
            if partition.topic in marked:
                continue  # Its replicas are deleted one after the other.
            assert self.members[state.leader].values(partition) == values, f"{partition} on {state.leader}"

    def check_logs(self, member: SimControlled, topics: Container[TopicName]) -> None:
        names = {name for directory in member.broker.storage for name in directory.logs}
        strange = {name for name in names if name.topic not in topics}
        assert not strange, f"{member.id} has {strange}, whose topics are gone"
