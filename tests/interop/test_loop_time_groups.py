"""Loop time with large groups: no callback takes the loop for long when all members join at once.

As in test_loop_time.py, the processor time of the loop's thread is measured.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from support.crowd import need_files
from support.loop_time import no_long_callbacks
from support.members import OLD, joining, syncing
from support.raw_client import RawClient, frame
from support.timed_serve import TimedServing
from support.waiting import until

MANY = 1_000
FIND_COORDINATOR, SYNC, HEARTBEAT = 3, 3, 3
PROTOCOLS = [JoinGroupRequestProtocol(name="range", metadata=bytes(200))]
CONFIGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "1000"}


def join(client: RawClient, member_id: str = "", protocols: list[JoinGroupRequestProtocol] = PROTOCOLS) -> None:
    client.send(frame(joining(member_id, protocols=protocols, session_timeout_ms=60_000), OLD))


def read_join_response(client: RawClient) -> JoinGroupResponse:
    return decode_response(JoinGroupResponse, OLD, client.read_frame())[1]


def join_again(clients: list[RawClient], members: list[JoinGroupResponse]) -> None:
    """Rejoin: the leader first, so that all have to; the others when they learn of it."""
    by_leading = sorted(zip(clients, members, strict=True), key=lambda pair: not leads(pair[1]))
    (leader, its), *others = by_leading
    join(leader, its.member_id)
    client, one = others[0]
    beat = HeartbeatRequest(group_id="g", generation_id=one.generation_id, member_id=one.member_id)
    until(lambda: client.request(beat, HEARTBEAT, HeartbeatResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS)
    for client, one in others:
        join(client, one.member_id)


def leads(member: JoinGroupResponse) -> bool:
    return member.leader == member.member_id


def synced(clients: list[RawClient], members: list[JoinGroupResponse]) -> list[SyncGroupResponse]:
    """Sync all members, the leader last."""
    shares = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=one.member_id.encode()) for one in members]
    for client, one in sorted(zip(clients, members, strict=True), key=lambda pair: leads(pair[1])):
        client.send(frame(syncing(one, assignments=shares if leads(one) else []), SYNC))
    return [decode_response(SyncGroupResponse, SYNC, client.read_frame())[1] for client in clients]


def connected(broker: TimedServing, stack: ExitStack, count: int) -> list[RawClient]:
    clients = [stack.enter_context(RawClient(broker.port)) for _ in range(count)]
    request = FindCoordinatorRequest(key="g", key_type=0)
    until(lambda: not clients[0].request(request, FIND_COORDINATOR, FindCoordinatorResponse).error_code)
    return clients


def test_a_thousand_joining_members_do_not_block_the_loop(tmp_path: Path) -> None:
    need_files(4 * MANY)
    with TimedServing(tmp_path, **CONFIGS) as broker, ExitStack() as stack:
        clients = connected(broker, stack, MANY)
        with no_long_callbacks(broker):
            for client in clients:
                join(client)
            for generation in (1, 2):
                members = [read_join_response(client) for client in clients]
                assert {(one.error_code, one.generation_id) for one in members} == {(ErrorCode.NONE, generation)}
                assert [len(one.members) for one in members if leads(one)] == [MANY]
                shares = synced(clients, members)
                assert [bytes(one.assignment).decode() for one in shares] == [one.member_id for one in members]
                join_again(clients, members)


def test_a_join_response_of_thirty_megabytes_does_not_block_the_loop(tmp_path: Path) -> None:
    large = [JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))]
    members = 300
    with TimedServing(tmp_path, **CONFIGS) as broker, ExitStack() as stack:
        clients = connected(broker, stack, members)
        with no_long_callbacks(broker):
            for client in clients:
                join(client, protocols=large)
            answers = [read_join_response(client) for client in clients]
            (leading,) = (one for one in answers if leads(one))
            assert [len(one.metadata) for one in leading.members] == [100_000] * members
