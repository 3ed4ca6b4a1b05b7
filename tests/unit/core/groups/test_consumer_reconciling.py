"""Reconciliation of one member with its target: its partitions, its revocations, and its arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.consumer.consumer_member import NOTHING, CurrentAssignment, Held, MemberState
from odradek.core.groups.consumer.reconciling import ReconciliationInput, step

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def held(epoch: int, *partitions: int, topic: Uuid = T) -> Held:
    return {topic: dict.fromkeys(partitions, epoch)} if partitions else {}


def aim(epoch: int, *partitions: int, owned: Assignment | None = None, **more: object) -> ReconciliationInput:
    target = {T: Partitions(partitions)} if partitions else {}
    return ReconciliationInput(epoch, target, frozenset({T, U}), owned, False)._replace(**more)  # type: ignore[arg-type]


def owning(*partitions: int) -> Assignment:
    return {T: Partitions(partitions)}


def free(topic: Uuid, partition: int) -> bool:
    return True


def test_new_member_gets_free_partitions() -> None:
    assert step(CurrentAssignment(), aim(2, 0, 1), free) == CurrentAssignment(2, 0, STABLE, held(2, 0, 1))


def test_partitions_that_are_not_free_are_awaited() -> None:
    waiting = step(CurrentAssignment(), aim(2, 0, 1), lambda topic, partition: partition == 0)
    assert waiting == CurrentAssignment(2, 0, UNRELEASED, held(2, 0))
    assert step(waiting, aim(2, 0, 1), free) == CurrentAssignment(2, 2, STABLE, held(2, 0, 1))


def test_kept_partitions_keep_their_assignment_epoch() -> None:
    before = CurrentAssignment(2, 1, STABLE, held(2, 0, 1))
    assert step(before, aim(5, 0, 1, 2), free).assigned == {T: {0: 2, 1: 2, 2: 5}}


def test_member_revokes_partitions_in_its_old_epoch() -> None:
    before = CurrentAssignment(2, 1, STABLE, held(2, 0, 1))
    giving = step(before, aim(3, 0, 5), free)
    assert giving == CurrentAssignment(2, 2, UNREVOKED, held(2, 0), held(2, 1))
    assert step(giving, aim(3, 0, 5), free) == giving
    assert step(giving, aim(3, 0, 5, owned=owning(0, 1)), free) == giving
    assert step(giving, aim(3, 0, 5, owned=owning(0)), free) == CurrentAssignment(3, 2, STABLE, {T: {0: 2, 5: 3}})


def test_member_without_owned_partitions_revokes_immediately() -> None:
    before = CurrentAssignment(2, 1, STABLE, held(2, 0, 1))
    assert step(before, aim(3, 5, owned={}), free) == CurrentAssignment(3, 2, STABLE, held(3, 5))


def test_target_may_change_during_a_revocation() -> None:
    giving = CurrentAssignment(2, 2, UNREVOKED, held(2, 0), held(2, 1))
    assert step(giving, aim(4, owned=owning(0, 1)), free) == giving
    further = step(giving, aim(4, owned=owning(0)), free)
    assert further == CurrentAssignment(2, 2, UNREVOKED, NOTHING, held(2, 0))


def test_new_target_may_return_revoked_partitions() -> None:
    giving = CurrentAssignment(2, 2, UNREVOKED, held(2, 0), held(2, 1))
    assert step(giving, aim(4, 0, 1, owned=owning(0)), free) == CurrentAssignment(4, 2, STABLE, {T: {0: 2, 1: 4}})


def test_unsubscribed_topics_are_revoked_before_a_new_target() -> None:
    before = CurrentAssignment(2, 1, STABLE, {**held(2, 0), **held(2, 7, topic=U)})
    left = aim(2, 0, topics=frozenset({U}), has_resubscribed=True)
    assert step(before, left, free) == CurrentAssignment(2, 2, UNREVOKED, held(2, 7, topic=U), held(2, 0))
    assert step(before, left._replace(owned={}), free) == CurrentAssignment(2, 2, STABLE, held(2, 7, topic=U))


def test_unsubscribed_partitions_join_the_running_revocation() -> None:
    before = CurrentAssignment(2, 2, UNREVOKED, held(2, 0), held(2, 1))
    left = aim(3, 0, topics=frozenset({U}), has_resubscribed=True)
    assert step(before, left, free) == CurrentAssignment(2, 2, UNREVOKED, NOTHING, held(2, 0, 1))


def test_target_partitions_of_unsubscribed_topics_are_ignored() -> None:
    assert step(CurrentAssignment(), aim(2, 0, topics=frozenset({U})), free) == CurrentAssignment(2, 0, STABLE)


def test_unknown_member_state_fences_a_member_with_partitions() -> None:
    unknown = CurrentAssignment(2, 1, MemberState(42), held(2, 0))
    assert unknown.state is MemberState.UNKNOWN
    for owned in (None, owning(0)):
        with pytest.raises(Refused) as refused:
            step(unknown, aim(3, 0, owned=owned), free)
        assert refused.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    assert step(unknown, aim(3, 0, owned={}), free) == CurrentAssignment(3, 2, STABLE, held(2, 0))


partitions = st.frozensets(st.integers(0, 7))


@pytest.mark.slow
@given(
    st.lists(st.tuples(partitions, partitions, st.sampled_from(("lazy", "honest"))), max_size=12),
    partitions,
)
def test_member_reaches_its_target_without_shared_partitions(
    targets: list[tuple[frozenset[int], frozenset[int], str]], last: frozenset[int]
) -> None:
    """Targets change while the member is slow, and other members hold some partitions for a time."""
    current = CurrentAssignment()
    for epoch, (target, taken, manner) in enumerate(targets, 1):
        mine = {partition for _, partition in current.partitions()}
        owned = owning(*current.assigned.get(T, ())) if manner == "honest" else None

        def is_free(topic: Uuid, partition: int, mine: set[int] = mine, taken: frozenset[int] = taken) -> bool:
            return partition in mine or partition not in taken

        after = step(current, aim(epoch, *target, owned=owned), is_free)
        got = set(after.assigned.get(T, ())) - mine
        assert not got & taken
        assert got <= target
        if after.state is UNREVOKED:
            assert after.epoch == current.epoch
            assert {partition for _, partition in after.partitions()} <= mine
        else:
            assert after.epoch == epoch
            assert set(after.assigned.get(T, ())) <= target
        if manner == "lazy":  # Nothing is removed before the member has confirmed the revocation.
            assert mine <= {partition for _, partition in after.partitions()}
        current = after
    epoch = len(targets) + 1
    for _ in range(3):
        current = step(current, aim(epoch, *last, owned=owning(*current.assigned.get(T, ()))), free)
    assert current.is_reconciled_to(epoch)
    assert set(current.assigned.get(T, ())) == last
