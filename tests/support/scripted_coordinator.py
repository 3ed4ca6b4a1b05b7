"""The coordinator of a ScriptedBroker: groups of one real member, offsets, and scripted errors.

coordinator = ScriptedCoordinator(broker)
coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]      # The next responses; later ones succeed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from odradek.base.errors import ErrorCode
from odradek.client.consumer.group_messages import protocols
from odradek.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.scripted_broker import ScriptedBroker


class ScriptedCoordinator:
    """The coordinator of all names, on broker 1. `others` are passive members, which only the leader sees."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.errors: dict[type, list[ErrorCode]] = defaultdict(list)
        self.committed: dict[tuple[str, int], int] = {}
        self.others: dict[str, list[str]] = {}
        self.generation = 0
        self.member_ids = 0
        self.protocol = "range"
        self._broker = broker
        for request, answer in (
            (FindCoordinatorRequest, self._find),
            (JoinGroupRequest, self._join),
            (SyncGroupRequest, self._sync),
            (HeartbeatRequest, self._heartbeat),
            (LeaveGroupRequest, self._leave),
            (OffsetCommitRequest, self._commit),
            (OffsetFetchRequest, self._fetch),
        ):
            broker.on(request, answer)

    def seen(self, *kinds: type) -> list[Any]:
        """Return the requests of these types, in order."""
        return [each for each in self._broker.seen if isinstance(each, kinds)]

    def _next_error(self, request: type) -> ErrorCode:
        waiting = self.errors[request]
        return waiting.pop(0) if waiting else ErrorCode.NONE

    def _find(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        code = self._next_error(FindCoordinatorRequest)
        node, host, port = (-1, "", -1) if code else (1, "127.0.0.1", self._broker.port)
        if version < 4:
            return FindCoordinatorResponse(error_code=code, node_id=node, host=host, port=port)
        found = [
            Coordinator(key=key, node_id=node, host=host, port=port, error_code=code, error_message=None)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)

    def _join(self, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
        code, member_id = self._next_error(JoinGroupRequest), request.member_id
        if not code and not member_id:
            self.member_ids += 1
            member_id = f"member-{self.member_ids}"
            if version >= 4 and request.group_instance_id is None:
                code = ErrorCode.MEMBER_ID_REQUIRED
        if code:
            return JoinGroupResponse(error_code=code, leader="", member_id=member_id, members=[], protocol_name="")
        self.generation += 1
        subscriptions = {member_id: bytes(request.protocols[0].metadata)}
        subscriptions |= {other: bytes(protocols(topics)[0].metadata) for other, topics in self.others.items()}
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            leader=member_id,
            member_id=member_id,
            members=[JoinGroupResponseMember(member_id=each, metadata=data) for each, data in subscriptions.items()],
        )

    def _sync(self, request: SyncGroupRequest, version: int) -> SyncGroupResponse:
        code = self._next_error(SyncGroupRequest)
        shares = {each.member_id: bytes(each.assignment) for each in request.assignments}
        return SyncGroupResponse(error_code=code, assignment=b"" if code else shares.get(request.member_id, b""))

    def _heartbeat(self, request: HeartbeatRequest, version: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self._next_error(HeartbeatRequest))

    def _leave(self, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=self._next_error(LeaveGroupRequest))

    def _commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        code = self._next_error(OffsetCommitRequest)
        topics = []
        for topic in request.topics:
            if not code:
                self.committed |= {
                    (topic.name, part.partition_index): part.committed_offset for part in topic.partitions
                }
            parts = [
                OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                for part in topic.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        code = self._next_error(OffsetFetchRequest)
        if version < 8:
            return OffsetFetchResponse(error_code=code, topics=[] if code else self._offsets_alone(request))
        groups = [
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                error_code=code,
                topics=[]
                if code
                else [
                    OffsetFetchResponseTopics(
                        name=name,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=index,
                                committed_offset=self.committed.get((name, index), -1),
                                metadata="",
                                error_code=0,
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in self._requested(group.topics).items()
                ],
            )
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)

    def _offsets_alone(self, request: OffsetFetchRequest) -> list[OffsetFetchResponseTopic]:
        return [
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=self.committed.get((name, index), -1),
                        metadata="",
                        error_code=0,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in self._requested(request.topics).items()
        ]

    def _requested(self, topics: list[Any] | None) -> dict[str, list[int]]:
        if topics is not None:
            return {topic.name: topic.partition_indexes for topic in topics}
        every: dict[str, list[int]] = {}
        for name, index in sorted(self.committed):
            every.setdefault(name, []).append(index)
        return every
