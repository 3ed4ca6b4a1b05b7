"""Histories in which Apache Kafka once lost records or let logs part, and what became of replicas that were cut off.

Each is played as it was, step by step, by real brokers in one process; a delayed EndTxn (KAFKA-17754) is among the
scenarios (txn_delayed_end.txt), as it takes no other broker.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.configs.broker import BrokerConfigs
from odradek.record.builder import encode_batch
from sim.simidempotent import ALL
from sim.simreplicaclients import LEADER, SimReplicaClients
from sim.simreplicated import ReplicatedCluster, SimReplicated

TOPIC = TopicName("topic-0")
PARTITION = TopicPartition(TOPIC, 0)
AGES = 5.0  # Until sessions are over, and all is as it stays.


class Story:
    """Three brokers of which all are well, and a partition that the first of its replicas leads."""

    def __init__(self, *replicas: int, min_isr: int = 1) -> None:
        self.cluster = ReplicatedCluster(seed=1)
        settings = {**self.cluster.settings, "min.insync.replicas": str(min_isr)}
        self.cluster.configs = BrokerConfigs.parse(settings)
        self.cluster.lines.loses_some = False
        self.clients = SimReplicaClients(self.cluster)
        for member in self.cluster.members.values():
            member.start()
        self.cluster.create_topic(TOPIC, [replicas])
        self.cluster.run(AGES)

    def member(self, broker: int) -> SimReplicated:
        return self.cluster.members[BrokerId(broker)]

    @property
    def leader(self) -> int:
        state = self.cluster.state(*PARTITION)
        assert state is not None
        return state.leader

    def write(self, acks: int = ALL) -> list[ErrorCode | None]:
        """Sends a batch; what is returned has its outcome once that is known."""
        outcome: list[ErrorCode | None] = []
        topic_id = self.cluster.assignment(TOPIC).topic_id
        self.clients.write(topic_id, PARTITION, acks, outcome.append)
        return outcome

    def until(self, outcome: list[ErrorCode | None]) -> ErrorCode | None:
        """Runs until an outcome is known, and not a moment longer."""
        clock = self.cluster.clock
        assert clock.run_while(lambda: not outcome, clock.now_us + 10_000_000)
        return outcome[0]

    def written(self, acks: int = ALL) -> None:
        assert self.until(self.write(acks)) is ErrorCode.NONE

    def ends(self) -> None:
        """All is calm, and everybody has what clients were told of."""
        self.cluster.run(AGES)
        self.cluster.check()


def test_kip_101_logs_do_not_part_where_a_leader_had_more_than_its_follower() -> None:
    """A leader has a record that its follower lacks, and dies; the follower leads, and writes another in its place.

    By offsets alone the logs looked alike when the first one came back.
    """
    story = Story(0, 1)
    story.written()
    story.cluster.lines.cuts.add((BrokerId(0), BrokerId(1)))  # Nothing comes to the follower any more.
    story.written(acks=LEADER)
    story.member(0).kill()
    story.cluster.lines.cuts.clear()
    story.cluster.run(AGES)
    assert story.leader == 1
    story.written()
    story.member(0).start()
    story.ends()


def test_kip_279_logs_do_not_part_over_two_fast_changes_of_leaders() -> None:
    """Both replicas have written alone, in epochs that the other has nothing of, when they meet."""
    story = Story(0, 1, 2)
    story.written()
    for leader in (0, 1):
        for follower in {0, 1, 2} - {leader}:
            story.cluster.lines.cuts.add((BrokerId(leader), BrokerId(follower)))
        assert story.leader == leader
        story.written(acks=LEADER)
        story.member(leader).kill()
        story.cluster.lines.cuts.clear()
        story.cluster.run(AGES)
    assert story.leader == 2
    story.written()
    story.member(0).start()
    story.member(1).start()
    story.ends()


def test_a_leader_that_has_come_back_knows_what_is_sent_again() -> None:
    """A producer with five batches in flight has no answer; its leader stops as planned, comes back and leads again.

    From a snapshot with the last batch alone four of them were out of order, which is the end of librdkafka's producer.
    """
    story = Story(0, 1, 2)
    topic_id = story.cluster.assignment(TOPIC).topic_id
    for _ in range(2):
        for sequence in range(5):
            outcome: list[ErrorCode | None] = []
            records = encode_batch(
                [(None, b"%d" % sequence, (), story.clients.time())],
                producer_id=ProducerId(1000),
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
            )
            story.clients.send(topic_id, PARTITION, [b"%d" % sequence], records, ALL, outcome.append)
            assert story.until(outcome) is ErrorCode.NONE
        story.cluster.shut_down(BrokerId(0))
        story.member(0).stop()
        story.member(0).start()
        story.cluster.run(AGES)
        story.cluster.prefer(PARTITION)
        story.cluster.run(AGES)
        assert story.leader == 0
    assert [*story.member(0).contents(PARTITION).values()] == [b"%d" % sequence for sequence in range(5)]
    story.ends()


def test_a_zombie_controller_changes_nothing() -> None:
    """A controller stands still with a topic to make; another one makes it, and has other leaders, when it goes on."""
    story = Story(0, 1, 2)
    (zombie,) = story.cluster.controllers
    story.cluster.create_topic("topic-1", [[0, 1, 2]])
    story.cluster.run(0.01)
    zombie.node.pause()
    story.cluster.run(AGES)
    (active,) = [one for one in story.cluster.controllers if one is not zombie]
    story.written()
    before = story.cluster.state(*PARTITION)
    zombie.node.go_on()
    story.cluster.run(AGES)
    assert story.cluster.controllers == [active]
    after = story.cluster.state(*PARTITION)
    assert before is not None
    assert after is not None
    assert after.leader == before.leader
    story.ends()


def test_the_isr_shrinks_to_the_broken_one_and_acknowledges_nothing() -> None:
    """A leader whose network fails but for its way to the tree has everybody leave the ISR, and then it dies.

    Nobody is elected in its place, who might lack what it has.
    """
    story = Story(0, 1, 2, min_isr=2)
    story.written()
    for follower in (1, 2):
        story.cluster.lines.cuts |= {(BrokerId(0), BrokerId(follower)), (BrokerId(follower), BrokerId(0))}
    refused = story.write()
    story.cluster.run(AGES)
    state = story.cluster.state(*PARTITION)
    assert state is not None
    assert state.isr == (0,)
    assert refused[0] is not ErrorCode.NONE
    assert story.until(story.write()) is ErrorCode.NOT_ENOUGH_REPLICAS
    story.member(0).kill()
    story.cluster.lines.cuts.clear()
    story.cluster.run(AGES)
    assert story.leader == NO_BROKER
    story.member(0).start()
    story.cluster.run(AGES)
    story.written()
    story.ends()
