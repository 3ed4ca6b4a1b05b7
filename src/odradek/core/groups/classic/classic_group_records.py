"""The record of a classic group in __consumer_offsets: GroupMetadataKey, with all its members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.core.groups.classic.members import Member
from odradek.core.groups.classic.messages import JoinGroup
from odradek.record.internal.group_metadata import GroupMetadataValue, MemberMetadata

NO_TIME = -1


class Generation(NamedTuple):
    """The part of a group in the log other than its members."""

    number: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    since: int | None


def value_of(generation: Generation, members: Iterable[Member], assignments: Mapping[str, bytes]) -> GroupMetadataValue:
    """Return the record's value; a member without an assignment has an empty one."""
    return GroupMetadataValue(
        protocol_type=generation.protocol_type or "",
        generation=generation.number,
        protocol=generation.protocol_name,
        leader=generation.leader,
        current_state_timestamp=NO_TIME if generation.since is None else generation.since,
        members=[
            MemberMetadata(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(generation.protocol_name),
                assignment=assignments.get(member.id, b""),
            )
            for member in members
        ],
    )


def join_of(value: GroupMetadataValue, member: MemberMetadata) -> JoinGroup:
    """Return the JoinGroup that a loaded member would have sent, with only the group's protocol."""
    return JoinGroup(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout,
        # Before v1 one timeout served for both.
        rebalance_timeout_ms=member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout,
        protocol_type=value.protocol_type,
        protocols=((value.protocol or "", bytes(member.subscription)),),
        reason="",
        needs_member_id=False,
        skips_assignment=False,
    )
