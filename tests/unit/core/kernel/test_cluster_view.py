"""The view of the cluster, updated by topic changes in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo, TopicInfo, collision_key

ONE = PartitionInfo(BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),))
NAMES = st.sampled_from([TopicName(name) for name in ("a", "a.b", "a_b", "b", "b.a.c", "b_a.c", "b_a_c")])
IDS = st.integers(0, 5).map(lambda number: Uuid(bytes(15) + bytes([number])))


def topic(name: TopicName, topic_id: Uuid) -> TopicInfo:
    return TopicInfo(name, topic_id, (ONE,))


@given(st.lists(st.tuples(NAMES, st.none() | IDS)))
def test_updated_view_equals_a_new_view(changes: list[tuple[TopicName, Uuid | None]]) -> None:
    view = ClusterView("c")
    expected: dict[TopicName, TopicInfo] = {}
    for name, topic_id in changes:
        before = view.version
        if topic_id is None:
            assert (expected.pop(name, None) is not None) == (name in view.topics)
            view.remove(name)
        elif any(other.id == topic_id != ZERO_UUID and other.name != name for other in expected.values()):
            continue  # Topic ids are unique.
        else:
            expected[name] = topic(name, topic_id)
            view.put(expected[name])
        assert view.topics == expected
        assert view.names == {one.id: one.name for one in expected.values() if one.id != ZERO_UUID}
        assert view.version > before or topic_id is None
        for one in expected:
            assert collision_key(view.collides_with(one) or one) == collision_key(one)
    alike = {collision_key(name) for name in expected if "." in name or "_" in name}
    assert (view.collides_with(TopicName("a_b")) is not None) == ("a_b" in alike)
    assert (view.collides_with(TopicName("b.a_c")) is not None) == ("b_a_c" in alike)


def test_id_of_two_topics_leads_to_the_one_that_remains() -> None:
    """A damaged tree may give one id to two topics."""
    view, shared = ClusterView("c"), Uuid(bytes(15) + b"1")
    for name in ("a", "b"):
        view.put(topic(TopicName(name), shared))
    view.remove(TopicName("a"))
    assert view.names == {shared: "b"}
    view.put(topic(TopicName("b"), Uuid(bytes(15) + b"2")))
    assert view.topic_by_id(shared) is None


def test_topic_change_leaves_earlier_reads_unchanged() -> None:
    """Topics are values: a reader keeps the version that it read."""
    view = ClusterView("c", topics=[topic(TopicName("a"), Uuid(bytes(15) + b"1"))])
    read, version = view.topics[TopicName("a")], view.version
    view.put(read._replace(partitions=(ONE, ONE)))
    assert len(read.partitions) == 1
    assert len(view.topics[TopicName("a")].partitions) == 2
    assert view.version != version


def test_unreadable_topic_reserves_its_name() -> None:
    view = ClusterView("c", unreadable={TopicName("a.b"): "why"})
    assert view.collides_with(TopicName("a_b")) == "a.b"
    assert view.collides_with(TopicName("a_c")) is None
    assert not view.topics
