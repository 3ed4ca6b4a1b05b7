"""A member of a consumer group, as values: its metadata and its current assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment
from odradek.record.internal.consumer_group_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

Subscription: TypeAlias = tuple[frozenset[str], str]  # Subscribed topic names, and a regex ("" if there is none).

# Partitions by topic, each with the epoch in which the member received it. Commits of earlier epochs are rejected
# (KIP-1251).
Held: TypeAlias = Mapping[Uuid, Mapping[int, int]]

NOTHING: Held = MappingProxyType({})
UNKNOWN_EPOCH, LEFT_EPOCH = -1, -2  # A member without a current assignment; a static member that left temporarily.


class MemberState(IntEnum):
    """A member's progress to its target, numbered as in the record."""

    STABLE = 0  # It has all of its target.
    UNREVOKED = 1  # It must first revoke partitions and report that.
    UNRELEASED = 2  # It waits for partitions that other members have not released.
    UNKNOWN = 127  # Written by a newer broker.

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ClassicMember(NamedTuple):
    """State kept only for a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, value: ClassicMemberMetadata) -> ClassicMember:
        protocols = tuple((one.name, bytes(one.metadata)) for one in value.supported_protocols)
        return cls(value.session_timeout_ms, protocols)

    def value(self) -> ClassicMemberMetadata:
        protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in self.protocols]
        return ClassicMemberMetadata(session_timeout_ms=self.session_timeout_ms, supported_protocols=protocols)


class ConsumerMemberMetadata(NamedTuple):
    """The metadata last sent by a member; `regex` is "" if there is none."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None

    @classmethod
    def of(cls, value: ConsumerGroupMemberMetadataValue) -> ConsumerMemberMetadata:
        metadata = value.classic_member_metadata
        return cls(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None if metadata is None else ClassicMember.of(metadata),
        )

    @property
    def subscription(self) -> Subscription:
        return self.topics, self.regex

    def value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None if self.classic is None else self.classic.value(),
        )


class CurrentAssignment(NamedTuple):
    """A member's partitions and their epochs; partitions being revoked still belong to it."""

    epoch: int = 0
    previous_epoch: int = UNKNOWN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING
    revoking: Held = NOTHING

    @classmethod
    def of(cls, value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
        return cls(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )

    def value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_listed(self.assigned),
            partitions_pending_revocation=_listed(self.revoking),
        )

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def moved(self, epoch: int, state: MemberState, assigned: Held, revoking: Held = NOTHING) -> CurrentAssignment:
        """Return the next assignment, in `epoch`."""
        return CurrentAssignment(epoch, self.epoch, state, assigned, revoking)

    @property
    def held(self) -> tuple[Held, Held]:
        """Return assigned and revoking partitions, which no other member may have yet."""
        return self.assigned, self.revoking

    def partitions(self) -> Iterable[tuple[Uuid, int]]:
        """Yield the partitions of `held` one by one."""
        for held in self.held:
            for topic, epochs in held.items():
                for partition in epochs:
                    yield topic, partition


NO_CURRENT_ASSIGNMENT = CurrentAssignment(UNKNOWN_EPOCH, UNKNOWN_EPOCH)


class Member(NamedTuple):
    """One member, an immutable value."""

    id: str
    metadata: ConsumerMemberMetadata = ConsumerMemberMetadata()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic is not None


def held_since(assignment: Assignment, epoch: int) -> Held:
    return {topic: dict.fromkeys(partitions, epoch) for topic, partitions in assignment.items()}


def _held(listed: Sequence[TopicPartitions], member_epoch: int) -> Held:
    """Read partitions with their epochs.

    Older brokers wrote no epochs. The member's own epoch is the safe substitute.
    """
    held = {}
    for one in listed:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        held[Uuid(one.topic_id)] = dict(zip(one.partitions, epochs, strict=True))
    return held


def _listed(held: Held) -> list[TopicPartitions]:
    listed = []
    for topic in sorted(held):
        epochs, partitions = held[topic], sorted(held[topic])
        in_order = [epochs[partition] for partition in partitions]
        listed.append(TopicPartitions(topic_id=topic, partitions=partitions, assignment_epochs=in_order))
    return listed
