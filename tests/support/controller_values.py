"""Random contents of messages between brokers and the controller, within the limits of a version."""

from __future__ import annotations

from random import Random

from odradek.api.cluster import stop_replica
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.controller.broker_request_batch import (
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, LeaderAndIsr, PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.core.partition.leading import Leading
from odradek.core.partition.partition import Partition
from support.without_followers import MANAGER

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NAMES = [TopicName(name) for name in ("a", "b", "__consumer_offsets", "ü" * 100)]
INTS = (0, 1, 2, 7, 2**31 - 1)
IDS = {name: Uuid(bytes([65 + number]) * 16) for number, name in enumerate(NAMES)}
BY_ID = {topic_id: name for name, topic_id in IDS.items()}


def sent(request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas) -> ControlRequest:
    return ControlRequest(BrokerId(1), 11, BrokerId(2), 7, request)


def led(name: TopicPartition) -> Leading:
    """Return a leadership without writes: its partition has no log."""
    info = PartitionInfo(BrokerId(1), LeaderEpoch(0), (), ())
    configs = BrokerConfigs.parse({}).for_topic({})
    return Leading(Partition(name, None, info, configs, MANAGER), info, MANAGER, Moment(TimestampMs(0), 0))


class ValueMaker:
    """Random values, determined by a seed."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)

    def number(self) -> int:
        return self.random.choice(INTS)

    def some_brokers(self, first: int = 0) -> tuple[BrokerId, ...]:
        return tuple(map(BrokerId, self.random.sample(range(9), self.random.randint(first, 4))))

    def state(self, *, recovers: bool = False, has_controller: bool = True) -> LeaderAndIsr:
        return LeaderAndIsr(
            BrokerId(self.random.randint(-2, 5)),
            LeaderEpoch(self.number()),
            self.some_brokers(),
            self.random.randint(0, 1) if recovers else 0,
            self.number() if has_controller else 0,
            self.number(),
        )

    def partitions(self) -> list[TopicPartition]:
        every = [TopicPartition(name, index) for name in NAMES for index in (0, 1, 5, 2**31 - 1)]
        return self.random.sample(every, self.random.randint(0, len(every)))

    def ids(self, partitions: list[TopicPartition]) -> dict[TopicName, Uuid]:
        names = {one.topic for one in partitions}
        return {name: Uuid(self.random.randbytes(16)) for name in NAMES if name in names and self.random.random() < 0.8}

    def endpoint(self, listener: str, protocol: str = "PLAINTEXT") -> Endpoint:
        return Endpoint(listener, self.random.choice(("h", "::1", "a.b")), self.random.randint(0, 65_535), protocol)

    def become(self, version: int) -> BecomeLeaderOrFollower:
        partitions = self.partitions()
        states = {
            one: AssignedState(
                self.state(recovers=version >= 6),
                self.some_brokers(),
                self.some_brokers() if version >= 3 else (),
                self.some_brokers() if version >= 3 else (),
                is_new=version >= 1 and self.random.random() < 0.5,
            )
            for one in partitions
        }
        leaders = tuple(BrokerInfo(one, (self.endpoint("INSIDE"),)) for one in self.some_brokers())
        return BecomeLeaderOrFollower(states, self.ids(partitions) if version >= 5 else {}, leaders)

    def update(self, version: int) -> UpdateMetadata:
        partitions = self.partitions()
        infos = {
            one: PartitionMetadata(self.state(), self.some_brokers(), self.some_brokers() if version >= 4 else ())
            for one in partitions
        }
        brokers = tuple(self.broker(one, version) for one in self.some_brokers())
        is_full = version >= 8 and self.random.random() < 0.5
        return UpdateMetadata(infos, self.ids(partitions) if version >= 7 else {}, brokers, is_full)

    def broker(self, broker: BrokerId, version: int) -> BrokerInfo:
        protocols = self.random.sample(PROTOCOLS, self.random.randint(1, 4)) if version else ["PLAINTEXT"]
        names = {one: f"L{one}" if version >= 3 else one for one in protocols}
        rack = self.random.choice((None, "r1", "ü")) if version >= 2 else None
        return BrokerInfo(broker, tuple(self.endpoint(names[one], one) for one in protocols), rack)

    def stops(self, version: int) -> StopReplicas:
        epochs = {one: LeaderEpoch(self.random.randint(-2, 9)) for one in self.partitions()}
        if version < stop_replica.WITH_EPOCHS_FROM:
            epochs = dict.fromkeys(epochs, NO_EPOCH)
        return StopReplicas(epochs, bool(epochs) and self.random.random() < 0.5)


def proposals(maker: ValueMaker, version: int, leader: BrokerId) -> list[ProposedIsr]:
    made = []
    for partition in maker.partitions():
        isr = maker.some_brokers(first=1)
        state = maker.state(recovers=version >= 1, has_controller=False)._replace(leader=leader, isr=isr)
        epochs = tuple(maker.random.choice((-1, 5, 2**40)) for _ in isr)
        made.append(ProposedIsr(led(partition), state, epochs))
    return made
