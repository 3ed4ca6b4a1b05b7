"""ElectLeaders, versions 0 to 2.

Elects leaders of partitions, through the controller (KIP-183, KIP-460). The behavior is that of Apache Kafka with
ZooKeeper:

- A broker that is not the controller returns NOT_CONTROLLER for each partition.
- Null means all partitions; the response omits those that need no election.
- The response is sent when this broker's metadata has the elected leaders.

Changes by version:

- v0: preferred replicas only.
- v1: unclean elections, and an error for the whole response.
- v2: flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Hashable, Iterable, Mapping

from odradek.api.request.call import Call
from odradek.api.request.inter_broker import await_promise, by_length
from odradek.api.request.outcome import Slices, Wait
from odradek.api.request.sliced_response import CHEAP, Parts, nothing
from odradek.base.errors import ErrorCode
from odradek.base.units import LeaderEpoch, TopicName, TopicPartition
from odradek.core.broker.metadata_update import METADATA_UPDATED
from odradek.core.controller import replica_election as electing
from odradek.core.controller.events import ElectionEnd, ElectLeaders
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

TYPED_FROM = 1
NOT_CONTROLLER = ElectionEnd(ErrorCode.NOT_CONTROLLER)
NOT_ALLOWED = "Leader elections require the permission to alter the cluster."
TIMED_OUT = ElectionEnd(ErrorCode.REQUEST_TIMED_OUT)

Ends = Mapping[TopicPartition, ElectionEnd]

_TYPES = {election_type.value: election_type for election_type in ElectionType}


def handle(call: Call, body: ElectLeadersRequest) -> Slices:
    call.check(Operation.ALTER, ResourceType.CLUSTER)
    election_type = _TYPES.get(body.election_type)
    if election_type is None:
        text = f"Unknown election type {body.election_type}"
        return _refused(call, body, ElectionEnd(ErrorCode.INVALID_REQUEST, text))
    view, deadline = call.broker.view, call.now.steady + max(body.timeout_ms, 0)
    partitions = yield from _requested_partitions(view, body)
    ends = yield from _ends(call, ElectLeaders(election_type, partitions))
    call.free_later(ends)
    unseen = yield from _unseen(view, ends)
    if unseen.left:
        yield ParkedRequest(unseen, deadline, nothing)
    call.free_later(partitions)
    return by_length((yield from _answer(ends, unseen.left, is_of_all=body.topic_partitions is None)), len(ends))


def refuse(call: Call, body: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    text = NOT_ALLOWED if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else None
    return _refused(call, body, ElectionEnd(code, text))


def _refused(call: Call, body: ElectLeadersRequest, end: ElectionEnd) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(topic=topic.topic, partition_result=[_result(index, end) for index in topic.partitions])
        for topic in body.topic_partitions or ()
    ]
    error_code = end.error if call.version >= TYPED_FROM else ErrorCode.NONE
    return ElectLeadersResponse(error_code=error_code, replica_election_results=results)


def _requested_partitions(view: ClusterView, body: ElectLeadersRequest) -> Parts[list[TopicPartition]]:
    """Return the named partitions, each once, or all partitions if the request names none."""
    partitions: dict[TopicPartition, None] = {}
    if body.topic_partitions is None:
        for topic in list(view.topics.values()):
            for index in range(len(topic.partitions)):
                partitions[TopicPartition(topic.name, index)] = None
                if not len(partitions) % CHEAP:
                    yield
        return list(partitions)
    for named in body.topic_partitions:
        for index in named.partitions:
            partitions[TopicPartition(TopicName(named.topic), index)] = None
            if not len(partitions) % CHEAP:
                yield
    return list(partitions)


def _ends(call: Call, event: ElectLeaders) -> Generator[Wait, object, Ends]:
    """Return the result of each partition's election, after the controller has decided."""
    broker = call.broker
    if broker.view.controller != broker.id:
        return (yield from _each(event.partitions, lambda _: NOT_CONTROLLER))
    if broker.controller_queries is None:  # This is a single broker, so no other broker could lead a partition.
        return (
            yield from _each(
                event.partitions, lambda partition: _elect_alone(broker.view, partition, event.election_type)
            )
        )
    yield from await_promise(broker.controller_queries.broker_requests.submit(event), call)
    if event.answer is None:
        return (yield from _each(event.partitions, lambda _: ElectionEnd(event.error)))
    return event.answer


def _each(partitions: Iterable[TopicPartition], end_of: Callable[[TopicPartition], ElectionEnd]) -> Parts[Ends]:
    ends: dict[TopicPartition, ElectionEnd] = {}
    for partition in partitions:
        ends[partition] = end_of(partition)
        if not len(ends) % CHEAP:
            yield
    return ends


def _elect_alone(view: ClusterView, partition: TopicPartition, election_type: ElectionType) -> ElectionEnd:
    known = _known(view, partition)
    if known is None:
        return electing.UNKNOWN
    return electing.NOT_NEEDED if known.leader >= 0 else electing.failed(partition, election_type)


def _known(view: ClusterView, partition: TopicPartition) -> PartitionInfo | None:
    topic = view.topics.get(partition.topic)
    is_there = topic is not None and 0 <= partition.partition < len(topic.partitions)
    return topic.partitions[partition.partition] if topic is not None and is_there else None


def _unseen(view: ClusterView, ends: Ends) -> Parts[_DelayedElectLeader]:
    """Return the elected leaders that clients of this broker can't see yet."""
    left: dict[TopicPartition, LeaderEpoch] = {}
    for number, (partition, end) in enumerate(ends.items(), 1):
        if not end.error and not _is_seen(view, partition, end.leader_epoch):
            left[partition] = end.leader_epoch
        if not number % CHEAP:
            yield
    return _DelayedElectLeader(view, left)


def _is_seen(view: ClusterView, partition: TopicPartition, epoch: LeaderEpoch) -> bool:
    """Return whether the view has the leader of that epoch or a later one, or the topic is deleted."""
    known = _known(view, partition)
    return known is None or known.leader_epoch >= epoch


class _DelayedElectLeader:
    """The condition that the view has all elected leaders.

    `left` are the partitions whose leaders the view lacks, with their epochs.
    """

    keys = (METADATA_UPDATED,)

    def __init__(self, view: ClusterView, left: dict[TopicPartition, LeaderEpoch]) -> None:
        self._view = view
        self.left = left

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        self.left = {
            partition: epoch for partition, epoch in self.left.items() if not _is_seen(self._view, partition, epoch)
        }
        return not self.left


def _answer(ends: Ends, unseen: Container[TopicPartition], *, is_of_all: bool) -> Parts[ElectLeadersResponse]:
    """Return the response; one that `is_of_all` partitions omits those that needed no election."""
    by_topic: dict[TopicName, list[PartitionResult]] = {}
    for partition, decided in ends.items():
        end = TIMED_OUT if partition in unseen else decided
        if not (is_of_all and end.error is ErrorCode.ELECTION_NOT_NEEDED):
            by_topic.setdefault(partition.topic, []).append(_result(partition.partition, end))
        yield
    results = []
    for name, partitions in by_topic.items():
        results.append(ReplicaElectionResult(topic=name, partition_result=partitions))
        yield
    return ElectLeadersResponse(replica_election_results=results)


def _result(index: int, end: ElectionEnd) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=end.error, error_message=end.text)
