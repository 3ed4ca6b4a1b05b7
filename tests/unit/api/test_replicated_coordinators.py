"""Coordinators with replicated state: no response and no dependent write precedes the commit of the state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.api.conversation import Conversation
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.core.controller.broker_request_batch import PartitionMetadata, UpdateMetadata
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerInfo, Endpoint, LeaderAndIsr
from odradek.core.partition.leading import Leading
from odradek.core.transactions.transaction_states import TransactionState
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.end_txn import EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from support.controlling import Controlling, name_of, topic_id
from support.group_offsets import GroupOffsets
from support.in_memory import US, Harness, frame_of
from support.transactional import EPOCHS, Transactional

TWO = BrokerId(2)
BOTH = (US, TWO)
T, STATE, OFFSETS = name_of("t"), name_of(TRANSACTION_STATE), name_of(CONSUMER_OFFSETS)
NONE, MOVED, AGAIN = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS
COMMITS = 5  # A version of TxnOffsetCommit that adds partitions to the transaction.


class Replicated:
    """A broker that leads topic t and both state topics, with one follower for each of those in `followed`."""

    def __init__(self, directory: Path, followed: Sequence[TopicPartition] = (T, STATE, OFFSETS)) -> None:
        self.harness = Harness(directory)
        self.controller = Controlling(self.harness)
        self.epochs = dict.fromkeys((T, STATE, OFFSETS), 0)
        self.followed = followed
        for name in self.epochs:
            self.leads(name, US)
        self.update_metadata()
        self.producer = Transactional(self.harness)
        self._numbers = itertools.count(1)

    def leads(self, name: TopicPartition, leader: BrokerId) -> None:
        replicas = BOTH if name in self.followed else (US,)
        epoch = self.epochs[name]
        assert (
            self.controller.send_leader_and_isr(name.topic, leader=leader, epoch=epoch, replicas=replicas, is_new=True)
            == {}
        )

    def update_metadata(self) -> None:
        """Send UpdateMetadata: both brokers are alive, and this one leads all partitions."""
        state = LeaderAndIsr(US, LeaderEpoch(0), BOTH, controller_epoch=1)
        partitions = {name: PartitionMetadata(state, BOTH, ()) for name in self.epochs}
        ids = {name.topic: topic_id(name.topic) for name in self.epochs}
        ours = self.harness.broker.view.brokers[US]
        other = BrokerInfo(TWO, (Endpoint("PLAINTEXT", "127.0.0.1", 9094),))
        assert self.controller.send(UpdateMetadata(partitions, ids, (ours, other), False)) == {}

    def moves(self, name: TopicPartition, leader: BrokerId) -> None:
        """Let another broker lead a partition, or this one again."""
        self.epochs[name] += 1
        self.leads(name, leader)
        self.wake()

    def follows(self, *names: TopicPartition) -> None:
        """Let the follower fetch all records of these partitions."""
        broker, now = self.harness.broker, self.harness.now
        for name in names or self.followed:
            leading = broker.partitions[name].leader()
            leading.fetched(TWO, leading.log.end_offset, Offset(0), now)
            broker.moved(name, now)
        self.wake()

    def end(self, name: TopicPartition) -> int:
        return self.harness.broker.partitions[name].log.end_offset

    def sends(self, message: object, version: int) -> Conversation:
        talk = self.harness.talk()
        talk.receive_data(frame_of(message, version, next(self._numbers), "tests"))
        self.harness.resume(talk)
        self.wake()
        return talk

    def wake(self) -> None:
        """Execute the broker's effects, and continue the completed requests."""
        self.harness.settle()
        while completed := self.harness.broker.purgatory.take_completed():
            for parked in completed:
                talk = parked.owner
                assert isinstance(talk, Conversation)
                talk.answer_parked(parked, self.harness.now)
                self.harness.resume(talk)
            self.harness.settle()

    def response_frame(self, talk: Conversation) -> bytes:
        """Return the frame of a connection's response; empty if there is none yet."""
        return b"".join(bytes(one) for one in talk.data_to_send())[4:]  # type: ignore[arg-type]

    def leading(self, name: TopicPartition) -> Leading:
        return self.harness.broker.partitions[name].leader()

    # Requests of the producer to its coordinator and to the leader of t.

    def begins(self) -> None:
        talk = self.request_producer_id()
        self.follows()
        assert self.id_code(talk) is NONE
        client = self.producer.state.client
        self.producer.producer = ProducerIdAndEpoch(client.id, client.epoch)

    def request_producer_id(self) -> Conversation:
        return self.sends(InitProducerIdRequest(transactional_id=self.producer.id, transaction_timeout_ms=60_000), 5)

    def produces(self) -> Conversation:
        return self.sends(self.producer.produce("t", {0: [b"a"]}), 13)

    def writes(self) -> None:
        talk = self.produces()
        self.follows()
        self.follows()
        assert self.code(talk) is NONE
        self.producer.sequences["t", 0] = self.producer.sequences.get(("t", 0), 0) + 1

    def commits(self) -> Conversation:
        return self.sends(self.producer.end_request(commit=True), EPOCHS)

    def id_code(self, talk: Conversation) -> ErrorCode | None:
        data = self.response_frame(talk)
        return ErrorCode(decode_response(InitProducerIdResponse, 5, data)[1].error_code) if data else None

    def end_code(self, talk: Conversation) -> ErrorCode | None:
        data = self.response_frame(talk)
        return ErrorCode(decode_response(EndTxnResponse, EPOCHS, data)[1].error_code) if data else None

    def code(self, talk: Conversation) -> ErrorCode | None:
        """Return the error code of a Produce to one partition; None while it is parked."""
        data = self.response_frame(talk)
        if not data:
            return None
        answer = decode_response(ProduceResponse, 13, data)[1]
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def commit_code(self, talk: Conversation) -> ErrorCode | None:
        """Return the error code of a TxnOffsetCommit for one partition."""
        data = self.response_frame(talk)
        if not data:
            return None
        answer = decode_response(TxnOffsetCommitResponse, COMMITS, data)[1]
        return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def replicated(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


# Writes that depend on a join.


def test_batch_is_written_once_its_join_is_committed(replicated: Replicated) -> None:
    replicated.begins()
    talk = replicated.produces()
    assert replicated.producer.state.partitions == {T}
    assert replicated.end(T) == 0, "a new coordinator would not know that the partition has joined"
    replicated.follows(STATE)
    assert replicated.end(T) == 1
    assert replicated.code(talk) is None
    replicated.follows(T)
    assert replicated.code(talk) is NONE


def test_batch_with_a_lost_join_is_not_written(replicated: Replicated) -> None:
    replicated.begins()
    talk = replicated.produces()
    replicated.moves(STATE, TWO)
    assert replicated.code(talk) is AGAIN
    assert replicated.end(T) == 0


def test_joined_partition_is_written_without_waiting(replicated: Replicated) -> None:
    replicated.begins()
    replicated.writes()
    talk = replicated.produces()
    assert replicated.end(T) == 2
    replicated.follows(T)
    assert replicated.code(talk) is NONE


@pytest.mark.parametrize("followed", [(T,), (STATE,)])
def test_join_and_batch_may_have_different_followers(tmp_path: Path, followed: tuple[TopicPartition, ...]) -> None:
    replicated = Replicated(tmp_path, followed)
    replicated.begins()
    talk = replicated.produces()
    assert replicated.end(T) == (1 if followed == (T,) else 0), "without followers the join is safe once it is synced"
    replicated.follows()
    replicated.follows()
    assert replicated.code(talk) is NONE
    assert replicated.end(T) == 1


def test_join_and_batch_are_written_together_without_followers(tmp_path: Path) -> None:
    replicated = Replicated(tmp_path, ())
    replicated.begins()
    assert not replicated.harness.broker.transactions.must_verify_first(replicated.leading(T), replicated.producer.id)
    replicated.writes()


def test_transactional_commit_is_written_once_its_join_is_committed(replicated: Replicated) -> None:
    replicated.begins()
    request = GroupOffsets(replicated.harness).request_in(replicated.producer, {("t", 0): 1})
    talk = replicated.sends(request, COMMITS)
    assert replicated.end(OFFSETS) == 0
    replicated.follows(STATE)
    assert replicated.end(OFFSETS) == 1
    replicated.follows(OFFSETS)
    assert replicated.commit_code(talk) is NONE


# Requests parked at a former coordinator.


def test_parked_init_producer_id_is_redirected(replicated: Replicated) -> None:
    talk = replicated.request_producer_id()
    assert replicated.id_code(talk) is None
    replicated.moves(STATE, TWO)
    assert replicated.id_code(talk) is MOVED
    assert replicated.id_code(replicated.request_producer_id()) is MOVED


@pytest.mark.parametrize("is_decided", [False, True])
def test_parked_end_of_a_transaction_is_redirected(replicated: Replicated, *, is_decided: bool) -> None:
    """The next coordinator ends it if the decision was committed; here this broker becomes coordinator again."""
    replicated.begins()
    replicated.writes()
    talk = replicated.commits()
    if is_decided:
        replicated.follows(STATE)
    assert replicated.end_code(talk) is None
    marked = replicated.end(T)
    assert marked == 1 + is_decided, "no marker before the decision is safe"
    second = replicated.request_producer_id()
    replicated.moves(STATE, TWO)
    assert replicated.end_code(talk) is replicated.id_code(second) is MOVED
    replicated.follows(T)
    replicated.moves(STATE, US)
    for _ in range(3):
        replicated.follows()
    assert replicated.producer.state.state is TransactionState.COMPLETE_COMMIT
    again = replicated.commits()
    assert replicated.end_code(again) is NONE
    assert replicated.end(T) >= 2
