"""A blocked broker reads pending requests first: no session ends for the broker's own silence."""

from __future__ import annotations

import socket
import time

from odradek.app.serve.broker_startup import RunningBroker
from odradek.base.errors import ErrorCode
from odradek.testing import Broker
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupResponse
from support.members import joining, syncing
from support.raw_client import RawClient, frame

SESSION_MS = 2_000  # Another half passes: enough to be late, and too little for a member to give up.


def test_a_heartbeat_pending_in_the_socket_renews_the_session() -> None:
    with Broker(group_min_session_timeout_ms=100) as broker, RawClient(broker.port) as member:
        member.request(FindCoordinatorRequest(key="g"), 3, FindCoordinatorResponse)
        joined = member.request(joining(session_timeout_ms=SESSION_MS), 3, JoinGroupResponse)
        assert joined.error_code == member.request(syncing(joined), 3, SyncGroupResponse).error_code == ErrorCode.NONE
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)

        def block() -> None:
            """Block the loop as one long request does: afterwards, timers are handled before sockets."""
            bell.recv(1)
            member.send(frame(heartbeat, 3))
            time.sleep(1.5 * SESSION_MS / 1000)

        async def begin(running: RunningBroker) -> None:
            running.shell.loop.add_reader(bell, block)

        async def end(running: RunningBroker) -> None:
            running.shell.loop.remove_reader(bell)

        ringer, bell = socket.socketpair()
        with ringer, bell:
            assert broker._host is not None
            broker._host.run_query(begin)
            ringer.send(b"!")
            _, answer = decode_response(HeartbeatResponse, 3, member.read_frame())
            assert answer.error_code == ErrorCode.NONE
            broker._host.run_query(end)
