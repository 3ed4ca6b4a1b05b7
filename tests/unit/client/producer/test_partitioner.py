from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary
from kafka.partitioner.default import murmur2 as oracle  # type: ignore[import-untyped]  # Has no types.

from odradek.client.producer.partitioner import StickyPartition, partition_of_key

# Of Apache Kafka's own tests, as signed 32-bit numbers.
CHECKS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}


@pytest.mark.parametrize(("key", "expected"), CHECKS.items(), ids=repr)
@pytest.mark.parametrize("partitions", [1, 7, 12, 1_000_000])
def test_partition_of_a_key_matches_kafka(key: bytes, expected: int, partitions: int) -> None:
    assert partition_of_key(key, partitions) == (expected & 0x7FFFFFFF) % partitions


@settings(deadline=None)  # Time is not tested, and the machine may be busy.
@given(binary(max_size=64))
def test_partition_of_a_key_matches_kafka_python(key: bytes) -> None:
    assert partition_of_key(key, 1 << 31) == oracle(key) & 0x7FFFFFFF


def test_keys_are_spread_over_all_partitions() -> None:
    counts = Counter(partition_of_key(b"%d" % number, 7) for number in range(7_000))
    assert sorted(counts) == list(range(7))
    assert min(counts.values()) > 800


def test_sticky_partition_changes_only_on_request() -> None:
    sticky = StickyPartition(5)
    seen = set()
    for _ in range(200):
        before = sticky.current
        assert before == sticky.current
        seen.add(before)
        sticky.turn()
        assert sticky.current != before
    assert seen == set(range(5))


def test_sticky_works_with_a_single_partition() -> None:
    sticky = StickyPartition(1)
    sticky.turn()
    assert sticky.current == 0


def test_sticky_avoids_partitions_without_a_leader() -> None:
    led = {1, 3}
    sticky = StickyPartition(5, lambda partition: partition in led)
    seen = set()
    for _ in range(100):
        seen.add(sticky.current)
        sticky.turn()
    assert seen == led
    led.clear()
    sticky.turn()  # Without any leader, all partitions are candidates.
