"""Random histories of a classic group: members join, leave, die and return in any order.

In any history, counters match what they count and no member is lost. After the last event every waiting request is
answered, and the group is empty.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.core.groups.classic import ClassicGroup, answer_round
from odradek.core.groups.classic.classic_group_states import State
from odradek.core.groups.shard.group_shard import GroupShard
from scenario.broker_verbs import kill
from scenario.group_verbs import forget, heartbeat, join, leave, sync
from scenario.world import World
from support.kept import kept, kept_in_log

pytestmark = pytest.mark.slow

NAMES = ["a", "b", "c", "d"]
CLIENTS = st.sampled_from(NAMES)
DAY_MS = 24 * 3_600_000


class Members(RuleBasedStateMachine):
    notified_per_turn = answer_round.MEMBERS_PER_TURN

    def __init__(self) -> None:
        super().__init__()
        answer_round.MEMBERS_PER_TURN = self.notified_per_turn
        self.place = TemporaryDirectory()
        self.world = World(Path(self.place.name))
        self.world.configure({"group.initial.rebalance.delay.ms": "3000", "group.max.size": "3"})
        self.last_generation = 0

    def teardown(self) -> None:
        answer_round.MEMBERS_PER_TURN = Members.notified_per_turn
        self.world.is_stalled = False
        self.world.pass_time(DAY_MS)
        assert not self.world.waiting, "everybody is answered in the end"
        group = self.group
        assert group is None or (group.is_empty and not group.members.pending)
        assert len(self.world.harness.broker.timers) == 0
        self.place.cleanup()

    @property
    def shard(self) -> GroupShard:
        return self.world.harness.broker.groups.shard_of("g")

    @property
    def group(self) -> ClassicGroup | None:
        group = self.shard.groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    # Client requests.

    @rule(
        client=CLIENTS, version=st.sampled_from([3, 5, 9]), protocols=st.sampled_from(["range", "range,rr", "rr,range"])
    )
    def join(self, client: str, version: int, protocols: str) -> None:
        join(self.world, ["g", client, f"version={version}", f"protocols={protocols}"])

    @rule(client=st.sampled_from(["s", "s2"]), protocols=st.sampled_from(["range", "rr,range"]))
    def join_as_instance(self, client: str, protocols: str) -> None:
        join(self.world, ["g", client, "instance=i", f"protocols={protocols}", "version=9"])

    @rule(client=st.sampled_from([*NAMES, "s", "s2"]))
    def sync(self, client: str) -> None:
        sync(self.world, ["g", client, *(f"{name}={name}" for name in [*NAMES, "s", "s2"])])

    @rule(client=st.sampled_from([*NAMES, "s", "s2"]))
    def heartbeat(self, client: str) -> None:
        heartbeat(self.world, ["g", client])

    @rule(clients=st.lists(CLIENTS, min_size=1, unique=True))
    def leave(self, clients: list[str]) -> None:
        leave(self.world, ["g", *clients])

    @rule(client=st.sampled_from([*NAMES, "s", "s2"]))
    def restart(self, client: str) -> None:
        forget(self.world, ["g", client])

    @rule(client=CLIENTS)
    def hang_up(self, client: str) -> None:
        self.world.hang_up(client)

    # Failures and timeouts.

    @rule(seconds=st.sampled_from([1, 3, 9, 10, 60, 300]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds * 1000)

    @rule(stalls=st.booleans())
    def disk(self, stalls: bool) -> None:
        self.world.is_stalled = stalls

    @precondition(lambda self: self.group is not None)
    @rule()
    def crash(self) -> None:
        assert self.group is not None
        expected = kept_in_log(self.shard.log.leading.log)
        kill(self.world, [])
        assert kept(self.shard) == expected
        assert self.group is None or self.group.phase in (State.STABLE, State.EMPTY)
        self.last_generation = self.group.generation if self.group else 0

    # Invariants.

    @invariant()
    def counts_agree(self) -> None:
        self.world.settle()
        group = self.group
        if group is None:
            return
        members = list(group.members)
        assert group.members.waiting == sum(member.joining is not None for member in members)
        offered = Counter(name for member in members for name, _ in member.protocols)
        assert +group.members._supporters == offered
        assert {one.instance_id: one.id for one in members if one.is_static} == group.members._static
        assert (group.members.leader in group.members) if members else group.members.leader is None
        assert group.members.unsynced <= {member.id for member in members}
        assert len(members) <= 3 or group.phase is State.PREPARING

    @invariant()
    def state_agrees(self) -> None:
        group = self.group
        if group is None:
            self.last_generation = 0  # The member was never stored, or no longer is.
            return
        assert group.generation >= self.last_generation
        self.last_generation = group.generation
        members = list(group.members)
        if group.phase in (State.EMPTY, State.DEAD):
            assert not members
        if group.phase in (State.COMPLETING, State.STABLE):
            assert members
            assert all(any(name == group.protocol_name for name, _ in member.protocols) for member in members)
            answered = [member for member in members if member not in group.answer_round.left]
            assert all(member.joining is None and not member.is_new for member in answered)
        else:
            assert not group.answer_round.left, f"who is told belongs to what is over: {group.phase}"
        if group.phase is not State.COMPLETING:
            assert all(member.syncing is None or member in group.answer_round.left for member in members)

    @invariant()
    def no_member_is_forgotten(self) -> None:
        """Check that the group or the disk write knows each waiting member, and that each member has one timer."""
        group = self.group
        waiting = {one for one in self.world.waiting if not self.world.is_stalled}
        promises = {parked.condition for parked in waiting}
        known = (
            {promise for member in group.members for promise in (member.joining, member.syncing)} if group else set()
        )
        assert promises <= known
        if group is not None:
            bound = len(group.members) + len(group.members.pending) + 1 + bool(group.answer_round.left)
            assert len(self.world.harness.broker.timers) <= bound


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class MembersNotifiedOneByOne(Members):
    """Members of a group of hundreds that are answered in turns, while others join, leave or become ready."""

    notified_per_turn = 1

    @rule()
    def all_join(self) -> None:
        for name in NAMES:
            join(self.world, ["g", name])

    @rule()
    def a_moment_passes(self) -> None:
        self.world.pass_time(1)

    @rule()
    def all_sync(self) -> None:
        for name in NAMES:
            self.sync(name)


TestMembersNotifiedOneByOne = MembersNotifiedOneByOne.TestCase
TestMembersNotifiedOneByOne.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
