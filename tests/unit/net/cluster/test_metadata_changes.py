"""Topic changes by the controller in a tree; changes planned on outdated metadata are applied as far as possible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, TopicName
from odradek.coordination import tree_layout as layout
from odradek.core.broker.effects import CreatePartitions, CreateTopics, DeleteTopics, NewPartitions
from support.tree_members import T, TreeMember, topic

OTHER = BrokerId(2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def us(path: Path) -> Iterator[TreeMember]:
    member = TreeMember(path)
    yield member
    member.tree.close()


@pytest.fixture
def other(path: Path) -> Iterator[TreeMember]:
    member = TreeMember(path, OTHER)
    yield member
    member.tree.close()


def refusal(refused: Refused) -> ErrorCode:
    return refused.code


def test_other_brokers_change_no_topics(us: TreeMember, other: TreeMember) -> None:
    changes = (
        CreateTopics(1, (topic(),)),
        CreateTopics(2, (topic("u"),)),
        CreatePartitions(3, {T: NewPartitions(2, topic().partitions)}),
        DeleteTopics(4, {T: topic().id}),
    )
    assert refusal(us.change(changes[0]).refused[T]) == ErrorCode.NOT_CONTROLLER
    assert other.is_elected()
    assert other.change(changes[0]).refused == {}
    before = other.metadata.topics()
    for change in changes[1:]:
        (refused,) = us.change(change).refused.values()
        assert refusal(refused) == ErrorCode.NOT_CONTROLLER
    assert other.metadata.topics() == before


def test_controller_creates_topics_without_leaders(us: TreeMember) -> None:
    assert us.is_elected()
    changed = us.change(CreateTopics(1, (topic(), topic("u", 1, 2))))
    assert list(changed.topics) == [T, "u"]
    assert us.metadata.overrides(T) == {"retention.ms": "1"}
    assert us.metadata.overrides(TopicName("not-there")) == {}
    assert us.tree.children(layout.topic(T)) == [], "partitions are the controller's thread's"
    again = us.change(CreateTopics(2, (topic(number=3),)))
    assert refusal(again.refused[T]) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_leftover_configuration_is_replaced(us: TreeMember) -> None:
    assert us.is_elected()
    us.tree.create(layout.config(layout.TOPIC_CONFIGS, T), layout.encode_config({"retention.bytes": "5"}))
    assert us.change(CreateTopics(1, (topic(),))).refused == {}
    assert us.metadata.overrides(T) == {"retention.ms": "1"}


def test_partitions_are_added_to_the_assignment(us: TreeMember) -> None:
    assert us.is_elected()
    us.change(CreateTopics(1, (topic(),)))
    added = topic(partitions=3).partitions
    changed = us.change(CreatePartitions(2, {T: NewPartitions(2, added)}))
    grown = changed.topics[T]
    assert grown is not None
    assert len(grown.partitions) == 5
    refused = us.change(CreatePartitions(3, {TopicName("gone"): NewPartitions(2, added)}))
    assert refusal(refused.refused[TopicName("gone")]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_topic_is_marked_until_its_replicas_are_deleted(us: TreeMember) -> None:
    assert us.is_elected()
    us.change(CreateTopics(1, (topic(),)))
    for token in (2, 3):  # A repeated request gets the same response.
        assert dict(us.change(DeleteTopics(token, {T: topic().id})).topics) == {T: None}
    assert us.tree.exists(layout.delete_topic(T)) is not None
    assert T in us.metadata.topics()
    made = us.change(CreateTopics(4, (topic(number=2),)))
    assert refusal(made.refused[T]) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topic_is_not_recreated_while_marked_for_deletion(us: TreeMember) -> None:
    """The new topic would be deleted."""
    assert us.is_elected()
    us.tree.create(layout.delete_topic(T))
    made = us.change(CreateTopics(1, (topic(),)))
    assert refusal(made.refused[T]) == ErrorCode.TOPIC_ALREADY_EXISTS
    us.tree.delete(layout.delete_topic(T))
    assert us.change(CreateTopics(2, (topic(),))).refused == {}
    assert us.tree.exists(layout.delete_topic(T)) is None


def test_topic_with_another_id_is_not_deleted(us: TreeMember) -> None:
    assert us.is_elected()
    us.change(CreateTopics(1, (topic(),)))
    changed = us.change(DeleteTopics(2, {T: topic(number=2).id, TopicName("gone"): topic(number=3).id}))
    assert {refusal(one) for one in changed.refused.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert us.tree.exists(layout.delete_topic(T)) is None


def test_former_controller_changes_no_topics(us: TreeMember, other: TreeMember) -> None:
    assert us.is_elected()
    us.tree.delete(layout.CONTROLLER)
    assert other.is_elected()
    assert refusal(us.change(CreateTopics(1, (topic(),))).refused[T]) == ErrorCode.NOT_CONTROLLER
    assert us.metadata.topics() == {}


def test_broker_with_an_expired_session_changes_no_topics(us: TreeMember, other: TreeMember) -> None:
    assert us.is_elected()
    us.change(CreateTopics(1, (topic(),)))
    with other.tree._write() as writer:
        writer.end_session(us.tree.session_id)
    changes = (
        CreateTopics(2, (topic("u"),)),
        CreatePartitions(3, {T: NewPartitions(2, topic().partitions)}),
        DeleteTopics(4, {T: topic().id}),
    )
    for change in changes:
        (refused,) = us.change(change).refused.values()
        assert refusal(refused) == ErrorCode.NOT_CONTROLLER
    with pytest.raises(Refused) as raised:
        us.metadata.allocate_producer_ids(OTHER, 1)
    assert refusal(raised.value) == ErrorCode.NOT_CONTROLLER
    assert list(other.metadata.topics()) == [T]


def test_refused_topic_does_not_affect_others(us: TreeMember) -> None:
    assert us.is_elected()
    us.change(CreateTopics(1, (topic("a"),)))
    changed = us.change(CreateTopics(2, (topic("a", 1, 2), topic("b", 1, 3))))
    assert refusal(changed.refused[TopicName("a")]) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert list(changed.topics) == ["b"]
    assert us.metadata.topics()[TopicName("a")].id == topic("a").id


@pytest.mark.parametrize(("count", "found"), [(2, None), (3, None), (5, 5)])
def test_concurrent_growth_creates_no_extra_partitions(us: TreeMember, count: int, found: int | None) -> None:
    """Both plans start from one partition: the first makes three, the second only up to its own count."""
    assert us.is_elected()
    us.change(CreateTopics(1, (topic(partitions=1),)))
    us.change(CreatePartitions(2, {T: NewPartitions(1, topic(partitions=1).partitions * 2)}))
    changed = us.change(CreatePartitions(3, {T: NewPartitions(1, topic(partitions=1).partitions * (count - 1))}))
    if found is None:
        assert changed.refused[T].code == ErrorCode.INVALID_PARTITIONS
    assert len(us.metadata.topics()[T].partitions) == (found or 3)
