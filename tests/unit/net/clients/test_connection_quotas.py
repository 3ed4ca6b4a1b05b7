"""Connection quotas, counted over all listeners with the same quotas, and per address."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

from odradek.net.clients.connection_quotas import ConnectionQuotas

COMING_AND_GOING = lists(tuples(sampled_from("abc"), integers(0, 3)), max_size=60)


@given(integers(0, 6), integers(0, 4), COMING_AND_GOING)
def test_quotas_match_a_list_of_open_connections(most: int, per_address: int, turns: list[tuple[str, int]]) -> None:
    quotas, there = ConnectionQuotas(most, per_address), list[str]()
    for address, turn in turns:
        if turn == 0 and address in there:
            there.remove(address)
            quotas.remove(address)
            continue
        has_room = len(there) < most and Counter(there)[address] < per_address
        assert quotas.has_room(address) == has_room
        if has_room:
            there.append(address)
            quotas.add(address)


def test_lower_limit_applies_to_new_connections() -> None:
    quotas = ConnectionQuotas(3, 3)
    for _ in range(3):
        quotas.add("a")
    quotas.limit(2, 2)
    quotas.remove("a")
    assert not quotas.has_room("b")
    quotas.remove("a")
    assert quotas.has_room("a")
