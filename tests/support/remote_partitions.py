"""A coordinator on a harness's broker, for transactions in partitions led by other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import TRANSACTION_STATE, BrokerInfo, Endpoint, LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.transaction_markers import Marker, WriteMarkers
from odradek.core.transactions.transaction_states import TransactionState
from support.controlling import Controlling, name_of, topic_id
from support.in_memory import US, Harness
from support.transactional import EPOCHS, SHARED, Transactional

TWO, THREE = BrokerId(2), BrokerId(3)
LOST = Refused(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")


class Elsewhere:
    """The controller's requests to the coordinator, and the marker requests to other brokers with their responses."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.controller = Controlling(harness)
        self.alive: tuple[BrokerId, ...] = (US, TWO, THREE)
        self.leader_epoch = 0
        self._state_epoch = 0
        Transactional(harness)  # The state topic is created while this broker is the only one.
        others = {one: BrokerInfo(one, (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + one),)) for one in (TWO, THREE)}
        self._infos = {**others, **harness.broker.view.brokers}

    def update_metadata(self, topic: str, *leaders: BrokerId) -> None:
        """Send UpdateMetadata with the leaders of a topic's partitions and the live brokers."""
        self.leader_epoch += 1
        states = {
            name_of(topic, index): PartitionMetadata(
                LeaderAndIsr(leader, LeaderEpoch(self.leader_epoch), (leader,), controller_epoch=1), (leader,), ()
            )
            for index, leader in enumerate(leaders)
        }
        brokers = tuple(self._infos[one] for one in self.alive)
        assert self.controller.send(UpdateMetadata(states, {TopicName(topic): topic_id(topic)}, brokers, False)) == {}

    def set_live_brokers(self, *brokers: BrokerId) -> None:
        """Send UpdateMetadata without topics, only with the live brokers."""
        self.alive = brokers
        infos = tuple(self._infos[one] for one in brokers)
        assert self.controller.send(UpdateMetadata({}, {}, infos, False)) == {}

    def begin_producer(self, name: str = "p", version: int = 2) -> Transactional:
        producer = Transactional(self.harness, name, version)
        assert producer.begin().error_code == ErrorCode.NONE
        return producer

    def add_partitions(self, producer: Transactional, *names: TopicPartition) -> None:
        broker, version = self.harness.broker, producer.version
        broker.transactions.add_partitions(producer.id, producer.producer, names, version, self.harness.now)
        self.harness.settle()

    def send_end(
        self, producer: Transactional, *names: TopicPartition, commit: bool = True
    ) -> Encoded | ParkedRequest[Encoded]:
        """Send EndTxn for a transaction in these partitions, and make the decision durable."""
        self.add_partitions(producer, *names)
        end = producer.end_request(commit=commit)
        outcome = self.harness.send(end, EPOCHS if producer.version == 2 else SHARED)
        self.harness.settle()
        return outcome

    def pass_time(self, ms: int = 1000) -> None:
        """Advance time, with all pending syncs."""
        self.harness.pass_time(ms)
        self.harness.settle()

    def take_requests(self) -> list[WriteMarkers]:
        return self.harness.broker.take_markers()

    def take_only_request(self) -> WriteMarkers:
        """Return the only pending marker request."""
        (effect,) = self.take_requests()
        return effect

    def respond(
        self, effect: WriteMarkers, codes: Mapping[TopicPartition, ErrorCode] | ErrorCode | Refused = ErrorCode.NONE
    ) -> None:
        """Respond with one error code for all, with codes for some partitions, or without a response."""
        outcome: Mapping[tuple[ProducerId, TopicPartition], ErrorCode] | Refused
        if isinstance(codes, Refused):
            outcome = codes
        else:
            each = {} if isinstance(codes, ErrorCode) else codes
            default = codes if isinstance(codes, ErrorCode) else ErrorCode.NONE
            outcome = {(one.producer.id, name): each.get(name, default) for one, name in pairs(effect)}
        self.harness.broker.transactions.markers.on_answered(effect, outcome, self.harness.now)
        self.harness.settle()

    # The coordinator moves.

    def _state_is_led_by(self, leader: BrokerId, in_sync: tuple[BrokerId, ...] = (US,)) -> None:
        self._state_epoch += 1
        known = self.harness.broker.view.topics[TRANSACTION_STATE]
        epoch = self._state_epoch
        led = self.controller.send_leader_and_isr(
            TRANSACTION_STATE, 0, leader=leader, epoch=epoch, replicas=in_sync, of=known.id
        )
        assert led == {}
        self.harness.settle()

    def resign(self) -> None:
        self._state_is_led_by(NO_BROKER)

    def coordinate_again(self, *others: BrokerId) -> None:
        """Lead the transaction state in a new epoch, with other in-sync replicas that fetch nothing."""
        self._state_is_led_by(US, (US, *others))


def first_of_four_here(directory: Path) -> Elsewhere:
    """Create topic t with four partitions: the first is led here, the third by broker THREE, the others by TWO."""
    elsewhere = Elsewhere(Harness(directory, transaction_state_log_num_partitions="1"))
    assert elsewhere.controller.send_leader_and_isr("t", 0, is_new=True) == {}
    elsewhere.update_metadata("t", US, TWO, THREE, TWO)
    return elsewhere


def pairs(effect: WriteMarkers) -> Iterable[tuple[Marker, TopicPartition]]:
    return [(marker, name) for marker, names in effect.markers for name in names]


def names(effect: WriteMarkers) -> list[TopicPartition]:
    return sorted(name for _, name in pairs(effect))


def is_complete(producer: Transactional) -> bool:
    return producer.state.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
