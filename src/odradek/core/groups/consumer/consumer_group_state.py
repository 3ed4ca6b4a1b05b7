"""The persistent state of a consumer group, changed only by records, both live and when loading.

group epoch       rises with changes of the members' subscriptions
assignment epoch  follows it when the target assignment for it has been computed
member epochs     follow the assignment epoch, each as its member takes over its share (reconciling.py)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.consumer.consumer_member import (
    NO_CURRENT_ASSIGNMENT,
    ConsumerMemberMetadata,
    CurrentAssignment,
    Member,
    Subscription,
)
from odradek.record.internal.consumer_group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

FIRST_EPOCH = 1  # The epoch of a group without records, and of its empty assignment.
NO_ASSIGNMENT: Assignment = {}


class TargetAssignmentMetadata(NamedTuple):
    """The group epoch of the target assignment, and its time (ms, wall clock; 0: never computed)."""

    epoch: int = FIRST_EPOCH
    at: int = 0


class GroupState:
    """The state of one group; a copy shares only immutable parts."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # Member ids by instance id.
        self.subscriptions: dict[Subscription, int] = {}  # The number of members with each subscription.
        self.targets: dict[str, Assignment] = {}
        self.assigned = TargetAssignmentMetadata()
        self.regexes: dict[str, frozenset[str]] = {}  # The topics that each regex matched.
        self.owners: dict[tuple[Uuid, int], str] = {}
        self.has_partition_metadata = False  # A record of an older broker, to be removed.

    def copy(self) -> GroupState:
        other = copy(self)
        other.members, other.static, other.targets = dict(self.members), dict(self.static), dict(self.targets)
        other.regexes, other.owners = dict(self.regexes), dict(self.owners)
        other.subscriptions = dict(self.subscriptions)
        return other

    # Records from the log.

    def apply(self, key: object, value: object | None) -> None:
        """Apply one record of the group; tombstones of missing entries change nothing."""
        match key:
            case ConsumerGroupMemberMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._put_metadata(key.member_id, None if value is None else ConsumerMemberMetadata.of(value))
            case ConsumerGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._put_current(key.member_id, None if value is None else CurrentAssignment.of(value))
            case ConsumerGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self._put_target(key.member_id, value)
            case _:
                self._apply_to_group(key, value)

    def _apply_to_group(self, key: object, value: object | None) -> None:
        match key:
            case ConsumerGroupMetadataKey() if isinstance(value, ConsumerGroupMetadataValue):
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupTargetAssignmentMetadataKey():
                if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
                    self.assigned = TargetAssignmentMetadata(value.assignment_epoch, value.assignment_timestamp)
                else:
                    self.assigned = TargetAssignmentMetadata()
            case ConsumerGroupRegularExpressionKey():
                if isinstance(value, ConsumerGroupRegularExpressionValue):
                    self.regexes[key.regular_expression] = frozenset(value.topics)
                else:
                    self.regexes.pop(key.regular_expression, None)
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None

    def _put_metadata(self, member_id: str, metadata: ConsumerMemberMetadata | None) -> None:
        old = self.members.get(member_id)
        if old is not None:
            self._forget_metadata(old)
        if metadata is not None:
            self._put_new_metadata(Member(member_id, metadata) if old is None else old._replace(metadata=metadata))
        elif old is not None:
            self._release(old)
            del self.members[member_id]
        self._check()

    def _put_new_metadata(self, member: Member) -> None:
        metadata = member.metadata
        self.members[member.id] = member
        self.subscriptions[metadata.subscription] = self.subscriptions.get(metadata.subscription, 0) + 1
        if metadata.instance_id is not None:
            self.static[metadata.instance_id] = member.id
        self._check()

    def _check(self) -> None:
        """Check the counts: each member has one subscription and at most one instance id."""
        members = len(self.members)
        assert len(self.static) <= members and len(self.subscriptions) <= members
        assert bool(self.subscriptions) == bool(members)

    def _forget_metadata(self, member: Member) -> None:
        metadata = member.metadata
        self.subscriptions[metadata.subscription] -= 1
        assert self.subscriptions[metadata.subscription] >= 0
        if not self.subscriptions[metadata.subscription]:
            del self.subscriptions[metadata.subscription]
        if metadata.instance_id is not None and self.static.get(metadata.instance_id) == member.id:
            del self.static[metadata.instance_id]

    def _put_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        old = self.members.get(member_id)
        if old is None:
            if current is None:
                return
            old = Member(member_id)
            self._put_new_metadata(old)
        member = self.members[member_id] = old._replace(current=current or NO_CURRENT_ASSIGNMENT)
        if member.current.held != old.current.held:  # In most cases only the epoch changes.
            self._release(old)
            self.owners.update(dict.fromkeys(member.current.partitions(), member_id))

    def _release(self, member: Member) -> None:
        for partition in member.current.partitions():
            if self.owners.get(partition) == member.id:
                del self.owners[partition]

    def _put_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = {
                Uuid(entry.topic_id): Partitions(entry.partitions) for entry in value.topic_partitions
            }

    # Queries.

    def known(self, member_id: str) -> Member:
        """Return the member, or raise Refused(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}.")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member that currently has this instance id, or None."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def named(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with these ids, or raise Refused(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)."""
        if instance_id is None:
            return self.known(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.id != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"Instance id {instance_id} belongs to member {member.id}.")
        return member

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_ASSIGNMENT)

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """Return the names of the topics in a subscription."""
        names, regex = subscription
        matched = self.regexes.get(regex)
        return names | matched if matched else names

    def topics(self) -> frozenset[str]:
        """Return the names of all topics that members are subscribed to."""
        return frozenset().union(*map(self.topics_of, self.subscriptions))

    @property
    def patterns(self) -> list[str]:
        """Return the regular expressions that members are subscribed with."""
        return sorted({regex for _, regex in self.subscriptions if regex})

    def is_free(self, topic: Uuid, partition: int, member_id: str) -> bool:
        """Return whether no other member has the partition."""
        return self.owners.get((topic, partition), member_id) == member_id

    @property
    def preferred_assignor(self) -> str | None:
        """Return the assignor named by most members that name one, or None."""
        votes = Counter(
            member.metadata.assignor for member in self.members.values() if member.metadata.assignor is not None
        )
        return max(sorted(votes), key=votes.__getitem__, default=None)

    @property
    def classic_members(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.is_classic)
