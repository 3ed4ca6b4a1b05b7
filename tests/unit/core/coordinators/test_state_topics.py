"""Partition of a group or a transactional id in its state topic: the same as in Apache Kafka."""

from __future__ import annotations

import pytest

from odradek.core.coordinators.state_topics import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed", "partition"),
    [("my-group", -1906497762, 12), ("test", 3556498, 48), ("polygenelubricants", -(1 << 31), 0), ("", 0, 0)],
)
def test_hash_matches_java(text: str, hashed: int, partition: int) -> None:
    assert java_hash(text) == hashed
    assert partition_for(text, 50) == partition


def test_characters_beyond_the_basic_plane_are_hashed_as_surrogates() -> None:
    assert java_hash("\U0001f600") == java_hash("\ud83d\ude00")
