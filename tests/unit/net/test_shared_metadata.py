"""The tree that several brokers share: each registers once, and the controller alone changes topics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import layout
from odradek.coordination.sqlite import SqliteTree
from odradek.core.cluster import BrokerInfo, Endpoint, PartitionInfo, TopicInfo
from odradek.core.controller.steps import Elect
from odradek.core.effects import CreateTopics, DeleteTopics, Growth, GrowTopics
from odradek.net.controller_tree import ControllerTree
from odradek.net.metadata import AnotherBroker
from odradek.net.shared_metadata import SharedMetadata

US, OTHER = BrokerId(1), BrokerId(2)
T = TopicName("t")
LONG_MS = 300_000


class Member:
    """One broker's session of the tree, and its door to it."""

    def __init__(self, path: Path, broker: BrokerId = US) -> None:
        self.tree = SqliteTree(path, poll_ms=5)
        self.broker = broker
        self.metadata = SharedMetadata(self.tree, "the folder")
        self.metadata.prepare(broker, 1000, f"cluster-of-{broker}")

    def enroll(self, patience_ms: int = LONG_MS) -> int:
        info = BrokerInfo(self.broker, (Endpoint("PLAINTEXT", "127.0.0.1", 9090 + self.broker),))
        return self.metadata.enroll(info, lambda: TimestampMs(5), patience_ms)

    def is_elected(self) -> bool:
        elect = Elect()
        door = ControllerTree(self.tree, self.broker, lambda: TimestampMs(5), lambda _: False, lambda _: None)
        door.carry_out(elect)
        return elect.result is not None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def us(path: Path) -> Iterator[Member]:
    member = Member(path)
    yield member
    member.tree.close()


@pytest.fixture
def other(path: Path) -> Iterator[Member]:
    member = Member(path, OTHER)
    yield member
    member.tree.close()


def topic(name: str = T, partitions: int = 2, number: int = 1) -> TopicInfo:
    one = PartitionInfo(US, LeaderEpoch(0), (US,), (US,))
    return TopicInfo(TopicName(name), Uuid(number.to_bytes(16, "big")), (one,) * partitions, {"retention.ms": "1"})


def refusal(refused: Refused) -> ErrorCode:
    return refused.code


# Registration.


def test_all_are_of_one_cluster(us: Member, other: Member) -> None:
    assert us.metadata.prepare(US, 1000, "late") == (US, "cluster-of-1")
    assert other.metadata.prepare(OTHER, 1000, "late") == (OTHER, "cluster-of-1")


def test_each_is_registered_and_its_epoch_rises(us: Member, other: Member) -> None:
    ours, theirs = us.enroll(), other.enroll()
    stat = other.tree.exists(layout.broker(US))
    assert stat is not None
    assert stat.czxid == ours < theirs
    assert sorted(other.metadata.view().brokers) == [US, OTHER]
    us.tree.close()
    assert sorted(other.metadata.view().brokers) == [OTHER]


def test_the_node_is_ours_if_the_answer_to_its_creation_was_lost(us: Member) -> None:
    assert us.enroll() == us.enroll()


def test_a_former_self_is_waited_for(us: Member, path: Path) -> None:
    before = us.enroll()
    again = Member(path)
    epochs: list[int] = []
    enrolling = threading.Thread(target=lambda: epochs.append(again.enroll()))
    enrolling.start()
    assert not epochs
    us.tree.close()
    enrolling.join()
    assert epochs[0] > before
    again.tree.close()


def test_one_that_was_killed_is_not_waited_for(us: Member, path: Path) -> None:
    before = us.enroll()
    us.tree.abandon()
    again = Member(path)
    assert again.enroll(patience_ms=0) > before
    again.tree.close()


def test_another_broker_of_our_id_that_lives_on(us: Member, path: Path) -> None:
    us.enroll()
    again = Member(path)
    with pytest.raises(AnotherBroker) as raised:
        again.enroll(patience_ms=0)
    assert str(raised.value) == "Broker 1 at 127.0.0.1:9091 is running already with the metadata in the folder."
    again.tree.close()


# Topics.


def test_who_is_not_the_controller_changes_nothing(us: Member, other: Member) -> None:
    changes = (
        CreateTopics(1, (topic(),)),
        CreateTopics(2, (topic("u"),)),
        GrowTopics(3, {T: Growth(2, topic().partitions)}),
        DeleteTopics(4, {T: topic().id}),
    )
    assert refusal(us.metadata.change(changes[0]).refused[T]) == ErrorCode.NOT_CONTROLLER
    assert other.is_elected()
    assert other.metadata.change(changes[0]).refused == {}
    before = other.metadata.topics()
    for change in changes[1:]:
        (refused,) = us.metadata.change(change).refused.values()
        assert refusal(refused) == ErrorCode.NOT_CONTROLLER
    assert other.metadata.topics() == before


def test_the_controller_makes_topics_without_leaders(us: Member) -> None:
    assert us.is_elected()
    changed = us.metadata.change(CreateTopics(1, (topic(), topic("u", 1, 2))))
    assert list(changed.topics) == [T, "u"]
    assert us.metadata.overrides(T) == {"retention.ms": "1"}
    assert us.metadata.overrides(TopicName("not-there")) == {}
    assert us.tree.children(layout.topic(T)) == [], "partitions are the controller's thread's"
    again = us.metadata.change(CreateTopics(2, (topic(number=3),)))
    assert refusal(again.refused[T]) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_configuration_that_was_left_is_replaced(us: Member) -> None:
    assert us.is_elected()
    us.tree.create(layout.config(layout.TOPIC_CONFIGS, T), layout.encode_config({"retention.bytes": "5"}))
    assert us.metadata.change(CreateTopics(1, (topic(),))).refused == {}
    assert us.metadata.overrides(T) == {"retention.ms": "1"}


def test_partitions_are_added_to_the_assignment(us: Member) -> None:
    assert us.is_elected()
    us.metadata.change(CreateTopics(1, (topic(),)))
    added = topic(partitions=3).partitions
    changed = us.metadata.change(GrowTopics(2, {T: Growth(2, added)}))
    grown = changed.topics[T]
    assert grown is not None
    assert len(grown.partitions) == 5
    gone = us.metadata.change(GrowTopics(3, {TopicName("gone"): Growth(2, added)}))
    assert refusal(gone.refused[TopicName("gone")]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_is_marked_and_stays_until_its_replicas_are_gone(us: Member) -> None:
    assert us.is_elected()
    us.metadata.change(CreateTopics(1, (topic(),)))
    for token in (2, 3):  # Who asks again gets the same answer.
        assert dict(us.metadata.change(DeleteTopics(token, {T: topic().id})).topics) == {T: None}
    assert us.tree.exists(layout.delete_topic(T)) is not None
    assert T in us.metadata.topics()
    made = us.metadata.change(CreateTopics(4, (topic(number=2),)))
    assert refusal(made.refused[T]) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_is_not_made_anew_while_its_mark_is_there(us: Member) -> None:
    """It would be taken for the one that is deleted."""
    assert us.is_elected()
    us.tree.create(layout.delete_topic(T))
    made = us.metadata.change(CreateTopics(1, (topic(),)))
    assert refusal(made.refused[T]) == ErrorCode.TOPIC_ALREADY_EXISTS
    us.tree.delete(layout.delete_topic(T))
    assert us.metadata.change(CreateTopics(2, (topic(),))).refused == {}
    assert us.tree.exists(layout.delete_topic(T)) is None


def test_another_topic_of_the_name_is_not_deleted(us: Member) -> None:
    assert us.is_elected()
    us.metadata.change(CreateTopics(1, (topic(),)))
    changed = us.metadata.change(DeleteTopics(2, {T: topic(number=2).id, TopicName("gone"): topic(number=3).id}))
    assert {refusal(one) for one in changed.refused.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert us.tree.exists(layout.delete_topic(T)) is None


def test_who_was_the_controller_changes_nothing_more(us: Member, other: Member) -> None:
    assert us.is_elected()
    us.tree.delete(layout.CONTROLLER)
    assert other.is_elected()
    assert refusal(us.metadata.change(CreateTopics(1, (topic(),))).refused[T]) == ErrorCode.NOT_CONTROLLER
    assert us.metadata.topics() == {}


def test_whose_session_has_ended_is_not_the_controller_any_more(us: Member, other: Member) -> None:
    assert us.is_elected()
    us.metadata.change(CreateTopics(1, (topic(),)))
    with other.tree._write() as writer:
        writer.end_session(us.tree.session_id)
    changes = (
        CreateTopics(2, (topic("u"),)),
        GrowTopics(3, {T: Growth(2, topic().partitions)}),
        DeleteTopics(4, {T: topic().id}),
    )
    for change in changes:
        (refused,) = us.metadata.change(change).refused.values()
        assert refusal(refused) == ErrorCode.NOT_CONTROLLER
    with pytest.raises(Refused) as raised:
        us.metadata.give_producer_ids(OTHER, 1)
    assert refusal(raised.value) == ErrorCode.NOT_CONTROLLER
    assert list(other.metadata.topics()) == [T]


# Producer ids.


def test_the_controller_gives_producer_ids(us: Member, other: Member) -> None:
    epoch = other.enroll()
    with pytest.raises(Refused) as refused:
        us.metadata.give_producer_ids(OTHER, epoch)
    assert refusal(refused.value) == ErrorCode.NOT_CONTROLLER
    assert us.is_elected()
    blocks = [us.metadata.give_producer_ids(OTHER, epoch) for _ in range(3)]
    assert [block.first for block in blocks] == [0, 1000, 2000]
    assert blocks[0].last == 999
    with pytest.raises(Refused) as refused:
        us.metadata.give_producer_ids(OTHER, epoch - 1)
    assert refusal(refused.value) == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(Refused) as refused:
        us.metadata.give_producer_ids(BrokerId(7), epoch)
    assert refusal(refused.value) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_who_leads_is_not_read_here(us: Member, path: Path) -> None:
    assert us.is_elected()
    us.metadata.change(CreateTopics(1, [topic()]))
    for node in (layout.partitions(T), layout.partition(T, 0), layout.partition_state(T, 0)):
        us.tree.create(node, b"not a state")
    view = us.metadata.view()
    assert not view.unreadable
    assert [partition.replicas for partition in view.topics[T].partitions] == [(US,), (US,)]
