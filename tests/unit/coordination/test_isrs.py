"""ISR changes written by leaders, in all implementations of Tree: changes of other writers are preserved."""

from __future__ import annotations

from random import Random

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.isrs import PARTITIONS_PER_NODE, notify, write
from odradek.coordination.tree import Create, Tree, ensure_paths
from odradek.core.kernel.cluster_view import LeaderAndIsr

US, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
T = TopicName("t")
PARTITIONS = [TopicPartition(T, index) for index in range(5)]
BEFORE = LeaderAndIsr(US, LeaderEpoch(4), (US, OTHER, THIRD), controller_epoch=7)
PROPOSED = BEFORE._replace(isr=(US, THIRD), controller_epoch=8)


def encoded(state: LeaderAndIsr) -> bytes:
    return layout.encode_partition_state(
        layout.PartitionState(state.leader, state.leader_epoch, state.controller_epoch, state.isr, state.recovery)
    )


def path(partition: TopicPartition) -> str:
    return layout.partition_state(*partition)


@pytest.fixture
def states(tree: Tree) -> Tree:
    """Create a tree with partitions led by this broker."""
    ensure_paths(tree, [layout.ISR_CHANGES, *(layout.partition(*one) for one in PARTITIONS)])
    tree.multi([Create(path(one), encoded(BEFORE)) for one in PARTITIONS])
    return tree


def proposals(*partitions: TopicPartition) -> dict[TopicPartition, LeaderAndIsr]:
    return dict.fromkeys(partitions or PARTITIONS, PROPOSED)


def test_partition_states_are_written_in_kafkas_format(states: Tree) -> None:
    assert write(states, proposals()) == dict.fromkeys(PARTITIONS, PROPOSED._replace(partition_epoch=1))
    data, stat = states.get(path(PARTITIONS[0]))
    assert data == b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":8,"isr":[1,3]}'
    assert stat.version == 1


def test_states_changed_by_another_broker_are_not_overwritten(states: Tree) -> None:
    theirs = encoded(BEFORE._replace(leader=OTHER, leader_epoch=LeaderEpoch(5), isr=(OTHER,)))
    states.set(path(PARTITIONS[1]), theirs)
    states.delete(path(PARTITIONS[3]))
    left = [PARTITIONS[index] for index in (0, 2, 4)]
    assert write(states, proposals()) == dict.fromkeys(left, PROPOSED._replace(partition_epoch=1))
    assert states.get(path(PARTITIONS[1]))[0] == theirs
    assert states.exists(path(PARTITIONS[3])) is None


def test_state_written_before_a_lost_response_is_recognized(states: Tree) -> None:
    write(states, proposals(*PARTITIONS[:2]))
    later = PROPOSED._replace(controller_epoch=9)  # The controller has changed since.
    written = write(states, dict.fromkeys(PARTITIONS, later))
    before, now = PROPOSED._replace(partition_epoch=1), later._replace(partition_epoch=1)
    assert written == {one: before if one in PARTITIONS[:2] else now for one in PARTITIONS}
    assert states.get(path(PARTITIONS[0]))[1].version == 1, "it is not written twice"


def test_earlier_state_of_the_same_leader_epoch_is_returned(states: Tree) -> None:
    other = PROPOSED._replace(isr=(US,))
    states.set(path(PARTITIONS[0]), encoded(other))
    assert write(states, proposals(PARTITIONS[0])) == {PARTITIONS[0]: other._replace(partition_epoch=1)}


def test_state_of_a_recreated_topic_is_not_ours(states: Tree) -> None:
    states.set(path(PARTITIONS[0]), encoded(PROPOSED))
    assert write(states, {PARTITIONS[0]: PROPOSED._replace(partition_epoch=5)}) == {}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"version":1,"leader":"1"}'])
def test_undecodable_state_is_not_overwritten(states: Tree, data: bytes) -> None:
    states.set(path(PARTITIONS[0]), data)
    assert write(states, proposals(PARTITIONS[0])) == {}
    assert states.get(path(PARTITIONS[0]))[0] == data


def test_controller_is_notified_of_changed_partitions(states: Tree) -> None:
    many = [TopicPartition(TopicName("u"), index) for index in range(PARTITIONS_PER_NODE + 1)]
    notify(states, PARTITIONS[:1])
    notify(states, many)
    names = states.children(layout.ISR_CHANGES)
    assert names == [f"isr_change_{number:010}" for number in range(3)]
    notifications = [states.get(f"{layout.ISR_CHANGES}/{name}") for name in names]
    assert notifications[0][0] == b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    assert [one for data, _ in notifications for one in layout.decode_partitions(data)] == [PARTITIONS[0], *many]
    assert all(stat.ephemeral_owner == 0 for _, stat in notifications)


OTHERS_LEAD = BEFORE._replace(leader=OTHER, leader_epoch=LeaderEpoch(5))
CONCURRENT_STATES = (b"{", *map(encoded, (OTHERS_LEAD, BEFORE._replace(isr=(US, OTHER)), PROPOSED)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_batched_writes_have_the_same_results_as_single_writes(tree: Tree, seed: int) -> None:
    """Regardless of concurrent changes, and of whether the leader knows them."""
    random = Random(seed)
    at_once, alone = TopicName("at-once"), TopicName("alone")
    proposals: dict[int, LeaderAndIsr] = {}
    for index in range(random.randint(1, 12)):
        happened = random.choice((None, None, None, "gone", *CONCURRENT_STATES))
        proposals[index] = PROPOSED._replace(partition_epoch=random.choice((0, 0, 1)))
        for one in (TopicPartition(at_once, index), TopicPartition(alone, index)):
            ensure_paths(tree, [layout.partition(*one)])
            tree.create(path(one), encoded(BEFORE))
            if happened == "gone":
                tree.delete(path(one))
            elif happened is not None:
                tree.set(path(one), happened)
    found = write(tree, {TopicPartition(at_once, index): state for index, state in proposals.items()})
    each: dict[int, LeaderAndIsr] = {}
    for index, state in proposals.items():
        written = write(tree, {TopicPartition(alone, index): state})
        each |= {one.partition: now for one, now in written.items()}
    assert {one.partition: now for one, now in found.items()} == each
    for index in proposals:
        paths = [layout.partition_state(name, index) for name in (at_once, alone)]
        first, second = tree.get_all(paths)
        assert (first and (first[0], first[1].version)) == (second and (second[0], second[1].version))
