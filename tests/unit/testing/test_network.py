"""Cut pairs of nodes, computed from the sides of a partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import BrokerId
from odradek.testing.network import Network, Node, Shared, Side, cuts_between

NODES = Network(4).nodes
TREE = Shared.TREE


def side(*nodes: int | Shared) -> Side:
    return frozenset(node if isinstance(node, Shared) else BrokerId(node) for node in nodes)


def cuts(*sides: Side, one_way: bool = False) -> set[tuple[Node, Node]]:
    return set(cuts_between(sides, NODES, one_way=one_way))


def test_partition_of_two_brokers_cuts_one_or_both_directions() -> None:
    assert cuts(side(1), side(2)) == {(1, 2), (2, 1)}
    assert cuts(side(1), side(2), one_way=True) == {(1, 2)}


def test_single_side_is_cut_off_from_all_other_nodes() -> None:
    assert cuts(side(1, 2)) == cuts(side(1, 2), side(3, 4, TREE))
    assert cuts(side(TREE), one_way=True) == {(TREE, broker) for broker in (1, 2, 3, 4)}


def test_node_on_no_side_reaches_all_nodes() -> None:
    assert cuts(side(1), side(TREE)) == {(1, TREE), (TREE, 1)}
    assert not {node for cut in cuts(side(1), side(2, 3)) for node in cut} & side(4, TREE)


@given(st.lists(st.sampled_from(sorted(NODES, key=str)), unique=True), st.integers(2, 3), st.booleans(), st.data())
def test_exactly_nodes_on_different_sides_are_cut_off(
    named: list[Node], count: int, one_way: bool, data: st.DataObject
) -> None:
    of = {node: data.draw(st.integers(0, count - 1)) for node in named}
    sides = [frozenset(node for node in named if of[node] == index) for index in range(count)]
    if not all(sides):
        with pytest.raises(ValueError, match="two sides"):
            cuts(*sides, one_way=one_way)
        return
    found = cuts(*sides, one_way=one_way)
    for one in NODES:
        for other in NODES:
            are_apart = one in of and other in of and of[one] != of[other] and (not one_way or of[one] == 0)
            assert ((one, other) in found) == are_apart


@pytest.mark.parametrize(
    ("sides", "why"),
    [
        ([], "two sides"),
        ([NODES], "two sides"),
        ([side(1), side()], "two sides"),
        ([side(1, 2), side(2, 3)], "two sides of a partition"),
        ([side(5)], "unknown broker 5"),
        ([side(1), side(0)], "unknown broker 0"),
    ],
)
def test_invalid_sides_are_refused(sides: list[Side], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        cuts(*sides)


def test_partitions_are_combined_and_healed_individually() -> None:
    network = Network(3)
    seen: list[frozenset[tuple[Node, Node]]] = []
    healed: list[str] = []
    network.add_listener(lambda: seen.append(network.cuts))
    first = network.add(cuts_between([side(1), side(2)], network.nodes, one_way=False), lambda: healed.append("first"))
    second = network.add(cuts_between([side(2), side(1)], network.nodes, one_way=True), lambda: healed.append("second"))
    first.heal()
    first.heal()
    assert network.cuts == {(2, 1)}
    assert network.is_cut(BrokerId(1), BrokerId(2)), "since no answer gets through"
    network.clear()
    second.heal()
    assert healed == ["first"]
    assert seen == [{(1, 2), (2, 1)}, {(1, 2), (2, 1)}, {(2, 1)}, set()]


def test_error_in_the_block_heals_without_waiting() -> None:
    network = Network(2)
    healed: list[str] = []
    with (
        pytest.raises(KeyError),
        network.add(cuts_between([side(1)], network.nodes, one_way=False), lambda: healed.append("")),
    ):
        raise KeyError
    assert not network.cuts
    assert not healed
