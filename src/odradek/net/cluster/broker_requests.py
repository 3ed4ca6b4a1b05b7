"""Requests of a broker to others: transaction markers, and partitions for their coordinators.

To the controller it sends requests to create topics, to change ISRs that it leads, and to move its leaderships before
it stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from odradek.api.cluster import alter_partition_requests as alter_partition_api
from odradek.api.cluster import controlled_shutdown
from odradek.api.topics import auto_topic_creation as create_topics_api
from odradek.api.transactions import add_partitions_requests as add_partitions_api
from odradek.api.transactions import marker_requests as markers_api
from odradek.base.errors import Refused
from odradek.base.units import NO_BROKER, BrokerId
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import Changed, CreateTopics, all_refused
from odradek.core.controller.events import ShutDown
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.core.transactions.additions import AddPartitions
from odradek.core.transactions.transaction_markers import WriteMarkers
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.net.cluster.controlled_shutdown_sender import Answer
from odradek.net.cluster.controller_updates import Shell
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from odradek.wire.messages.alter_partition import AlterPartitionResponse
from odradek.wire.messages.controlled_shutdown import ControlledShutdownResponse
from odradek.wire.messages.create_topics import CreateTopicsResponse
from odradek.wire.messages.write_txn_markers import WriteTxnMarkersResponse

log = logging.getLogger(__name__)


class BrokerRequests:
    """Requests of one broker to others, and processing of the responses; on the loop's thread."""

    def __init__(self, shell: Shell, broker: Broker, channels: BrokerChannels) -> None:
        self._shell = shell
        self._broker = broker
        self._protocol = broker.protocol
        self._channels = channels
        self._has_logged_silence = False  # For the controller, which receives many requests a second.

    def send_queued_requests(self) -> None:
        """Send the requests that the broker has queued."""
        for markers in self._broker.take_markers():
            self._write_markers(markers)
        for additions in self._broker.take_additions():
            self._add_partitions(additions)

    def _write_markers(self, effect: WriteMarkers) -> None:
        def on_response(response: WriteTxnMarkersResponse | Refused) -> None:
            outcome = response if isinstance(response, Refused) else markers_api.outcome(response)
            self._broker.transactions.markers.on_answered(effect, outcome, self._shell.now())
            self._shell.settle()

        message = markers_api.to_message(effect)
        version = self._protocol.write_txn_markers
        self._channels.send_request(
            effect.broker, RequestBuilder.of(message, WriteTxnMarkersResponse, version), on_response
        )

    def _add_partitions(self, effect: AddPartitions) -> None:
        def on_response(response: AddPartitionsToTxnResponse | Refused) -> None:
            outcome = response if isinstance(response, Refused) else add_partitions_api.errors(effect, response)
            self._broker.transactions.additions.on_answered(effect, outcome, self._shell.now())
            self._shell.settle()

        version = self._protocol.add_partitions_to_txn
        assert version is not None, "AddPartitionsToTxn is sent only to brokers that support it"
        message = add_partitions_api.to_message(effect, version)
        request = RequestBuilder.of(message, AddPartitionsToTxnResponse, version)
        self._channels.send_request(effect.broker, request, on_response)

    def create_topics(self, controller: BrokerId, change: CreateTopics, then: Callable[[Changed], None]) -> None:
        """Request topics from the controller; `then` gets created or existing topics, and the refusals."""

        def on_response(response: CreateTopicsResponse | Refused) -> None:
            if isinstance(response, Refused):
                self._warn_of_silence(controller, response)
                then(all_refused(change))
                return
            self._has_logged_silence = False
            refused = create_topics_api.refusals(response)
            created = {topic.name: topic for topic in change.topics if topic.name not in refused}
            then(Changed(change.token, created, refused))

        message, version = create_topics_api.to_message(change), self._protocol.create_topics
        self._channels.send_request(controller, RequestBuilder.of(message, CreateTopicsResponse, version), on_response)

    def _warn_of_silence(self, controller: BrokerId, refused: Refused) -> None:
        # A starting broker knows no topic and no controller; a client that needs a coordinator retries.
        if controller != NO_BROKER and not self._has_logged_silence:
            log.warning("failed to create topics: no response from the controller: %s", refused.detail)
            self._has_logged_silence = True

    def alter_partitions(
        self,
        controller: BrokerId,
        proposed: Sequence[ProposedIsr],
        then: Callable[[Sequence[alter_partition_api.AlterPartitionResult]], None],
    ) -> None:
        """Request the ISRs proposed by leaders here from the controller; `then` gets a result for each."""
        newest = self._protocol.alter_partition
        assert newest is not None, "AlterPartition is sent only from inter-broker protocol 2.7 on"
        topic_ids = alter_partition_api.topic_ids_of(proposed)
        version = alter_partition_api.version_for(proposed, topic_ids, newest)

        def on_response(response: AlterPartitionResponse | Refused) -> None:
            if isinstance(response, Refused):
                then([alter_partition_api.AlterPartitionResult(response.code)] * len(proposed))
            else:
                then(alter_partition_api.from_response(proposed, response, topic_ids, version))

        epoch = self._broker.controlled.broker_epoch
        message = alter_partition_api.to_message(proposed, self._broker.id, epoch, topic_ids, version)
        self._channels.send_request(
            controller, RequestBuilder.of(message, AlterPartitionResponse, version), on_response
        )

    def shut_down(self, controller: BrokerId, event: ShutDown, then: Callable[[Answer], None]) -> None:
        """Request controlled shutdown from the controller; `then` gets the remaining partitions or an error."""

        def on_response(response: ControlledShutdownResponse | Refused) -> None:
            if isinstance(response, Refused):
                then(response)
                return
            try:
                remaining = controlled_shutdown.from_response(response)
            except Refused as refused:
                then(refused)
            else:
                then(remaining)

        message, version = controlled_shutdown.to_message(event), self._protocol.controlled_shutdown
        request = RequestBuilder.of(message, ControlledShutdownResponse, version)
        self._channels.send_request(controller, request, on_response)
