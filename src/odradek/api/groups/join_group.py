"""JoinGroup, versions 0 to 9.

Adds a member to a group, or rejoins it, and waits for the other members.

- v0: the session timeout is also the rebalance timeout.
- v4: a new member first receives its id and then sends the request again with it (KIP-394).
- v5: static members (KIP-345).
- v6: flexible.
- v7: the protocol type and name may be null (KIP-559).
- v8: the client gives a reason.
- v9: the response can make a rejoining leader skip the assignment (KIP-814).

Differences from Apache Kafka:

- A group that no member finally joins is forgotten. Kafka keeps an empty group for a while.
- More than a thousand protocols are refused, because each later member and each rebalance would count all of them
  again.
"""

from __future__ import annotations

from functools import partial

from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import ANSWER_BYTES_INLINE_MAX, REQUEST_ELEMENTS_INLINE_MAX
from odradek.core.groups import membership
from odradek.core.groups.classic.messages import JoinGroup, JoinGroupResult
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.purgatory import NEVER, ParkedRequest
from odradek.core.kernel.work import Work
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

# With these errors the response has no member id: the member lost it, or will not get one.
_WITHOUT_MEMBER_ID = {ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_AUTHORIZATION_FAILED}
PROTOCOLS_MAX = 1_000  # Clients name a handful.
MEMBER_ID_REQUIRED_SINCE, NO_PROTOCOL_SINCE, SKIP_ASSIGNMENT_SINCE = 4, 7, 9


def handle(call: Call, body: JoinGroupRequest) -> JoinGroupResponse | ParkedRequest[JoinGroupResponse] | Slices:
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    if body.group_id:
        _check_session_timeout(call, body)
    if len(body.protocols) > PROTOCOLS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{len(body.protocols)} protocols exceed the limit of {PROTOCOLS_MAX}")
    shard = call.broker.groups.shard_of(body.group_id)
    promise = membership.join(shard, body.group_id, _request(call, body), call.now)
    stopped = JoinGroupResult(ErrorCode.NOT_COORDINATOR, body.member_id)
    joined = promise.value
    if joined is not None:
        return _answer_in_thread(call, joined) if _takes_long(joined) else _answer(call, joined)
    parked = ParkedRequest(promise, NEVER, lambda: _answer(call, promise.value or stopped))
    parked.takes_long = lambda: _takes_long(promise.value or stopped)
    return parked


def refuse(call: Call, body: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    has_no_member_id = code in _WITHOUT_MEMBER_ID
    return _answer(call, JoinGroupResult(code, "" if has_no_member_id else body.member_id))


def _check_session_timeout(call: Call, body: JoinGroupRequest) -> None:
    configs = call.broker.configs
    minimum, maximum = configs.int("group.min.session.timeout.ms"), configs.int("group.max.session.timeout.ms")
    if not minimum <= body.session_timeout_ms <= maximum:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {body.session_timeout_ms} ms is out of range: {minimum} to {maximum} ms",
        )


def _request(call: Call, body: JoinGroupRequest) -> JoinGroup:
    protocols: dict[str, bytes] = {}
    for protocol in body.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return JoinGroup(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=call.client_id or "",
        client_host=call.peer.client_host,
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if call.version else body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple(protocols.items()),
        reason=body.reason or "",
        needs_member_id=call.version >= MEMBER_ID_REQUIRED_SINCE,
        skips_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
        can_describe=call.can_describe,
    )


def _takes_long(joined: JoinGroupResult) -> bool:
    """Return whether this is the answer to the leader of a large group."""
    members = joined.members
    if len(members) > REQUEST_ELEMENTS_INLINE_MAX:
        return True
    return sum(len(member.metadata) for member in members) > ANSWER_BYTES_INLINE_MAX


def _answer_in_thread(call: Call, joined: JoinGroupResult) -> Slices:
    return (yield Work(partial(_answer, call, joined)))


def _answer(call: Call, joined: JoinGroupResult) -> JoinGroupResponse:
    name = joined.protocol_name or None
    return JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=name if call.version >= NO_PROTOCOL_SINCE else name or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata)
            for member in joined.members
        ],
    )
