"""LeaderAndIsr, versions 0 to 7.

Assigns leaders and followers: a broker learns which of its replicas it leads, and which leaders the others follow. The
controller sends this request to brokers; Odradek implements both sides. An error of the whole request is also returned
for each of its partitions, as in Apache Kafka.

- v2: partitions are grouped by topic.
- v5: the response has topic ids instead of names.
- v6: leader recovery state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.api.cluster.controller_checks import assigned_error, valid_partitions
from odradek.api.request.call import Call
from odradek.api.request.inter_broker import authorized_queries, await_result, by_length, to_broker
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, whole
from odradek.api.request.topic_states import (
    Errors,
    brokers,
    each,
    errors_by_partition,
    leader_and_isr,
    states_and_ids,
    topic_states,
)
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.broker_request_batch import AssignedState, BecomeLeaderOrFollower, ControlRequest
from odradek.core.kernel.cluster_view import PLAINTEXT, RECOVERED, BrokerInfo, Endpoint
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from odradek.wire.schema.schema import maker

# The controller's value, which this module converts to a message and back: core/controller/broker_request_batch.py.
GROUPED_FROM, ANSWERED_BY_ID_FROM, WITH_RECOVERY_FROM, LAST = 2, 5, 6, 7

_error = maker(LeaderAndIsrPartitionError)


def handle(call: Call, body: LeaderAndIsrRequest) -> Slices:
    queries = authorized_queries(call)
    become = yield from parse(body, call.peer.listener)
    valid, refused = yield from valid_partitions(become.partitions, become.topic_ids, assigned_error)
    sent = to_broker(call, body, become._replace(partitions=valid))
    call.free_later((sent, become))
    failed = yield from await_result(queries.control_requests.submit(sent), call)
    answer = yield from _answer(become, {**failed, **refused}, call.version)
    return by_length(answer, len(become.partitions))


def refuse(call: Call, body: LeaderAndIsrRequest, code: ErrorCode) -> LeaderAndIsrResponse:
    if call.version >= ANSWERED_BY_ID_FROM:
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[_refused("", state, code) for state in topic.partition_states],
            )
            for topic in body.topic_states
        ]
        return LeaderAndIsrResponse(error_code=code, topics=topics)
    refused = [_refused(state.topic_name, state, code) for state in body.ungrouped_partition_states]
    refused += [
        _refused(topic.topic_name, state, code) for topic in body.topic_states for state in topic.partition_states
    ]
    return LeaderAndIsrResponse(error_code=code, partition_errors=refused)


def _refused(topic: str, state: LeaderAndIsrPartitionState, code: ErrorCode) -> LeaderAndIsrPartitionError:
    return _error(topic_name=topic, partition_index=state.partition_index, error_code=code)


def _answer(become: BecomeLeaderOrFollower, failed: Errors, version: int) -> Parts[LeaderAndIsrResponse]:
    if version >= ANSWERED_BY_ID_FROM:
        topics = yield from _by_id(become.partitions, become.topic_ids, failed)
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)
    partition_errors = []
    for number, partition in enumerate(become.partitions, 1):
        code = failed.get(partition, ErrorCode.NONE)
        partition_errors.append(
            _error(topic_name=partition.topic, partition_index=partition.partition, error_code=code)
        )
        if not number % CHEAP:
            yield
    return LeaderAndIsrResponse(error_code=ErrorCode.NONE, partition_errors=partition_errors)


def _by_id(
    partitions: Iterable[TopicPartition], ids: Mapping[TopicName, Uuid], failed: Errors
) -> Parts[list[LeaderAndIsrTopicError]]:
    topics: dict[Uuid, LeaderAndIsrTopicError] = {}
    for number, partition in enumerate(partitions, 1):
        topic_id = ids.get(partition.topic, ZERO_UUID)
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[])
        code = failed.get(partition, ErrorCode.NONE)
        topic.partition_errors.append(_error(partition_index=partition.partition, error_code=code))
        if not number % CHEAP:
            yield
    return list(topics.values())


def last_version(become: BecomeLeaderOrFollower) -> int:
    """Return the last usable version: if a topic has no id, the response must have names."""
    return ANSWERED_BY_ID_FROM - 1 if ZERO_UUID in become.topic_ids.values() else LAST


def to_message(
    sent: ControlRequest, become: BecomeLeaderOrFollower, version: int, listener: str
) -> LeaderAndIsrRequest:
    """Return the message; `listener` is inter.broker.listener.name, the brokers' own listener."""
    request = LeaderAndIsrRequest(
        controller_id=sent.controller,
        controller_epoch=sent.controller_epoch,
        broker_epoch=sent.broker_epoch,
        live_leaders=[_live_leader(leader, listener) for leader in become.live_leaders],
    )
    states = {partition: _state(partition, assigned, version) for partition, assigned in become.partitions.items()}
    if version < GROUPED_FROM:
        request.ungrouped_partition_states = list(states.values())
        return request
    request.topic_states = topic_states(states, become.topic_ids, LeaderAndIsrTopicState)
    return request


def _live_leader(leader: BrokerInfo, listener: str) -> LeaderAndIsrLiveLeader:
    endpoint = leader.endpoint(listener) or leader.endpoints[0]
    return LeaderAndIsrLiveLeader(broker_id=leader.id, host_name=endpoint.host, port=endpoint.port)


def _state(partition: TopicPartition, assigned: AssignedState, version: int) -> LeaderAndIsrPartitionState:
    state = assigned.state
    return LeaderAndIsrPartitionState(
        topic_name=partition.topic,
        partition_index=partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(assigned.replicas),
        adding_replicas=list(assigned.adding),
        removing_replicas=list(assigned.removing),
        is_new=assigned.is_new,
        leader_recovery_state=state.recovery if version >= WITH_RECOVERY_FROM else RECOVERED,
    )


def from_message(request: LeaderAndIsrRequest, listener: str = PLAINTEXT) -> BecomeLeaderOrFollower:
    """Return the parsed request in one step, without slices."""
    return whole(parse(request, listener))


def parse(request: LeaderAndIsrRequest, listener: str) -> Parts[BecomeLeaderOrFollower]:
    """Return the controller's request, without topics that have no id, as in older requests."""

    def leader(live_leader: LeaderAndIsrLiveLeader) -> BrokerInfo:
        return BrokerInfo(
            BrokerId(live_leader.broker_id), (Endpoint(listener, live_leader.host_name, live_leader.port),)
        )

    partitions, ids = yield from states_and_ids(request, _assigned)
    return BecomeLeaderOrFollower(partitions, ids, (yield from each(request.live_leaders, leader)))


def _assigned(state: LeaderAndIsrPartitionState) -> AssignedState:
    return AssignedState(
        leader_and_isr(state, state.partition_epoch, state.leader_recovery_state),
        brokers(state.replicas),
        brokers(state.adding_replicas),
        brokers(state.removing_replicas),
        is_new=state.is_new,
    )


def errors(become: BecomeLeaderOrFollower, response: LeaderAndIsrResponse) -> Errors:
    """Return the partitions for which the broker failed."""
    names = {topic_id: name for name, topic_id in become.topic_ids.items()}
    return errors_by_partition(
        [(error.topic_name, error) for error in response.partition_errors]
        + [
            (names[topic.topic_id], error)
            for topic in response.topics
            if topic.topic_id in names
            for error in topic.partition_errors
        ]
    )
