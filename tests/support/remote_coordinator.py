"""Two brokers without sockets: one leads partitions of topic t and a group, the other coordinates their transactions.

Requests of the first broker and their responses are passed as bytes; each broker has the id US for itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from odradek.api.conversation import Conversation
from odradek.api.request.outcome import Encoded
from odradek.api.transactions import add_partitions_requests as add_partitions_ask
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import PartitionMetadata, UpdateMetadata
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerInfo, Endpoint, LeaderAndIsr
from odradek.core.transactions.additions import AdditionsOutcome, AddPartitions
from odradek.record.builder import encode_batch
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from support.controlling import Controlling, name_of, topic_id
from support.group_offsets import GroupOffsets
from support.in_memory import US, Harness, frame_of
from support.transactional import EPOCHS, SHARED, Transactional

TWO, THREE = BrokerId(2), BrokerId(3)
PARTITIONS = 3
ADDS = 13  # A version of Produce that adds partitions to the transaction.
T0, T1, T2 = (name_of("t", index) for index in range(PARTITIONS))
OFFSETS = name_of(CONSUMER_OFFSETS)
LOST = Refused(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")
INFOS = {one: BrokerInfo(one, (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + one),)) for one in (TWO, THREE)}


def update_metadata(
    harness: Harness,
    controller: Controlling,
    alive: Sequence[BrokerId],
    leaders: Mapping[str, BrokerId],
    partitions: Mapping[str, int] = MappingProxyType({"t": PARTITIONS}),
) -> None:
    """Send UpdateMetadata with the live brokers, and the leaders of some topics' partitions."""
    brokers = tuple(harness.broker.view.brokers[US] if one == US else INFOS[one] for one in alive)
    states = {}
    for topic, leader in leaders.items():
        state = LeaderAndIsr(leader, LeaderEpoch(0), (leader,), controller_epoch=1)
        for index in range(partitions.get(topic, 1)):
            states[name_of(topic, index)] = PartitionMetadata(state, (leader,), ())
    ids = {TopicName(topic): topic_id(topic) for topic in leaders}
    assert controller.send(UpdateMetadata(states, ids, brokers, False)) == {}


class CoordinatedElsewhere:
    """Both brokers; the leading one knows the coordinator as broker TWO."""

    def __init__(self, directory: Path, **configs: str) -> None:
        for name in ("leader", "coordinator"):
            (directory / name).mkdir()
        self.leader = Harness(directory / "leader", **configs)
        self.controller = Controlling(self.leader)
        for topic, count in (("t", PARTITIONS), (CONSUMER_OFFSETS, 1)):
            assert self.controller.send_leader_and_isr(topic, *range(count), is_new=True) == {}
        update_metadata(self.leader, self.controller, (US, TWO, THREE), {"t": US, CONSUMER_OFFSETS: US})
        self.set_coordinator(TWO)
        self.coordinator = Harness(directory / "coordinator", transaction_state_log_num_partitions="1")
        Transactional(self.coordinator)
        self.coordinator_controller = Controlling(self.coordinator)
        update_metadata(self.coordinator, self.coordinator_controller, (US, TWO), {"t": TWO, CONSUMER_OFFSETS: TWO})
        self._numbers = itertools.count(1)
        self.group = GroupOffsets(self.leader)

    def set_coordinator(self, broker: BrokerId, alive: Sequence[BrokerId] = (US, TWO, THREE)) -> None:
        update_metadata(self.leader, self.controller, alive, {TRANSACTION_STATE: broker})

    def create_topic(self, topic: str, count: int) -> None:
        """Create another topic with this number of partitions."""
        assert self.controller.send_leader_and_isr(topic, *range(count), is_new=True) == {}
        update_metadata(self.leader, self.controller, (US, TWO, THREE), {topic: US}, {topic: count})
        update_metadata(self.coordinator, self.coordinator_controller, (US, TWO), {topic: TWO}, {topic: count})

    def begin_producer(self, name: str = "p", version: int = 2) -> Transactional:
        producer = Transactional(self.coordinator, name, version)
        assert producer.begin().error_code == ErrorCode.NONE
        return producer

    # The one that leads.

    def send(self, message: object, version: int, talk: Conversation | None = None) -> Conversation:
        """Send a request on the connection, or on a new one."""
        talk = talk or self.leader.talk()
        talk.receive_data(frame_of(message, version, next(self._numbers), "tests"))
        self.leader.resume(talk)
        return talk

    def send_all(self, requests: Sequence[ProduceRequest], talk: Conversation) -> None:
        """Pipeline requests on one connection."""
        frames = [frame_of(one, ADDS, next(self._numbers), "tests") for one in requests]
        talk.receive_data(b"".join(frames))
        self.leader.resume(talk)

    def request(self, producer: Transactional, *partitions: int) -> ProduceRequest:
        """Return a Produce request with one record for each partition, with the producer's next sequences."""
        request = producer.produce("t", {one: [b"a"] for one in partitions})
        for one in partitions:
            producer.sequences["t", one] = producer.sequences.get(("t", one), 0) + 1
        return request

    def produce(
        self,
        producer: Transactional,
        *partitions: int,
        version: int | None = None,
        talk: Conversation | None = None,
        acks: int = -1,
    ) -> Conversation:
        request = self.request(producer, *partitions)
        request.acks = acks
        version = version or producer.produce_version
        if version < ADDS:
            request.topic_data[0].name = "t"
        return self.send(request, version, talk)

    def produce_without_transaction(self, partition: int, talk: Conversation) -> Conversation:
        """Send a Produce request without a transaction."""
        data = PartitionProduceData(index=partition, records=encode_batch([(None, b"a", (), self.leader.now.wall)]))
        topic = TopicProduceData(topic_id=topic_id("t"), partition_data=[data])
        return self.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), ADDS, talk)

    def produce_first(self, producer: Transactional, *partitions: int) -> None:
        """Write to partitions for the first time in their transaction."""
        talk = self.produce(producer, *partitions)
        self.execute_and_deliver()
        assert set(self.codes(talk, producer.produce_version)) == {ErrorCode.NONE}

    def commit_offsets(self, producer: Transactional, version: int) -> Conversation:
        return self.send(self.group.request_in(producer, {("t", 0): 1}), version)

    def wait_for_response(self, talk: Conversation) -> Encoded:
        """Wait for the responses on a connection, through syncs and deadlines."""
        while not (chunks := talk.data_to_send()):
            self.leader.settle()
            if not self.wake():
                due = self.leader.broker.next_due()
                assert due is not None, "a parked request has a deadline"
                self.leader.pass_time(due - self.leader.now.steady)
        return chunks

    def all_codes(self, talk: Conversation, count: int) -> list[ErrorCode]:
        """Return the error codes of several pipelined Produce requests to one partition each."""
        frames: list[bytes] = []
        while len(frames) < count:
            data = b"".join(bytes(one) for one in self.wait_for_response(talk) or ())  # type: ignore[arg-type]
            while data:
                size = 4 + int.from_bytes(data[:4], "big")
                frames.append(data[4:size])
                data = data[size:]
        answers = [decode_response(ProduceResponse, ADDS, frame)[1] for frame in frames]
        return [ErrorCode(one.responses[0].partition_responses[0].error_code) for one in answers]

    def codes(self, talk: Conversation, version: int = 13) -> list[ErrorCode]:
        """Return the error code of each partition of a Produce request."""
        answer = self.leader.decoded(self.wait_for_response(talk), version, ProduceResponse)
        return [ErrorCode(one.error_code) for one in answer.responses[0].partition_responses]

    def committed(self, talk: Conversation, version: int) -> ErrorCode:
        answer = self.leader.decoded(self.wait_for_response(talk), version, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, name: TopicPartition) -> int:
        """Return the number of records in the partition, including markers."""
        return self.leader.broker.partitions[name].log.end_offset

    def take_requests(self) -> list[AddPartitions]:
        return self.leader.broker.take_additions()

    def take_only_request(self) -> AddPartitions:
        (effect,) = self.take_requests()
        return effect

    def deliver(self, effect: AddPartitions, outcome: AdditionsOutcome | ErrorCode) -> None:
        """Deliver the outcome of a request: a response, one error code for all, or none."""
        if isinstance(outcome, ErrorCode):
            outcome = {(one.transactional_id, name): outcome for one, names in effect.transactions for name in names}
        self.leader.broker.transactions.additions.on_answered(effect, outcome, self.leader.now)
        self.wake()

    def wake(self) -> bool:
        """Continue the completed requests, as a loop does; return False if there are none."""
        completed = self.leader.broker.purgatory.take_completed()
        for parked in completed:
            talk = parked.owner
            assert isinstance(talk, Conversation)
            talk.answer_parked(parked, self.leader.now)
            self.leader.resume(talk)
        return bool(completed)

    # The coordinator.

    def execute(self, effect: AddPartitions, version: int = 5) -> AdditionsOutcome:
        """Let the coordinator execute the request now, and return its response."""
        request = add_partitions_ask.to_message(effect, version)
        answer = self.coordinator.request(request, version, AddPartitionsToTxnResponse)
        return add_partitions_ask.errors(effect, answer)

    def execute_and_deliver(self, version: int = 5) -> AddPartitions:
        """Let the coordinator respond to the only request."""
        effect = self.take_only_request()
        self.deliver(effect, self.execute(effect, version))
        return effect

    def send_end(self, producer: Transactional, *, commit: bool = True) -> None:
        """Send EndTxn, and stop before the markers are written."""
        request = producer.end_request(commit=commit)
        self.coordinator.send(request, EPOCHS if producer.version == 2 else SHARED)
        self.coordinator.settle()

    def write_markers(self) -> None:
        """Write the markers requested by the coordinator, which completes the transactions."""
        for effect in self.coordinator.broker.take_markers():
            outcome = {}
            for marker, names in effect.markers:
                for name in names:
                    written = self.leader.broker.end_transaction(name, marker, self.leader.now)
                    assert written is not None
                    outcome[marker.producer.id, name] = ErrorCode.NONE
            self.leader.settle()
            self.coordinator.broker.transactions.markers.on_answered(effect, outcome, self.coordinator.now)
            self.coordinator.settle()

    def next_epoch(self, producer: Transactional) -> None:
        """Set the producer to its identity at the coordinator, as after the response to EndTxn."""
        client = producer.state.client
        if client != producer.producer:
            producer.sequences.clear()
        producer.producer = ProducerIdAndEpoch(client.id, client.epoch)

    def pass_time(self, ms: int) -> None:
        self.leader.pass_time(ms)
        self.leader.settle()
        self.wake()


def names(effect: AddPartitions) -> list[TopicPartition]:
    return sorted(name for _, some in effect.transactions for name in some)
