"""Transactions in both generations of the protocol, and possible responses of a coordinator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse, KafkaUnavailable, Unsupported
from odradek.client.consumer.group_offsets import Committed, Membership
from odradek.client.producer.idempotence import Identity
from odradek.client.producer.transactional import State, TransactionalProducer, WrongState
from odradek.record.record_batch import Batch
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = [pytest.mark.slow, pytest.mark.waits]

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)


class Coordinator:
    """A transaction coordinator; `errors` are the next responses to a type of request, HangUp loses one."""

    def __init__(self, broker: ScriptedBroker, transaction_version: int) -> None:
        broker.topics["t"] = 2
        self.transaction_version = transaction_version
        self.identity = Identity(7, -1)
        self.ongoing = Identity()
        self.errors: dict[type, list[ErrorCode | type[HangUp]]] = defaultdict(list)
        self.versions: dict[type, int] = {}
        self.groups = ScriptedCoordinator(broker)
        self._broker = broker
        for request, answer in (
            (ApiVersionsRequest, self._api_versions),
            (InitProducerIdRequest, self._init),
            (AddPartitionsToTxnRequest, self._add_partitions),
            (AddOffsetsToTxnRequest, self._add_offsets),
            (TxnOffsetCommitRequest, self._commit_offsets),
            (EndTxnRequest, self._end),
            (ProduceRequest, self._produce),
        ):
            broker.on(request, answer)

    def seen(self, *kinds: type) -> list[Any]:
        return [each for each in self._broker.seen if isinstance(each, kinds)]

    def _code(self, request: object, version: int) -> ErrorCode:
        self.versions[type(request)] = version
        waiting = self.errors[type(request)]
        code = waiting.pop(0) if waiting else ErrorCode.NONE
        if not isinstance(code, ErrorCode):
            raise HangUp
        return code

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        versions = self._broker.versions.items()
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions],
            finalized_features=[
                FinalizedFeatureKey(
                    name="transaction.version", max_version_level=self.transaction_version, min_version_level=0
                )
            ],
        )

    def _init(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        code = self._code(request, version)
        if not code:
            self.identity = Identity(7, self.identity.epoch + 1)
        ongoing = self.ongoing if request.keep_prepared_txn else Identity()
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=code,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            ongoing_txn_producer_id=ongoing.producer_id,
            ongoing_txn_producer_epoch=ongoing.epoch,
        )

    def _add_partitions(self, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        code = self._code(request, version)
        others = ErrorCode.OPERATION_NOT_ATTEMPTED if code else ErrorCode.NONE
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=others if place else code
                    )
                    for place, index in reversed(list(enumerate(topic.partitions)))
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topics)

    def _add_offsets(self, request: AddOffsetsToTxnRequest, version: int) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=self._code(request, version))

    def _commit_offsets(self, request: TxnOffsetCommitRequest, version: int) -> TxnOffsetCommitResponse:
        code = self._code(request, version)
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)

    def _end(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        code = self._code(request, version)
        if not code and version >= 5:
            self.identity = Identity(7, request.producer_epoch + 1)
        return EndTxnResponse(throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=self.identity.epoch)

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        code = self._code(request, version)
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=code, base_offset=0)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=topics)

    def batches(self) -> list[Batch]:
        return [
            Batch.checked(bytes(part.records))
            for request in self.seen(ProduceRequest)
            for topic in request.topic_data
            for part in topic.partition_data
        ]

    def numbers(self) -> list[tuple[int, int]]:
        """Return epoch and sequence of each received batch."""
        return [(batch.producer_epoch, batch.base_sequence) for batch in self.batches()]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        yield scripted


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "api_timeout_ms": 500, "delivery_timeout_ms": 500}
    with Cluster(ClientConfig(broker.address, **quick)) as connected:  # type: ignore[arg-type]  # All ints.
        yield connected


@pytest.fixture(params=[0, 1, 2])
def coordinator(broker: ScriptedBroker, request: pytest.FixtureRequest) -> Coordinator:
    return Coordinator(broker, request.param)


@pytest.fixture
def modern(broker: ScriptedBroker) -> Coordinator:
    return Coordinator(broker, 2)


@pytest.fixture
def older(broker: ScriptedBroker) -> Coordinator:
    return Coordinator(broker, 1)


def send(producer: TransactionalProducer, *partitions: int) -> None:
    for partition in partitions or (0,):
        producer.send("t", b"x", partition=partition)
    producer.flush()


def test_transactions_use_the_expected_epochs_and_sequences(coordinator: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x", timeout_ms=1_234)
    (init,) = coordinator.seen(InitProducerIdRequest)
    assert (init.transactional_id, init.transaction_timeout_ms, init.producer_id) == ("x", 1_234, -1)
    for _ in range(2):
        with producer.transaction():
            send(producer, 0, 1)
            send(producer, 0)
    has_epochs = coordinator.transaction_version == 2
    second = [(1, 0), (1, 0), (1, 1)] if has_epochs else [(0, 2), (0, 1), (0, 3)]
    assert coordinator.numbers() == [(0, 0), (0, 0), (0, 1), *second]
    assert all(batch.is_transactional and batch.producer_id == 7 for batch in coordinator.batches())
    assert {request.transactional_id for request in coordinator.seen(ProduceRequest)} == {"x"}
    assert coordinator.versions[ProduceRequest] == (13 if has_epochs else 11)
    assert coordinator.versions[EndTxnRequest] == (5 if has_epochs else 4)
    announced = [
        sorted(topic.partitions)
        for request in coordinator.seen(AddPartitionsToTxnRequest)
        for topic in request.v3_and_below_topics
    ]
    assert announced == ([] if has_epochs else [[0, 1], [0, 1]]), "once for each transaction"
    assert producer.state is State.READY


def test_empty_transaction_sends_no_end_txn(coordinator: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    with producer.transaction():
        pass
    assert coordinator.seen(EndTxnRequest) == []


def test_group_offsets_are_committed_with_the_transaction(coordinator: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    with producer.transaction():
        producer.send_offsets("g", {T0: Committed(5, 1, "m")}, Membership(3, "member", "instance"))
        producer.send_offsets("g", {T1: Committed(6)})
        producer.send_offsets("g", {})
    first, second = coordinator.seen(TxnOffsetCommitRequest)
    assert (first.group_id, first.generation_id_or_member_epoch, first.member_id) == ("g", 3, "member")
    assert first.topics[0].partitions[0].committed_offset == 5
    assert second.member_id == ""
    has_epochs = coordinator.transaction_version == 2
    assert coordinator.versions[TxnOffsetCommitRequest] == (5 if has_epochs else 4)
    assert len(coordinator.seen(AddOffsetsToTxnRequest)) == (0 if has_epochs else 1)
    assert coordinator.seen(EndTxnRequest)[0].committed


def test_exception_aborts_the_transaction(coordinator: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    with pytest.raises(KeyError), producer.transaction():
        send(producer)
        producer.send("t", b"never written", partition=0)
        raise KeyError
    assert [request.committed for request in coordinator.seen(EndTxnRequest)] == [False]
    with producer.transaction():
        send(producer)
    assert coordinator.numbers() == [(0, 0), (1, 0)], "every abort gives another epoch, in which sequences begin anew"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_refused_transaction_must_be_aborted(coordinator: Coordinator, cluster: Cluster, code: ErrorCode) -> None:
    producer = TransactionalProducer(cluster, "x")
    producer.begin_transaction()
    coordinator.errors[ProduceRequest] = [code]
    with pytest.raises(ErrorResponse, match=code.name):
        send(producer)
    for call in (producer.commit, producer.flush, producer.begin_transaction, producer.prepare):
        with pytest.raises(WrongState, match="transactional id x is in a transaction that must be aborted"):
            call()
    producer.abort()
    with producer.transaction():
        send(producer)
    assert coordinator.numbers()[-1] == (1, 0)


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (InitProducerIdRequest, [ErrorCode.CONCURRENT_TRANSACTIONS] * 3),
        (InitProducerIdRequest, [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]),
        (AddPartitionsToTxnRequest, [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]),
        (AddOffsetsToTxnRequest, [ErrorCode.CONCURRENT_TRANSACTIONS, HangUp]),
        (TxnOffsetCommitRequest, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, HangUp]),
        (ProduceRequest, [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER, HangUp]),
        (EndTxnRequest, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, HangUp]),
    ],
)
def test_transient_errors_are_retried(
    coordinator: Coordinator, cluster: Cluster, kind: type, codes: list[ErrorCode | type[HangUp]]
) -> None:
    coordinator.errors[kind] = list(codes)
    producer = TransactionalProducer(cluster, "x")
    with producer.transaction():
        send(producer)
        producer.send_offsets("g", {T0: Committed(1)})
    assert coordinator.seen(EndTxnRequest)[-1].committed
    assert set(coordinator.numbers()) == {(0, 0)}
    if coordinator.transaction_version == 2 and kind in (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest):
        assert coordinator.seen(kind) == []
    else:
        assert coordinator.errors[kind] == []


def test_error_of_one_of_several_added_partitions_is_raised(older: Coordinator, cluster: Cluster) -> None:
    older.errors[AddPartitionsToTxnRequest] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    producer = TransactionalProducer(cluster, "x")
    producer.begin_transaction()
    with pytest.raises(ErrorResponse, match="TOPIC_AUTHORIZATION_FAILED"):
        send(producer, 0, 1)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_fenced_producer_stays_fenced(coordinator: Coordinator, cluster: Cluster, code: ErrorCode) -> None:
    producer = TransactionalProducer(cluster, "x")
    coordinator.errors[EndTxnRequest] = [code] * 2
    coordinator.errors[InitProducerIdRequest] = [ErrorCode.PRODUCER_FENCED]
    words = "a newer producer with the same transactional id has started"
    with pytest.raises(ErrorResponse, match=words), producer.transaction():
        send(producer)
    with pytest.raises(WrongState, match="transactional id x is fenced by another producer"):
        producer.begin_transaction()
    with pytest.raises(WrongState):
        producer.abort()


def test_timed_out_transaction_is_reported_and_can_be_aborted(coordinator: Coordinator, cluster: Cluster) -> None:
    """The coordinator aborted it and increased the epoch, but no other producer exists (KIP-588)."""
    producer = TransactionalProducer(cluster, "x")
    producer.begin_transaction()
    send(producer)
    coordinator.errors[EndTxnRequest] = [ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED]
    with pytest.raises(ErrorResponse, match="it may have timed out"):
        producer.commit()
    producer.abort()
    assert coordinator.seen(InitProducerIdRequest)[-1].producer_id == 7, "it says who it is"
    with producer.transaction():
        send(producer)
    assert coordinator.numbers()[-1] == (1, 0)


def test_unanswered_commit_is_retried_and_not_aborted(coordinator: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    coordinator.errors[EndTxnRequest] = [HangUp] * 10_000
    with pytest.raises(KafkaUnavailable), producer.transaction():
        send(producer)
    with pytest.raises(WrongState, match="commit result is unknown"):
        producer.abort()
    coordinator.errors[EndTxnRequest] = []
    producer.commit()
    assert producer.state is State.READY
    assert all(request.committed for request in coordinator.seen(EndTxnRequest))


def test_calls_in_the_wrong_state_are_refused(modern: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    for call in (producer.commit, producer.abort, producer.flush, producer.prepare):
        with pytest.raises(WrongState, match="transactional id x is ready"):
            call()
    with pytest.raises(WrongState):
        producer.send("t", b"x")
    producer.begin_transaction()
    with pytest.raises(WrongState, match="is in a transaction"):
        producer.begin_transaction()


def test_two_phase_transaction_is_prepared_and_completed(modern: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x", two_phase=True)
    (init,) = modern.seen(InitProducerIdRequest)
    assert (init.enable2_pc, init.keep_prepared_txn, init.transaction_timeout_ms) == (True, False, 2**31 - 1)
    assert not producer.complete(Identity(7, 0)), "nothing is prepared"
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    decided = producer.prepare()
    assert decided == (7, 0)
    assert len(modern.batches()) == 1, "what is prepared is written"
    with pytest.raises(WrongState, match="in a prepared transaction"):
        producer.send("t", b"x")
    producer.commit()
    assert [request.committed for request in modern.seen(EndTxnRequest)] == [True]


@pytest.mark.parametrize(("decided", "is_committed"), [((7, 4), True), ((7, 3), False), (None, False)])
def test_transaction_prepared_by_an_earlier_process_is_completed(
    modern: Coordinator, cluster: Cluster, decided: tuple[int, int] | None, is_committed: bool
) -> None:
    modern.identity, modern.ongoing = Identity(7, 4), Identity(7, 4)
    producer = TransactionalProducer(cluster, "x", two_phase=True, keep_prepared=True)
    assert (producer.prepared, producer.state) == ((7, 4), State.PREPARED)
    with pytest.raises(WrongState):
        producer.begin_transaction()
    assert producer.complete(Identity(*decided) if decided else None) == is_committed
    (end,) = modern.seen(EndTxnRequest)
    assert (end.committed, end.producer_epoch) == (is_committed, 5), "under the epoch that was just given out"
    with producer.transaction():
        send(producer)
    assert modern.numbers() == [(6, 0)]


def test_two_phase_commit_is_unsupported_by_old_brokers(
    broker: ScriptedBroker, modern: Coordinator, cluster: Cluster
) -> None:
    broker.versions[ApiKey.INIT_PRODUCER_ID] = (0, 5)
    with pytest.raises(Unsupported, match="does not support two-phase commit"):
        TransactionalProducer(cluster, "x", two_phase=True)


def test_too_long_transaction_timeout_is_refused(modern: Coordinator, cluster: Cluster) -> None:
    modern.errors[InitProducerIdRequest] = [ErrorCode.INVALID_TRANSACTION_TIMEOUT]
    with pytest.raises(ErrorResponse, match=r"exceeds the broker's transaction\.max\.timeout\.ms"):
        TransactionalProducer(cluster, "x")


@pytest.fixture
def ancient(broker: ScriptedBroker) -> Coordinator:
    """Return a coordinator older than Kafka 2.5.

    Each request for a producer id fences earlier producers (no KIP-360), and commits contain no group metadata (no
    KIP-447).
    """
    broker.versions |= {ApiKey.INIT_PRODUCER_ID: (0, 1), ApiKey.TXN_OFFSET_COMMIT: (0, 2), ApiKey.END_TXN: (0, 1)}
    return Coordinator(broker, 0)


def test_abort_on_an_old_broker_keeps_epoch_and_sequence(ancient: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    for error in (KeyError, None):
        with suppress(KeyError), producer.transaction():
            send(producer)
            if error is not None:
                raise error
    assert [request.committed for request in ancient.seen(EndTxnRequest)] == [False, True]
    assert ancient.numbers() == [(0, 0), (0, 1)]
    assert len(ancient.seen(InitProducerIdRequest)) == 1


def test_fenced_producer_of_an_old_broker_cannot_recover(ancient: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    producer.begin_transaction()
    send(producer)
    ancient.errors[EndTxnRequest] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(ErrorResponse, match="a newer producer has started"):
        producer.abort()
    assert producer.state is State.FENCED
    assert len(ancient.seen(InitProducerIdRequest)) == 1, "which would have fenced the newer one"


def test_sequence_gap_on_an_old_broker_ends_the_producer(ancient: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    producer.begin_transaction()
    ancient.errors[ProduceRequest] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(ErrorResponse):
        send(producer)
    producer.abort()
    with pytest.raises(WrongState, match=r"older than Kafka 2\.5: create a new producer"):
        producer.begin_transaction()


def test_group_metadata_is_unsupported_by_old_brokers(ancient: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    with producer.transaction():
        producer.send_offsets("g", {T0: Committed(1)})
    with pytest.raises(Unsupported, match=r"it is older than Kafka 2\.5"), producer.transaction():
        producer.send_offsets("g", {T0: Committed(1)}, Membership(3, "member"))


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_expired_transactional_id_is_registered_again(
    coordinator: Coordinator, cluster: Cluster, code: ErrorCode
) -> None:
    producer = TransactionalProducer(cluster, "x")
    coordinator.errors |= {ProduceRequest: [code], EndTxnRequest: [code] * 9}
    with pytest.raises(ErrorResponse, match=code.name), producer.transaction():
        send(producer)
    coordinator.errors.clear()
    with producer.transaction():
        send(producer)
    assert coordinator.numbers()[-1] == (1, 0)


def test_unencodable_record_prevents_the_commit(modern: Coordinator, cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "x")
    producer.begin_transaction()
    producer.send("t", b"x", partition=0, timestamp="now")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.flush()
    with pytest.raises(WrongState, match="must be aborted"):
        producer.commit()
    producer.abort()


def test_prepared_transaction_waits_for_the_decision(modern: Coordinator, cluster: Cluster) -> None:
    """The caller may have stored the decision before it raised."""
    producer = TransactionalProducer(cluster, "x", two_phase=True)
    with pytest.raises(KeyError), producer.transaction():
        producer.send("t", b"x", partition=0)
        decided = producer.prepare()
        raise KeyError
    assert modern.seen(EndTxnRequest) == []
    assert producer.complete(decided)
