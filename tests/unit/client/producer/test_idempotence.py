"""Sequence numbers of batches, with lost and refused responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, INT32_MAX, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.producer.delivery import produce
from odradek.client.producer.idempotence import Buffer, Identity, Sequences, idempotent, stamp
from odradek.client.producer.producer import Producer
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.record.records import decode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker

pytestmark = pytest.mark.waits

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)


def batch(*values: bytes) -> bytearray:
    return encode_batch([(None, value, (), 1_000) for value in values])


class Leader:
    """A leader of t-0 and t-1 that accepts each sequence once; `errors` are the next responses of a partition."""

    def __init__(self, broker: ScriptedBroker, batch_bytes_max: int = 1 << 30) -> None:
        broker.topics["t"] = 2
        self.values: dict[int, list[bytes | None]] = {0: [], 1: []}
        self.errors: dict[int, list[ErrorCode | str]] = {0: [], 1: []}
        self.identities: list[tuple[int, int, int]] = []
        self.batch_bytes_max = batch_bytes_max
        self._known: dict[tuple[int, int], tuple[int, int]] = {}  # Of (partition, producer id): epoch, next sequence.
        broker.on(ProduceRequest, self._produce)
        broker.on(
            InitProducerIdRequest,
            lambda request, version: InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0
            ),
        )

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[self._append(part.index, part.records) for part in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        if any(self.errors[index][:1] == ["lost"] for index in self.errors):
            for waiting in self.errors.values():
                del waiting[:1]
            raise HangUp
        return ProduceResponse(responses=topics)

    def _append(self, index: int, data: object) -> PartitionProduceResponse:
        assert isinstance(data, bytes | bytearray | memoryview)
        waiting = self.errors[index]
        code = waiting.pop(0) if waiting and waiting[0] != "lost" else ErrorCode.NONE
        assert isinstance(code, ErrorCode)
        if len(data) > self.batch_bytes_max:
            code = ErrorCode.MESSAGE_TOO_LARGE
        checked = Batch.checked(bytes(data))
        self.identities.append((checked.producer_id, checked.producer_epoch, checked.base_sequence))
        if code == ErrorCode.NONE:
            code = self._take(index, checked)
        return PartitionProduceResponse(index=index, error_code=code, base_offset=len(self.values[index]))

    def _take(self, index: int, checked: Batch) -> ErrorCode:
        epoch, following = self._known.get((index, checked.producer_id), (checked.producer_epoch, 0))
        if checked.producer_epoch > epoch:
            epoch, following = checked.producer_epoch, 0
        if checked.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if checked.last_sequence + 1 == following:
            return ErrorCode.NONE  # Written before: the answer was lost.
        if checked.base_sequence != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._known[index, checked.producer_id] = epoch, checked.last_sequence + 1
        self.values[index] += [record.value for record in decode(checked)]
        return ErrorCode.NONE


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        yield scripted


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "api_timeout_ms": 500, "delivery_timeout_ms": 500}
    with Cluster(ClientConfig(broker.address, **quick)) as connected:  # type: ignore[arg-type]  # All ints.
        yield connected


@given(
    values=st.lists(st.binary(max_size=20), min_size=1, max_size=5),
    identity=st.builds(Identity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
    sequence=st.integers(0, INT32_MAX),
    is_transactional=st.booleans(),
    kind=st.sampled_from([bytes, bytearray, memoryview, lambda data: memoryview(bytes(data))]),
)
def test_stamped_batch_is_valid_and_has_its_sequence(
    *,
    values: list[bytes],
    identity: Identity,
    sequence: int,
    is_transactional: bool,
    kind: Callable[[bytearray], Buffer],
) -> None:
    stamped = stamp(kind(batch(*values)), identity, sequence, is_transactional=is_transactional)
    found = Batch.checked(bytes(stamped))
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (*identity, sequence)
    assert found.is_transactional == is_transactional
    assert [record.value for record in decode(found)] == values


def test_immutable_bytes_are_copied() -> None:
    before = bytes(batch(b"a"))
    kept = bytes(before)
    stamp(before, Identity(7, 0), 0)
    stamp(memoryview(before), Identity(7, 0), 0)
    assert before == kept


def test_sequences_are_per_partition_and_wrap_around() -> None:
    sequences = Sequences(Identity(7, 0), lambda: Identity(8, 0))

    def numbers(partition: TopicPartition, *values: bytes) -> int:
        return Batch.checked(bytes(sequences.assign_numbers(partition, batch(*values)))).base_sequence

    assert [numbers(T0, b"a", b"b"), numbers(T0, b"c"), numbers(T1, b"d"), numbers(T0, b"e")] == [0, 2, 0, 3]
    sequences._partitions[T1].next = INT32_MAX
    assert [numbers(T1, b"x", b"y"), numbers(T1, b"z")] == [INT32_MAX, 1]


def test_exhausted_epochs_lead_to_a_new_producer_id() -> None:
    sequences = Sequences(Identity(7, INT16_MAX - 1), lambda: Identity(8, 0))

    def numbers(partition: TopicPartition) -> tuple[int, int, int]:
        found = Batch.checked(bytes(sequences.assign_numbers(partition, batch(b"a"))))
        return found.producer_id, found.producer_epoch, found.base_sequence

    numbers(T0)
    sequences.renew(T0)
    assert numbers(T0) == (7, INT16_MAX, 0)
    sequences.renew(T0)
    assert [numbers(T0), numbers(T0)] == [(8, 0, 0), (8, 0, 1)]
    assert numbers(T1) == (7, INT16_MAX - 1, 0)


def test_identity_round_trips_as_text() -> None:
    assert Identity.parse(str(Identity(123, 4))) == (123, 4)
    with pytest.raises(ValueError, match="int"):
        Identity.parse("123")


def test_batch_with_a_lost_response_is_written_once(broker: ScriptedBroker, cluster: Cluster) -> None:
    leader = Leader(broker)
    leader.errors[0] = ["lost"]
    sequences = idempotent(cluster)
    for value in (b"a", b"b"):
        produce(cluster, {T0: batch(value)}, sequences=sequences)
    assert leader.values[0] == [b"a", b"b"]
    assert leader.identities == [(7, 0, 0), (7, 0, 0), (7, 0, 1)]


def test_duplicate_of_an_old_batch_counts_as_written(broker: ScriptedBroker, cluster: Cluster) -> None:
    leader = Leader(broker)
    leader.errors[0] = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
    assert produce(cluster, {T0: batch(b"a")}, sequences=idempotent(cluster))[T0].base_offset == -1


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_unknown_producer_id_restarts_the_sequence_of_the_partition(
    broker: ScriptedBroker, cluster: Cluster, code: ErrorCode
) -> None:
    leader = Leader(broker)
    sequences = idempotent(cluster)
    produce(cluster, {T0: batch(b"a"), T1: batch(b"x")}, sequences=sequences)
    leader.errors[0] = [code]
    produce(cluster, {T0: batch(b"b"), T1: batch(b"y")}, sequences=sequences)
    produce(cluster, {T0: batch(b"c"), T1: batch(b"z")}, sequences=sequences)
    assert leader.values == {0: [b"a", b"b", b"c"], 1: [b"x", b"y", b"z"]}
    assert leader.identities[-2:] == [(7, 1, 1), (7, 0, 2)], "t-1 goes on as it was"


def test_sequences_restart_after_a_failed_delivery(broker: ScriptedBroker, cluster: Cluster) -> None:
    leader = Leader(broker)
    sequences = idempotent(cluster)
    leader.errors[0] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(ErrorResponse):
        produce(cluster, {T0: batch(b"a")}, sequences=sequences)
    produce(cluster, {T0: batch(b"b")}, sequences=sequences)
    assert leader.values[0] == [b"b"]
    assert leader.identities == [(7, 0, 0), (7, 1, 0)]


def test_halves_continue_the_sequence_of_the_batch(broker: ScriptedBroker, cluster: Cluster) -> None:
    leader = Leader(broker, batch_bytes_max=1_500)
    values = [b"%04d" % number + bytes(100) for number in range(40)]
    sequences = idempotent(cluster)
    produce(cluster, {T0: batch(*values)}, sequences=sequences)
    produce(cluster, {T0: batch(b"last")}, sequences=sequences)
    assert leader.values[0] == [*values, b"last"]
    assert leader.identities[-1] == (7, 0, 40)


def test_every_record_is_written_once_despite_lost_responses(broker: ScriptedBroker, cluster: Cluster) -> None:
    leader = Leader(broker)
    leader.errors = {0: ["lost", ErrorCode.NOT_LEADER_OR_FOLLOWER] * 20, 1: ["lost", "lost"] * 10}
    with Producer(cluster, sequences=idempotent(cluster)) as producer:
        for number in range(400):
            producer.send("t", b"%d" % number, partition=number % 2)
            if number % 20 == 0:
                producer.flush()
    for index in range(2):
        assert leader.values[index] == [b"%d" % number for number in range(index, 400, 2)]


def test_preencoded_batches_get_sequences(broker: ScriptedBroker, cluster: Cluster) -> None:
    leader = Leader(broker)
    producer = Producer(cluster, sequences=idempotent(cluster))
    for number in range(3):
        producer.send_batch(T0, bytes(batch(b"%d" % number)), 1)
    producer.flush()
    assert leader.identities == [(7, 0, 0), (7, 0, 1), (7, 0, 2)]


def test_broker_without_idempotence_gives_no_sequences(broker: ScriptedBroker, cluster: Cluster) -> None:
    del broker.versions[ApiKey.INIT_PRODUCER_ID]
    assert idempotent(cluster) is None


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([ErrorCode.CLUSTER_AUTHORIZATION_FAILED], None),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2, Identity(7, 0)),
    ],
)
def test_refused_producer_id_request_is_retried_or_raised(
    broker: ScriptedBroker, cluster: Cluster, codes: list[ErrorCode], expected: Identity | None
) -> None:
    waiting = list(codes)

    def answer(request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        code = waiting.pop(0) if waiting else 0
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=0)

    broker.on(InitProducerIdRequest, answer)
    sequences = idempotent(cluster)
    assert (sequences and sequences.identity) == expected
