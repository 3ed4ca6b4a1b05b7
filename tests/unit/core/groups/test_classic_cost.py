"""Cost of classic groups, counted in calls: a member of a large group costs no more than one of a small group."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.core.groups.classic.answer_round import MEMBERS_PER_TURN
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupResponse
from support.in_memory import Harness
from support.members import OLD, coordinator, group_of, joining, parked, syncing

FEW, MANY = 20, 200


def calls(work: Callable[[], object]) -> int:
    """Return the number of Python functions called."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def rebalance(harness: Harness, count: int) -> list[JoinGroupResponse]:
    """Let all members join at once, and return their responses after the rebalance."""
    waiting = [parked(harness.send(joining(), OLD)) for _ in range(count)]
    harness.pass_time(1000)
    harness.pass_time(1000)
    wait_until_all_are_answered(harness)
    joined = [harness.decoded(one.then(), OLD, JoinGroupResponse) for one in waiting]
    for one in joined:
        assert isinstance(harness.send(syncing(one), 3), ParkedRequest)
    harness.settle()
    assert group_of(harness).state == "Stable"
    wait_until_all_are_answered(harness)
    harness.broker.purgatory.take_completed()
    return joined


def wait_until_all_are_answered(harness: Harness) -> None:
    while group_of(harness).answer_round.left:
        harness.pass_time(1)


def calls_per_member(directory: Path, count: int) -> tuple[float, float]:
    """Return the calls per member of a rebalance, and of a heartbeat."""
    directory.mkdir()
    harness = coordinator(directory, group_initial_rebalance_delay_ms="1000")
    joined: list[JoinGroupResponse] = []
    settling = calls(lambda: joined.extend(rebalance(harness, count)))
    assert len(joined) == count == len(group_of(harness).members)
    beats = [HeartbeatRequest(group_id="g", member_id=one.member_id, generation_id=1) for one in joined]
    beating = calls(lambda: [harness.send(one, 4) for one in beats])
    return settling / count, beating / count


@pytest.mark.slow
def test_cost_per_member_is_independent_of_group_size(tmp_path: Path) -> None:
    calls_per_member(tmp_path / "warm", 2)  # Codecs are compiled.
    few, many = calls_per_member(tmp_path / "few", FEW), calls_per_member(tmp_path / "many", MANY)
    assert many[0] < 1.2 * few[0], (few, many)
    assert many[1] < 1.2 * few[1], (few, many)


def test_leader_of_a_large_group_is_answered_in_a_separate_turn(tmp_path: Path) -> None:
    harness = coordinator(tmp_path, group_initial_rebalance_delay_ms="1000")
    waiting = [parked(harness.send(joining(), OLD)) for _ in range(MANY)]
    harness.pass_time(1000)
    harness.pass_time(1000)
    left = []
    while group_of(harness).answer_round.left:
        left.append(len(group_of(harness).answer_round.left))
        harness.pass_time(1)
    assert left == [MANY, MANY - 1, MANY - 1 - MEMBERS_PER_TURN]
    joined = [harness.decoded(one.then(), OLD, JoinGroupResponse) for one in waiting]
    assert {one.leader for one in joined} == {joined[0].member_id}
    assert [len(one.members) for one in joined] == [MANY, *[0] * (MANY - 1)]
