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

GO_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class Classic(Member):
    def __init__(self, group: Group, channel: Channel) -> None:
        super().__init__(group, channel)
        self._id = ""
        self._answers: dict[type, Callable[..., None]] = {
            JoinGroupResponse: self._joined,
            SyncGroupResponse: self._synced,
            HeartbeatResponse: self._beaten,
            LeaveGroupResponse: self._gone,
        }

    def answered(self, answer: object) -> None:
        self._answers[type(answer)](answer)

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

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            self.join()
            return
        _check(answer)
        self._joined_generation = answer.generation_id
        shares = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=SHARE) for one in answer.members]
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=answer.generation_id,
            member_id=self._id,
            protocol_type=KIND,
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        self.channel.send(request, 5, SyncGroupResponse)

    def _synced(self, answer: SyncGroupResponse) -> None:
        if answer.error_code in GO_AGAIN:
            self.join()
            return
        _check(answer)
        if answer.assignment != SHARE:
            raise LoadFailed(f"a share came back as {answer.assignment!r}")
        self.settle(self._joined_generation)
        self.ask_later()

    def ask(self) -> None:
        request = HeartbeatRequest(group_id=self.group.name, generation_id=self.generation, member_id=self._id)
        self.channel.send(request, 4, HeartbeatResponse)

    def _beaten(self, answer: HeartbeatResponse) -> None:
        if answer.error_code in GO_AGAIN:
            self.join()
            return
        _check(answer)
        self.ask_later()

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group.name, members=[MemberIdentity(member_id=self._id)])
        self.channel.send(request, 5, LeaveGroupResponse)

    def _gone(self, answer: LeaveGroupResponse) -> None:
        _check(answer)
        _check(answer.members[0])
        self.left()


def _check(answer: object) -> None:
    if code := answer.error_code:  # type: ignore[attr-defined]
        raise LoadFailed(f"a member got a {type(answer).__name__} with error {code}")
