"""UpdateMetadata, versions 0 to 8.

Updates the metadata that a broker returns to clients: the brokers, and the leaders of partitions. The controller sends
this request to brokers; Odradek implements both sides. The response has a single error code. It is the error of the
first invalid partition or broker; all valid ones are applied.

- v1: several listeners per broker; version 0 has one address.
- v5: partitions are grouped by topic.
- v8: a flag for requests that contain the metadata of the whole cluster.
"""

from __future__ import annotations

from odradek.api.cluster.controller_checks import metadata_error, valid_brokers, valid_partitions
from odradek.api.request.call import Call
from odradek.api.request.inter_broker import authorized_queries, await_result, by_length, to_broker
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import Parts, whole
from odradek.api.request.topic_states import brokers, each, leader_and_isr, states_and_ids, topic_states
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicPartition
from odradek.core.controller.broker_request_batch import ControlRequest, PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import PLAINTEXT, BrokerInfo, Endpoint
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

# The controller's value, which this module converts to a message and back: core/controller/broker_request_batch.py.
GROUPED_FROM, TYPED_FROM = 5, 8
FULL = 2  # The type of a request with the metadata of the whole cluster.
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # Indexed by the numbers of Kafka's SecurityProtocol.


def handle(call: Call, body: UpdateMetadataRequest) -> Slices:
    queries = authorized_queries(call)
    update = yield from parse(body)
    valid, refused = yield from valid_partitions(update.partitions, update.topic_ids, metadata_error)
    known = yield from valid_brokers(update.brokers)
    sent = to_broker(call, body, update._replace(partitions=valid, brokers=known))
    call.free_later((sent, update))
    yield from await_result(queries.control_requests.submit(sent), call)
    bad_broker = ErrorCode.NONE if len(known) == len(update.brokers) else ErrorCode.INVALID_REQUEST
    code = next(iter(refused.values()), bad_broker)
    return by_length(UpdateMetadataResponse(error_code=code), len(update.partitions))


def refuse(call: Call, body: UpdateMetadataRequest, code: ErrorCode) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=code)


def to_message(sent: ControlRequest, update: UpdateMetadata, version: int) -> UpdateMetadataRequest:
    """Return the UpdateMetadata message in a version."""
    request = UpdateMetadataRequest(
        controller_id=sent.controller,
        type=FULL if update.is_full and version >= TYPED_FROM else 0,
        controller_epoch=sent.controller_epoch,
        broker_epoch=sent.broker_epoch,
        live_brokers=[_live_broker(broker) for broker in update.brokers],
    )
    states = {partition: _state(partition, metadata) for partition, metadata in update.partitions.items()}
    if version < GROUPED_FROM:
        request.ungrouped_partition_states = list(states.values())
        return request
    request.topic_states = topic_states(states, update.topic_ids, UpdateMetadataTopicState)
    return request


def _live_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    first = next((endpoint for endpoint in broker.endpoints if endpoint.protocol == PLAINTEXT), broker.endpoints[0])
    return UpdateMetadataBroker(
        id=broker.id,
        v0_host=first.host,
        v0_port=first.port,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_number(endpoint.protocol),
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _number(protocol: str) -> int:
    return _PROTOCOLS.index(protocol) if protocol in _PROTOCOLS else 0


def _state(partition: TopicPartition, metadata: PartitionMetadata) -> UpdateMetadataPartitionState:
    state = metadata.state
    return UpdateMetadataPartitionState(
        topic_name=partition.topic,
        partition_index=partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.partition_epoch,
        replicas=list(metadata.replicas),
        offline_replicas=list(metadata.offline),
    )


def from_message(request: UpdateMetadataRequest) -> UpdateMetadata:
    """Return the parsed request in one step, without slices."""
    return whole(parse(request))


def parse(request: UpdateMetadataRequest) -> Parts[UpdateMetadata]:
    """Return the controller's request, without topics that have no id, as in older requests."""
    partitions, ids = yield from states_and_ids(request, _metadata)
    brokers = yield from each(request.live_brokers, _broker)
    return UpdateMetadata(partitions, ids, brokers, is_full=request.type == FULL)


def _metadata(state: UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        leader_and_isr(state, state.zk_version), brokers(state.replicas), brokers(state.offline_replicas)
    )


def _broker(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = tuple(map(_endpoint, broker.endpoints))
    return BrokerInfo(
        BrokerId(broker.id), endpoints or (Endpoint(PLAINTEXT, broker.v0_host, broker.v0_port),), broker.rack or None
    )


def _endpoint(endpoint: UpdateMetadataEndpoint) -> Endpoint:
    """Return the endpoint.

    Before version 3, listeners have the name of their protocol. An unknown protocol is treated as PLAINTEXT.
    """
    number = endpoint.security_protocol
    protocol = _PROTOCOLS[number] if 0 <= number < len(_PROTOCOLS) else PLAINTEXT
    return Endpoint(endpoint.listener or protocol, endpoint.host, endpoint.port, protocol)
