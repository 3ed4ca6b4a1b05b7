"""Controller requests as messages in a broker's version, and the results from the responses.

The versions follow from inter.broker.protocol.version, which is the same for the whole cluster
(core/configs/inter_broker_protocol.py).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.api.cluster import leader_and_isr, stop_replica, update_metadata
from odradek.api.request.topic_states import Errors
from odradek.core.configs.inter_broker_protocol import InterBrokerProtocol
from odradek.core.controller.broker_request_batch import (
    BecomeLeaderOrFollower,
    ControlRequest,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import PLAINTEXT
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Response = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse


class Versions(NamedTuple):
    """The versions of the controller's requests to brokers."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


def versions_of(protocol: InterBrokerProtocol) -> Versions:
    return Versions(protocol.leader_and_isr, protocol.update_metadata, protocol.stop_replica)


def version_of(sent: ControlRequest, versions: Versions) -> int:
    """Return the version in which a request is sent."""
    match sent.request:
        case BecomeLeaderOrFollower() as become:
            return min(versions.leader_and_isr, leader_and_isr.last_version(become))
        case UpdateMetadata():
            return versions.update_metadata
        case StopReplicas():
            return versions.stop_replica


def to_message(sent: ControlRequest, versions: Versions, listener: str = PLAINTEXT) -> Request:
    """Return the message; `listener` is inter.broker.listener.name, the brokers' own listener."""
    version = version_of(sent, versions)
    match sent.request:
        case BecomeLeaderOrFollower() as become:
            return leader_and_isr.to_message(sent, become, version, listener)
        case UpdateMetadata() as update:
            return update_metadata.to_message(sent, update, version)
        case StopReplicas() as stop:
            return stop_replica.to_message(sent, stop, version)


def errors(sent: ControlRequest, response: Response) -> Errors | None:
    """Return the failed partitions; None if the broker refused the whole request."""
    if response.error_code:
        return None
    match response:
        case LeaderAndIsrResponse():
            assert isinstance(sent.request, BecomeLeaderOrFollower), "the response matches its request"
            return leader_and_isr.errors(sent.request, response)
        case StopReplicaResponse():
            return stop_replica.errors(response)
        case UpdateMetadataResponse():
            return {}
