"""One member's next step to its target, as a pure function of current and reported ownership.

    STABLE ──> UNREVOKED: it owns partitions of other members and first revokes them, in its old epoch
           ──> UNRELEASED: it is in the new epoch and waits for partitions that others have not released
           ──> STABLE: it has all of its target

A partition is assigned only after its owner has released it, so no two members share one. No partition is taken from
a member silently. The member receives the remaining partitions and must confirm that it has stopped using the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.consumer.consumer_member import NOTHING, CurrentAssignment, Held, MemberState

IsFree = Callable[[Uuid, int], bool]  # True if no other member has the partition.

_NONE: Partitions = frozenset()


class ReconciliationInput(NamedTuple):
    """A member's goal and the ownership it reports."""

    epoch: int  # The epoch of the target assignment.
    target: Assignment
    topics: Set[Uuid]  # The current subscription; the target may be of an earlier one.
    owned: Assignment | None  # Partitions reported by the member; None: unchanged.
    has_resubscribed: bool


def step(current: CurrentAssignment, aim: ReconciliationInput, is_free: IsFree) -> CurrentAssignment:
    """Return the member's next step, or `current` itself if there is none yet.

    Raises Refused(FENCED_MEMBER_EPOCH).
    """
    match current.state:
        case MemberState.STABLE if current.epoch == aim.epoch:
            return _unsubscribed(current, aim) if aim.has_resubscribed else current
        case MemberState.UNREVOKED if _still_owns(current.revoking, aim):
            return _unsubscribed(current, aim) if aim.has_resubscribed else current
        case MemberState.UNKNOWN:
            if aim.owned is None or aim.owned:
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The state of the member is unknown: abandon all partitions and rejoin.",
                )
            return _towards(current, aim, is_free, aim.epoch)
    return _towards(current, aim, is_free, current.epoch)


def _still_owns(revoking: Held, aim: ReconciliationInput) -> bool:
    if aim.owned is None:
        return True
    return any(revoking[topic].keys() & aim.owned.get(topic, _NONE) for topic in revoking)


def _unsubscribed(current: CurrentAssignment, aim: ReconciliationInput) -> CurrentAssignment:
    """Revoke all partitions of unsubscribed topics, before there is a new target."""
    kept = {topic: epochs for topic, epochs in current.assigned.items() if topic in aim.topics}
    if len(kept) == len(current.assigned):
        return current
    revoking = dict(current.revoking)
    for topic in current.assigned.keys() - kept.keys():
        revoking[topic] = {**revoking.get(topic, {}), **current.assigned[topic]}
    if _still_owns(revoking, aim):
        return current.moved(current.epoch, MemberState.UNREVOKED, kept, revoking)
    return current.moved(current.epoch, current.state, kept, current.revoking)


def _towards(current: CurrentAssignment, aim: ReconciliationInput, is_free: IsFree, epoch: int) -> CurrentAssignment:
    """Return the next step to the target; the member stays in `epoch` while it revokes partitions."""
    target = {topic: partitions for topic, partitions in aim.target.items() if topic in aim.topics}
    kept, revoking = _split(current.assigned, target)
    if revoking and _still_owns(revoking, aim):
        return current.moved(epoch, MemberState.UNREVOKED, kept, revoking)
    assigned, state = dict(kept), MemberState.STABLE
    for topic, partitions in target.items():
        missing = partitions - kept.get(topic, NOTHING).keys()
        free = {partition for partition in missing if is_free(topic, partition)}
        if free:
            assigned[topic] = {**kept.get(topic, {}), **dict.fromkeys(free, aim.epoch)}
        if len(free) < len(missing):
            state = MemberState.UNRELEASED
    return current.moved(aim.epoch, state, assigned)


def _split(held: Held, target: Assignment) -> tuple[Held, Held]:
    """Split the member's partitions into kept and revoked ones."""
    all_kept, all_revoked = {}, {}
    for topic, epochs in held.items():
        targeted = target.get(topic, _NONE)
        kept = {partition: epoch for partition, epoch in epochs.items() if partition in targeted}
        revoked = {partition: epoch for partition, epoch in epochs.items() if partition not in targeted}
        if kept:
            all_kept[topic] = kept
        if revoked:
            all_revoked[topic] = revoked
    return all_kept, all_revoked
