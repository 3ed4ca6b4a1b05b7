"""Version-independent requests and answers of classic groups; handlers translate to the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.core.coordinators.durable import PendingWrite

Protocols = tuple[tuple[str, bytes], ...]  # A member's protocols in order of preference, each with metadata.

NO_GENERATION = -1


class JoinGroup(NamedTuple):
    """A JoinGroup request."""

    member_id: str  # "" for a new member.
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str  # From the client; "" if it sent none.
    needs_member_id: bool  # A new dynamic member first receives its id, then joins with it.
    skips_assignment: bool  # The client supports skip_assignment.
    can_describe: Callable[[str], bool] | None = None  # Returns whether the client may describe a topic; None: all.


class JoinedMember(NamedTuple):
    """A member, as the leader sees it."""

    id: str
    instance_id: str | None
    metadata: bytes


class JoinGroupResult(NamedTuple):
    """The answer to JoinGroup."""

    code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()  # For the leader.


class SyncGroup(NamedTuple):
    """A SyncGroup request."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None  # None is not compared.
    protocol_name: str | None
    assignments: Mapping[str, bytes]  # From the leader.


class SyncGroupResult(NamedTuple):
    """The answer to SyncGroup."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """One member of a LeaveGroup request, given by its member id or by its instance id alone."""

    member_id: str
    instance_id: str | None
    reason: str = ""


class LeaveGroupResult(NamedTuple):
    """An error code for each leaver; the answer waits for `written` if the group wrote a record."""

    codes: list[ErrorCode]
    written: PendingWrite | None = None
