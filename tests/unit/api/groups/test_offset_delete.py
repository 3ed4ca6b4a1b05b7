"""OffsetDelete without a socket: deleted and kept offsets, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from support.group_offsets import GroupOffsets, Kept, groups
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

NONE = ErrorCode.NONE
A, B, C = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def group(tmp_path: Path) -> GroupOffsets:
    harness = Harness(tmp_path)
    make_topic(harness, "t", 2)
    make_topic(harness, "u")
    group = GroupOffsets(harness)
    group.commit({A: 1, B: 2, C: 3})
    return group


def test_deleted_offsets_stay_deleted_and_the_group_remains(group: GroupOffsets) -> None:
    assert group.forget(A, C) == {A: NONE, C: NONE}
    assert group.fetch() == {B: Kept(2)}
    assert group.forget(A, B) == {A: NONE, B: NONE}, "what is not there is forgotten, too"
    assert (group.fetch(), groups(group.harness)) == ({}, {"g"})
    group.harness.restart()
    assert group.fetch() == {}


def test_unknown_partitions_are_refused(group: GroupOffsets) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = {("t", 9): unknown, A: NONE, ("nowhere", 0): unknown}
    codes = group.forget(A, ("t", 9), ("nowhere", 0))
    assert isinstance(codes, dict) and list(codes.items()) == list(expected.items())
    assert group.forget(("nowhere", 0)) == {("nowhere", 0): unknown}
    assert group.forget() == {}


def test_unknown_group_is_refused(group: GroupOffsets) -> None:
    other = GroupOffsets(group.harness, "other")
    assert other.forget(A) == ErrorCode.GROUP_ID_NOT_FOUND
    assert other.forget(("nowhere", 0)) == other.forget() == ErrorCode.GROUP_ID_NOT_FOUND
    assert GroupOffsets(group.harness, "").forget(A) == ErrorCode.INVALID_GROUP_ID


def test_deletion_removes_pending_offsets(group: GroupOffsets) -> None:
    producer = Transactional(group.harness, "p")
    producer.begin()
    group.commit_in(producer, {A: 7, B: 8})
    assert group.forget(A) == {A: NONE}
    assert group.fetch([A, B], is_stable=True) == {A: Kept(-1), B: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert producer.end(commit=True) == NONE
    assert group.fetch([A, B], is_stable=True) == {A: Kept(-1), B: Kept(8)}
