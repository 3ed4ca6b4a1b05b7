"""Lookup of the member that sent a request: a known one, a new one, or a replacement."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer.consumer_member import LEFT_EPOCH, Member
from odradek.core.groups.consumer.draft import Draft

JOIN_EPOCH = 0


def check_room(draft: Draft, member_id: str, instance_id: str | None) -> None:
    """Raise Refused(GROUP_MAX_SIZE_REACHED) if there is no room for the member.

    A static member that replaces another one of its instance needs none, as in Apache Kafka since 4.4.
    """
    if member_id in draft.state.members or (instance_id is not None and draft.state.static_member(instance_id)):
        return
    limit = draft.configs.int("group.consumer.max.size")
    if len(draft.state.members) >= limit:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {limit} members."
        )


def join_static(draft: Draft, member_id: str, instance_id: str, *, is_classic: bool) -> Member:
    """Return a new static member, or a replacement that takes over its instance's partitions.

    Raises Refused(UNRELEASED_INSTANCE_ID). In the consumer protocol, an instance announces that it leaves
    temporarily. Until then, or until its session ends, no other member can replace it. Classic members never announce
    it and are fenced.
    """
    present = draft.state.static_member(instance_id)
    if present is None:
        return draft.state.members.get(member_id) or Member(member_id)
    if not (is_classic or present.is_classic) and present.current.epoch != LEFT_EPOCH:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"Instance id {instance_id} is still owned by member {present.id}."
        )
    return _replace(draft, present, member_id)


def _replace(draft: Draft, old: Member, member_id: str) -> Member:
    target = draft.state.target_of(old.id)
    current = old.current._replace(epoch=0, previous_epoch=0)
    draft.remove(old)
    draft.put_metadata(member_id, old.metadata)
    draft.add(records.target(draft.state.id, member_id, target))
    draft.put_current(member_id, current)
    return draft.state.members[member_id]


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raise Refused(FENCED_MEMBER_EPOCH) for a wrong epoch.

    The previous epoch is valid if the member owns only partitions assigned to it: the last answer was lost.
    """
    known = member.current
    if epoch in (JOIN_EPOCH, known.epoch):
        return
    if epoch == known.previous_epoch and epoch < known.epoch and _has_all(member, owned):
        return
    than = "greater" if epoch > known.epoch else "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"Member epoch {epoch} is {than} than the current {known.epoch}: abandon all partitions and rejoin.",
    )


def _has_all(member: Member, owned: Assignment | None) -> bool:
    if owned is None:
        return False
    assigned = member.current.assigned
    return all(partitions <= Partitions(assigned.get(topic, ())) for topic, partitions in owned.items())
