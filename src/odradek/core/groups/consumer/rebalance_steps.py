"""The steps that follow a change of the members' subscriptions, all in the same draft.

resolve regexes ──> a new epoch of the group ──> a target assignment for it ──> one member's next step towards it
"""

from __future__ import annotations

import logging

from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.groups.assignors import ASSIGNORS, CLASSES
from odradek.core.groups.assignors.spec import Assignment, MemberSpec
from odradek.core.groups.consumer import consumer_group_records as records
from odradek.core.groups.consumer import reconciling
from odradek.core.groups.consumer import subscribed_topics as topics
from odradek.core.groups.consumer.consumer_group_state import TargetAssignmentMetadata
from odradek.core.groups.consumer.consumer_member import ConsumerMemberMetadata, Member
from odradek.core.groups.consumer.draft import Draft
from odradek.core.kernel.moment import Moment

_LOG = logging.getLogger(__name__)


def assignor_names(configs: BrokerConfigs) -> list[str]:
    """Return the assignors that members may request; the first one is the default."""
    return [CLASSES.get(name, name) for name in configs.list("group.consumer.assignors")] or list(ASSIGNORS)


def assignor_name(draft: Draft) -> str:
    """Return the assignor of the group: the one that most members ask for, or the first that is configured."""
    names = assignor_names(draft.configs)
    name = draft.state.preferred_assignor
    return name if name in names else names[0]


# Regular expressions.


def resolve(draft: Draft, before: ConsumerMemberMetadata, member: Member, now: Moment) -> bool:
    """Resolve the member's regex if it differs from `before`; return False if it is the same.

    Raises Refused(INVALID_REGULAR_EXPRESSION).
    """
    old, new = before.regex, member.metadata.regex
    if old == new:
        return False
    forget(draft, old)
    if new and new not in draft.state.regexes:
        topics.check_pattern(new)
        _put(draft, new, now)
    return True


def forget(draft: Draft, pattern: str) -> None:
    """Delete the matches of a regex that no member is subscribed with anymore."""
    if pattern in draft.state.regexes and pattern not in draft.state.patterns:
        draft.add(records.regex(draft.state.id, pattern, None, 0))


def refresh_regexes(draft: Draft, now: Moment) -> None:
    """Match all regexes against all topics if topics changed or the last match is too old."""
    group, patterns = draft.group, draft.state.patterns
    if group is None or not (patterns and _is_due(draft, now)):
        return
    changed = [pattern for pattern in patterns if _put(draft, pattern, now)]
    draft.has_refreshed_regexes = True
    if changed:
        draft.reasons.append(f"the topics that match {', '.join(changed)} changed")


def _is_due(draft: Draft, now: Moment) -> bool:
    group = draft.group
    assert group is not None
    if group.resolved_at is None:
        return True
    age = now.steady - group.resolved_at
    if group.has_stale_regexes:
        return age >= topics.REFRESH_REGEXES_MS_MIN
    return age >= draft.configs.int("group.consumer.regex.refresh.interval.ms")


def _put(draft: Draft, pattern: str, now: Moment) -> bool:
    """Match a regex against all topics; return False if the matches are unchanged.

    The result applies to every member with that regex. As in Apache Kafka, it contains the topics that this member
    may describe.
    """
    matched = topics.matching(pattern, draft.view.topics)
    if draft.can_describe is not None:
        matched = frozenset(filter(draft.can_describe, matched))
    if draft.state.regexes.get(pattern) == matched:
        return False
    draft.add(records.regex(draft.state.id, pattern, matched, now.wall))
    return True


# The epoch of the group.


def raise_epoch(draft: Draft) -> None:
    """Raise the group's epoch if there is a reason, such as changed topics."""
    if not (draft.reasons or draft.has_stale_topics):
        return
    state = draft.state
    new_hash = topics.metadata_hash(state.topics(), draft.view)
    draft.has_checked_topics = True
    if not draft.reasons and new_hash != state.metadata_hash:
        draft.reasons.append("the metadata of subscribed topics changed")
    if draft.reasons:
        draft.add(records.epoch(state.id, state.epoch + 1, new_hash))
    if draft.state.has_partition_metadata:
        draft.add(records.no_partition_metadata(state.id))


# The target assignment.


def assign_nothing(draft: Draft) -> None:
    """Let the assignment of a group without members follow its epoch, as in Apache Kafka since 4.4.

    It has no time: the next member to join does not wait for the interval between two assignments.
    """
    if not draft.state.members:
        draft.add(records.assigned(draft.state.id, TargetAssignmentMetadata(draft.state.epoch)))


def assign(draft: Draft, now: Moment) -> None:
    """Compute a target assignment for the group's epoch.

    If the last assignment is too recent, a later heartbeat computes it.
    """
    state = draft.state
    if state.assigned.epoch >= state.epoch:
        return
    interval = draft.configs.int("group.consumer.assignment.interval.ms")
    if state.assigned.at and 0 <= now.wall - state.assigned.at < interval:
        return
    targets = _targets(draft, assignor_name(draft))
    for member_id, target in targets.items():
        before = state.targets.get(member_id)
        if target is not before and target != before:  # Most targets are unchanged.
            draft.add(records.target(state.id, member_id, target))
    draft.add(records.assigned(state.id, TargetAssignmentMetadata(state.epoch, now.wall)))


def _targets(draft: Draft, name: str) -> dict[str, Assignment]:
    state = draft.state
    topic_ids = {
        subscription: topics.ids(state.topics_of(subscription), draft.view) for subscription in state.subscriptions
    }
    members = {
        member_id: MemberSpec(topic_ids[metadata.subscription], state.target_of(member_id), metadata.instance_id)
        for member_id, metadata, _ in state.members.values()
    }
    counts = {topic.id: len(topic.partitions) for topic in topics.present(state.topics(), draft.view)}
    return ASSIGNORS[name](members, counts)


# One member.


def reconcile(draft: Draft, member_id: str, owned: Assignment | None, *, has_resubscribed: bool) -> Member:
    """Return the member after its next step, or raise Refused(FENCED_MEMBER_EPOCH)."""
    state = draft.state
    member = state.members[member_id]
    if not has_resubscribed and member.current.is_reconciled_to(state.assigned.epoch):
        return member
    aim = reconciling.ReconciliationInput(
        state.assigned.epoch,
        state.target_of(member_id),
        topics.ids(state.topics_of(member.metadata.subscription), draft.view),
        owned,
        has_resubscribed,
    )
    current = reconciling.step(member.current, aim, lambda topic, index: state.is_free(topic, index, member_id))
    if current != member.current:
        draft.put_current(member_id, current)
    return draft.state.members[member_id]
