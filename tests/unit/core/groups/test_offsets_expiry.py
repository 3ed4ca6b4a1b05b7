"""Expiry of old offsets, and removal of empty groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import MINUTE_MS, SECOND_MS
from odradek.core.groups.expiry import Expiry
from support.group_offsets import GroupOffsets, Kept, groups
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

NONE = ErrorCode.NONE
A, B = ("t", 0), ("t", 1)
RETENTION_MS = 10 * MINUTE_MS


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path, offsets_retention_minutes="10", offsets_retention_check_interval_ms="60000")
    make_topic(harness, "t", 2)
    harness.run_housekeeping()
    return harness


def wait(harness: Harness, ms: int) -> None:
    """Pass the time in large steps; single seconds have the same effect, and take longer."""
    harness.pass_time(ms)
    harness.run_housekeeping()


def test_old_offsets_of_simple_consumers_expire_with_their_group(harness: Harness) -> None:
    group = GroupOffsets(harness)
    group.commit({A: 1, B: 1})
    wait(harness, RETENTION_MS // 2)
    group.commit({B: 2})
    wait(harness, RETENTION_MS // 2 - SECOND_MS)
    assert group.fetch() == {A: Kept(1), B: Kept(2)}
    wait(harness, MINUTE_MS)
    assert group.fetch() == {B: Kept(2)}
    wait(harness, RETENTION_MS // 2)
    assert (group.fetch(), groups(harness)) == ({}, set())
    harness.kill()
    assert (group.fetch(), groups(harness)) == ({}, set())


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_with_its_own_retention_expires_then(harness: Harness, version: int) -> None:
    group = GroupOffsets(harness)
    group.commit({A: 1}, version, retention_ms=2 * MINUTE_MS)
    group.commit({B: 1}, version, retention_ms=(1 << 63) - 1)
    harness.restart()
    harness.run_housekeeping()
    wait(harness, MINUTE_MS)
    assert group.fetch() == {A: Kept(1), B: Kept(1)}
    wait(harness, MINUTE_MS)
    assert group.fetch() == {B: Kept(1)}
    wait(harness, 10 * RETENTION_MS)
    assert group.fetch() == {B: Kept(1)}, "that never goes"


def test_expired_offsets_are_removed_at_the_next_check(harness: Harness) -> None:
    group = GroupOffsets(harness)
    group.commit({A: 1}, 4, retention_ms=SECOND_MS)
    wait(harness, MINUTE_MS - 1)
    assert group.fetch() == {A: Kept(1)}
    wait(harness, 1)
    assert group.fetch() == {}


def test_expiry_checks_some_groups_at_a_time(harness: Harness) -> None:
    expiry = Expiry(harness.configs, at_once=2)
    list(expiry.tick(harness.broker.groups.shards, harness.now))
    for name in "abcd":
        GroupOffsets(harness, name).commit({A: 1}, 4, retention_ms=SECOND_MS)
    harness.pass_time(MINUTE_MS)
    left = []
    for _ in range(4):
        list(expiry.tick(harness.broker.groups.shards, harness.now))
        left.append(len(groups(harness)))
    assert left == [3, 2, 1, 0]


def test_expiry_skips_a_shard_that_was_resigned(harness: Harness) -> None:
    expiry = Expiry(harness.configs, at_once=2)
    list(expiry.tick(harness.broker.groups.shards, harness.now))
    for name in "abcd":
        GroupOffsets(harness, name).commit({A: 1}, 4, retention_ms=SECOND_MS)
    harness.pass_time(MINUTE_MS)
    list(expiry.tick(harness.broker.groups.shards, harness.now))
    assert len(groups(harness)) == 3
    harness.restart()
    harness.settle()
    for _ in range(4):
        list(expiry.tick(harness.broker.groups.shards, harness.now))
    assert len(groups(harness)) == 3, "another coordinator has the shards now"


def test_offsets_with_pending_transactional_commits_do_not_expire(harness: Harness) -> None:
    group = GroupOffsets(harness)
    producer = Transactional(harness, "p")
    producer.begin(timeout_ms=15 * MINUTE_MS)
    group.commit({A: 1, B: 1})
    group.commit_in(producer, {A: 2})
    wait(harness, RETENTION_MS)
    assert group.fetch() == {A: Kept(1)}
    assert producer.end(commit=True) == NONE
    assert group.fetch() == {A: Kept(2)}, "it is as old as its record"
    wait(harness, MINUTE_MS)
    assert (group.fetch(), groups(harness)) == ({}, set())


def test_group_with_only_pending_offsets_is_kept_until_the_end(harness: Harness) -> None:
    group = GroupOffsets(harness)
    producer = Transactional(harness, "p")
    producer.begin(timeout_ms=15 * MINUTE_MS)
    group.commit_in(producer, {A: 2})
    wait(harness, MINUTE_MS)
    assert groups(harness) == {"g"}
    assert producer.end(commit=False) == NONE
    wait(harness, MINUTE_MS)
    assert groups(harness) == set()
