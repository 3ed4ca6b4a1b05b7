"""Stories of three brokers and one partition, played step by step; the language of test_named_histories.py."""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import LeaderAndIsr
from sim.simidempotent import ALL
from sim.simreplicaclients import SimReplicaClients
from sim.simreplicated import ReplicatedCluster, SimReplicated

TOPIC = TopicName("topic-0")
PARTITION = TopicPartition(TOPIC, 0)
MOMENT = 0.3  # Too short for a session to expire.
AGES = 5.0  # Long enough for sessions to expire and the cluster to settle.
NEWEST = "3.9"
BY_NAME = 11  # A version of Produce.


class Story:
    """Three brokers without faults, and a partition led by the first of its replicas."""

    def __init__(self, *replicas: int, min_isr: int = 1, protocol: str = NEWEST, controller: int = 0) -> None:
        """Create a story; `protocol` is inter.broker.protocol.version."""
        self.cluster = ReplicatedCluster(seed=1)
        settings = {
            **self.cluster.settings,
            "min.insync.replicas": str(min_isr),
            "inter.broker.protocol.version": protocol,
        }
        self.cluster.configs = BrokerConfigs.parse(settings)
        self.cluster.lines.loses_some = False
        self.clients = SimReplicaClients(self.cluster)
        if protocol != NEWEST:
            self.clients.produce_version = BY_NAME
        self.member(controller).start()
        self.cluster.run(1)
        for member in self.cluster.members.values():
            if not member.is_alive:
                member.start()
        self.cluster.run(1)
        self.cluster.create_topic(TOPIC, [replicas])
        self.cluster.run(AGES)

    def member(self, broker: int) -> SimReplicated:
        return self.cluster.members[BrokerId(broker)]

    def end(self, broker: int) -> int:
        """Return the end of a broker's log."""
        return self.member(broker).broker.partitions[PARTITION].log.end_offset

    def high_watermark(self, broker: int) -> int:
        """Return a broker's high watermark of the partition."""
        return self.member(broker).broker.partitions[PARTITION].positions.high_watermark

    def leads(self, broker: int) -> bool:
        """Return True if a broker believes it is the leader."""
        partition = self.member(broker).broker.partitions.get(PARTITION)
        return partition is not None and partition.leading is not None

    @property
    def state(self) -> LeaderAndIsr:
        state = self.cluster.state(*PARTITION)
        assert state is not None
        return state

    @property
    def leader(self) -> int:
        return self.state.leader

    def cut(self, sender: int, *receivers: int) -> None:
        """Cut the network from one broker to others."""
        self.cluster.lines.cuts |= {(BrokerId(sender), BrokerId(receiver)) for receiver in receivers}

    def part(self, broker: int, *others: int) -> None:
        """Cut the network between one broker and others in both directions."""
        self.cut(broker, *others)
        for other in others:
            self.cut(other, broker)

    def join(self) -> None:
        """Heal the network."""
        self.cluster.lines.cuts.clear()

    def write(self, acks: int = ALL) -> list[ErrorCode | None]:
        """Send a record to the leader; the returned object contains the outcome once it is known."""
        outcome: list[ErrorCode | None] = []
        topic_id = self.cluster.assignment(TOPIC).topic_id
        self.clients.learn_leader(topic_id, PARTITION, self.state)
        self.clients.write(topic_id, PARTITION, acks, outcome.append, count=1)
        return outcome

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Run exactly until a condition holds."""
        clock = self.cluster.clock
        assert clock.run_while(lambda: not condition(), clock.now_us + 10_000_000)

    def until(self, outcome: list[ErrorCode | None]) -> ErrorCode | None:
        """Return an outcome as soon as it is known."""
        self.wait_for(lambda: bool(outcome))
        return outcome[0]

    def written(self, acks: int = ALL) -> None:
        """Write a record, with retries until the new leader has learned of its leadership."""
        while (error := self.until(self.write(acks))) is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            pass
        assert error is ErrorCode.NONE, f"{error!r}"

    def ends(self) -> None:
        """Run until there is no more activity, and check that all replicas have the acknowledged records."""
        self.cluster.run(AGES)
        self.cluster.check()
