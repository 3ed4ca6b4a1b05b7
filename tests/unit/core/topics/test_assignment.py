"""Placement of new partitions: the decisions of Apache Kafka 3.9.1, and invariants for any cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.core.topics.assignment import Racks, spread

# Output of tests/interop/java/Assignments.java; tests/interop/test_assignments_kafka.py compares the two.
SEEN_OF_KAFKA = Path(__file__).parents[3] / "golden" / "assignments.txt"

CLUSTERS = st.dictionaries(st.integers(0, 50).map(BrokerId), st.sampled_from("abcd"), min_size=1, max_size=12)
NUMBERS = st.integers(0, 2**31 - 1)


def racks_of(text: str) -> Racks:
    words = text.split()
    return {
        BrokerId(int(broker)): None if rack == "-" else rack for broker, rack in zip(*[iter(words)] * 2, strict=True)
    }


@pytest.mark.parametrize("line", SEEN_OF_KAFKA.read_text().splitlines())
def test_placement_matches_kafka(line: str) -> None:
    cluster, factor, start, first, expected = line.split("|")
    found = spread(racks_of(cluster), 8, int(factor), start=int(start), shift=int(start), first=int(first))
    assert " ".join(",".join(map(str, replicas)) for replicas in found) == expected


@given(CLUSTERS, st.booleans(), st.integers(1, 12), st.tuples(NUMBERS, NUMBERS), st.integers(0, 30))
def test_placement_is_balanced_in_any_cluster(
    brokers: Racks, has_racks: bool, factor: int, beginning: tuple[int, int], first: int
) -> None:
    racks: Racks = brokers if has_racks else dict.fromkeys(brokers)
    factor = min(factor, len(racks))
    found = spread(racks, 3 * len(racks), factor, start=beginning[0], shift=beginning[1], first=first)
    assert all(len(set(replicas)) == factor for replicas in found)
    leads = Counter(replicas[0] for replicas in found)
    assert set(leads.values()) == {3}, "everybody leads as many"
    if has_racks:
        rack_count = min(len(set(racks.values())), factor)
        assert all(len({racks[broker] for broker in replicas}) == rack_count for replicas in found)


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_invalid_replication_factor_is_refused(factor: int) -> None:
    with pytest.raises(Refused) as refused:
        spread(racks_of("1 a 2 a 3 b"), 1, factor, start=0, shift=0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_with_and_without_racks_are_refused() -> None:
    with pytest.raises(Refused, match=r"brokers \[2\] have no broker.rack") as refused:
        spread(racks_of("1 a 2 - 3 b"), 1, 1, start=0, shift=0)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
