"""A member of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup in their newest versions."""

from __future__ import annotations

from collections.abc import Callable

from load import LoadFailed
from members import NO_GENERATION, REBALANCE_MS, Channel, Group, Member

from odradek.base.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SESSION_MS = 45_000  # The Java consumer's default.
KIND = "consumer"
PROTOCOL = "range"
SUBSCRIPTION = b"\0\1" + b"\0\0\0\1" + b"\0\x0ctwelve-bytes" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
SHARE = b"\0\1" + b"\0\0\0\1" + b"\0\x0ctwelve-bytes" + b"\0\0\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff"

REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class Classic(Member):
    def __init__(self, group: Group, channel: Channel) -> None:
        super().__init__(group, channel)
        self._id = ""
        self._answers: dict[type, Callable[..., None]] = {
            JoinGroupResponse: self._on_joined,
            SyncGroupResponse: self._on_synced,
            HeartbeatResponse: self._on_heartbeat,
            LeaveGroupResponse: self._on_left,
        }

    def on_response(self, response: object) -> None:
        self._answers[type(response)](response)

    def join(self) -> None:
        self.settle(NO_GENERATION)
        request = JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            protocol_type=KIND,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=SUBSCRIPTION)],
        )
        self.channel.send(request, 9, JoinGroupResponse)

    def _on_joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = response.member_id
            self.join()
            return
        _check(response)
        self._joined_generation = response.generation_id
        shares = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=SHARE) for one in response.members]
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=response.generation_id,
            member_id=self._id,
            protocol_type=KIND,
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        self.channel.send(request, 5, SyncGroupResponse)

    def _on_synced(self, response: SyncGroupResponse) -> None:
        if response.error_code in REJOIN:
            self.join()
            return
        _check(response)
        if response.assignment != SHARE:
            raise LoadFailed(f"a share came back as {response.assignment!r}")
        self.settle(self._joined_generation)
        self.heartbeat_later()

    def heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group.name, generation_id=self.generation, member_id=self._id)
        self.channel.send(request, 4, HeartbeatResponse)

    def _on_heartbeat(self, response: HeartbeatResponse) -> None:
        if response.error_code in REJOIN:
            self.join()
            return
        _check(response)
        self.heartbeat_later()

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group.name, members=[MemberIdentity(member_id=self._id)])
        self.channel.send(request, 5, LeaveGroupResponse)

    def _on_left(self, response: LeaveGroupResponse) -> None:
        _check(response)
        _check(response.members[0])
        self.on_left()


def _check(response: object) -> None:
    if code := response.error_code:  # type: ignore[attr-defined]
        raise LoadFailed(f"a member got a {type(response).__name__} with error {code}")
