"""Members of classic groups over a broker in memory, for tests of one request at a time."""

from __future__ import annotations

from odradek.api.request.outcome import Encoded
from odradek.core.groups.classic import ClassicGroup
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.in_memory import Harness

JOIN, SYNC, HEARTBEAT, LEAVE, DESCRIBE = range(10), range(6), range(5), range(6), range(7)
OLD = 3  # The newest version of JoinGroup that admits a member without a second request.


def coordinator(directory: object, **configs: str) -> Harness:
    """Create a broker that coordinates all groups, without an initial rebalance delay."""
    settings = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"} | configs
    harness = Harness(directory, **settings)  # type: ignore[arg-type]
    harness.request(FindCoordinatorRequest(key="g", key_type=0), 3, FindCoordinatorResponse)
    return harness


def joining(member_id: str = "", group: str = "g", **fields: object) -> JoinGroupRequest:
    values: dict[str, object] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    }
    return JoinGroupRequest(**values | fields)  # type: ignore[arg-type]


def join(harness: Harness, version: int = OLD, **fields: object) -> JoinGroupResponse:
    return harness.request(joining(**fields), version, JoinGroupResponse)  # type: ignore[arg-type]


def parked(outcome: Encoded | ParkedRequest[Encoded]) -> ParkedRequest[Encoded]:
    assert isinstance(outcome, ParkedRequest)
    return outcome


def syncing(joined: JoinGroupResponse, group: str = "g", **fields: object) -> SyncGroupRequest:
    values: dict[str, object] = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    }
    return SyncGroupRequest(**values | fields)  # type: ignore[arg-type]


def sync(harness: Harness, joined: JoinGroupResponse, version: int = 3, **fields: object) -> SyncGroupResponse:
    return harness.request(syncing(joined, **fields), version, SyncGroupResponse)  # type: ignore[arg-type]


def stable(harness: Harness, **fields: object) -> JoinGroupResponse:
    """Create a group with one member and its assignment."""
    joined = join(harness, **fields)
    assert joined.error_code == 0 == sync(harness, joined, group=str(fields.get("group", "g"))).error_code
    return joined


def group_of(harness: Harness, group_id: str = "g") -> ClassicGroup:
    group = harness.broker.groups.group(group_id)
    assert isinstance(group, ClassicGroup)
    return group
