"""Delayed topic changes: each completes when this broker sees the change, or at its timeout."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.broker.effects import Changed, CreatePartitions, CreateTopics, DeleteTopics, NewPartitions
from odradek.core.broker.topic_purgatory import AWAITED_MS_MAX, TopicPurgatory
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo, TopicInfo

US = BrokerId(1)
T, OTHER = TopicName("t"), TopicName("other")
LED = PartitionInfo(US, LeaderEpoch(0), (US,), (US,))
UNLED = PartitionInfo(US, LeaderEpoch(-1), (US,), (US,))
NOW = 1000


def topic(name: TopicName = T, *partitions: PartitionInfo, number: int = 1) -> TopicInfo:
    return TopicInfo(name, Uuid(number.to_bytes(16, "big")), partitions or (LED, LED), {})


class Awaiting:
    """Topic changes that one broker waits for, and its view of the cluster."""

    def __init__(self, *topics: TopicInfo) -> None:
        self.view = ClusterView("cluster", topics=topics)
        self.changes = TopicPurgatory(self.view)

    def made(self, *topics: TopicInfo, token: int = 1, any_id: bool = False, refused: Refused | None = None) -> None:
        refusals = {} if refused is None else {OTHER: refused}
        changed = Changed(token, {one.name: one for one in topics}, refusals)
        self.changes.add(CreateTopics(token, topics), changed, NOW, any_id=any_id)

    def ended(self, now: int = NOW) -> list[int]:
        return [changed.token for changed in self.changes.take_completed(now)]


def test_creation_completes_when_all_partitions_have_leaders() -> None:
    awaiting = Awaiting()
    awaiting.made(topic())
    assert awaiting.ended() == []
    awaiting.view.put(topic(T, LED))
    assert awaiting.ended() == []
    awaiting.view.put(topic(T, LED, UNLED))
    assert awaiting.ended() == []
    awaiting.view.put(topic(T, LED, LED))
    assert awaiting.ended() == [1]
    assert awaiting.ended() == [], "told once"


def test_completed_change_has_visible_topics_and_refusals() -> None:
    refused = Refused(ErrorCode.TOPIC_ALREADY_EXISTS)
    awaiting = Awaiting()
    awaiting.made(topic(), refused=refused)
    seen = topic(T, LED, LED._replace(leader=BrokerId(2)))
    awaiting.view.put(seen)
    (changed,) = awaiting.changes.take_completed(NOW)
    assert changed.topics == {T: seen}
    assert changed.refused == {OTHER: refused}


def test_creation_ignores_a_topic_with_another_id() -> None:
    awaiting = Awaiting(topic(number=7))
    awaiting.made(topic(number=8))
    assert awaiting.ended() == []
    awaiting.view.put(topic(number=8))
    assert awaiting.ended() == [1]


def test_creation_by_another_broker_completes_with_any_topic_id() -> None:
    awaiting = Awaiting()
    awaiting.made(topic(number=8), any_id=True)
    assert awaiting.ended() == []
    awaiting.view.put(topic(number=7))
    assert awaiting.ended() == [1]


def test_creation_waits_for_all_its_topics() -> None:
    awaiting = Awaiting()
    awaiting.made(topic(), topic(OTHER, number=2))
    awaiting.view.put(topic())
    assert awaiting.ended() == []
    awaiting.view.put(topic(OTHER, number=2))
    assert awaiting.ended() == [1]


def test_deletion_completes_when_the_topic_is_removed_from_the_view() -> None:
    awaiting = Awaiting(topic(number=1))
    deletion = DeleteTopics(3, {T: topic(number=1).id})
    awaiting.changes.add(deletion, Changed(3, {T: None}, {}), NOW)
    assert awaiting.ended() == []
    awaiting.view.remove(T)
    (changed,) = awaiting.changes.take_completed(NOW)
    assert changed.topics == {T: None}


def test_deletion_completes_when_a_new_topic_has_the_name() -> None:
    awaiting = Awaiting(topic(number=1))
    awaiting.changes.add(DeleteTopics(3, {T: topic(number=1).id}), Changed(3, {T: None}, {}), NOW)
    awaiting.view.put(topic(number=2))
    assert awaiting.ended() == [3]


def test_added_partitions_complete_when_all_are_visible() -> None:
    awaiting = Awaiting(topic(T, LED, LED))
    grown = topic(T, LED, LED, LED)
    awaiting.changes.add(CreatePartitions(4, {T: NewPartitions(2, (LED,))}), Changed(4, {T: grown}, {}), NOW)
    assert awaiting.ended() == []
    awaiting.view.put(topic(T, LED, LED, UNLED))
    assert awaiting.ended() == []
    awaiting.view.put(grown)
    assert awaiting.ended() == [4]


def test_change_that_never_appears_times_out() -> None:
    awaiting = Awaiting()
    awaiting.made(topic())
    assert awaiting.ended(NOW + AWAITED_MS_MAX - 1) == []
    (changed,) = awaiting.changes.take_completed(NOW + AWAITED_MS_MAX)
    assert changed.topics == {T: None}, "as it is seen: not at all"


def test_changes_complete_independently() -> None:
    awaiting = Awaiting()
    awaiting.made(topic(), token=1)
    awaiting.made(topic(OTHER, number=2), token=2)
    awaiting.view.put(topic(OTHER, number=2))
    assert awaiting.ended() == [2]
    awaiting.view.put(topic())
    assert awaiting.ended() == [1]
