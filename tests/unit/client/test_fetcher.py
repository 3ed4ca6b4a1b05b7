from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import Offset, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import (
    ErrorResponse,
    KafkaUnavailable,
    OffsetOutOfRange,
    TopicRecreated,
    UnknownTopic,
)
from odradek.client.consumer.fetcher import Fetched, Fetcher
from odradek.record.builder import encode_batch
from odradek.record.records import decode
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker, topic_id

pytestmark = pytest.mark.waits

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
PER_BATCH = 10


def batch(base_offset: int) -> bytes:
    records = [(b"", b"%d" % (base_offset + delta), (), 0) for delta in range(PER_BATCH)]
    return bytes(encode_batch(records, base_offset=Offset(base_offset)))


class Logs:
    """Partitions with batches of ten records, served like a broker with `per_answer` batches in each response."""

    def __init__(self, ends: Mapping[int, int], per_answer: int = 1) -> None:
        self.ends = dict(ends)
        self.per_answer = per_answer
        self.errors: dict[int, list[ErrorCode]] = {}
        self.cut: int | None = None

    def __call__(self, request: FetchRequest, version: int) -> FetchResponse:
        responses = []
        for topic in request.topics:
            parts = [self._part(each.partition, each.fetch_offset) for each in topic.partitions]
            responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
        if all(not part.records and not part.error_code for each in responses for part in each.partitions):
            time.sleep(request.max_wait_ms / 1000)
        return FetchResponse(responses=responses)

    def _part(self, index: int, offset: int) -> PartitionData:
        end = self.ends[index]
        code = self.errors[index].pop(0) if self.errors.get(index) else ErrorCode.NONE
        if not 0 <= offset <= end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        first = offset - offset % PER_BATCH
        last = min(end, first + self.per_answer * PER_BATCH)
        records = b"" if code else b"".join(batch(base) for base in range(first, last, PER_BATCH))
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            records=records[: self.cut],
        )


def cluster_of(broker: ScriptedBroker, **settings: int) -> Cluster:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "api_timeout_ms": 1_000, "fetch_max_wait_ms": 20}
    return Cluster(ClientConfig(broker.address, **(quick | settings)))  # type: ignore[arg-type]  # All ints.


def values(fetched: list[Fetched]) -> list[int]:
    return [
        record.offset
        for each in fetched
        for every in each.batches()
        for record in decode(every)
        if record.offset >= each.fetch_offset
    ]


def drain(fetcher: Fetcher) -> list[Fetched]:
    got = []
    while not fetcher.is_done:
        got += fetcher.poll(5_000)
    return got


def test_fetcher_reads_to_the_given_end() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(FetchRequest, Logs({0: 100}, per_answer=3))
        fetcher = Fetcher(cluster, {T0: 0}, until={T0: 100})
        got = drain(fetcher)
        assert values(got) == list(range(100))
        assert fetcher.position(T0) == 100
        assert got[-1].high_watermark == got[-1].last_stable_offset == 100
        assert fetcher.poll(0) == []


def test_offset_inside_a_batch_returns_the_whole_batch() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(FetchRequest, Logs({0: 30}))
        got = drain(Fetcher(cluster, {T0: 17}, until={T0: 25}))
        assert [(each.fetch_offset, each.next_offset) for each in got] == [(17, 20), (20, 30)]
        assert values(got) == list(range(17, 30))


def test_next_request_is_sent_before_the_response_is_returned() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(FetchRequest, Logs({0: 40}))
        fetcher = Fetcher(cluster, {T0: 0}, until={T0: 20})
        fetcher.poll(5_000)
        wait_for(lambda: len(broker.seen) == 2)
        fetcher.poll(5_000)
        time.sleep(0.05)
        assert len(broker.seen) == 2, "nothing is asked beyond the end"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_partitions_take_turns() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topics["t"] = 2
        broker.on(FetchRequest, Logs({0: 50, 1: 0}))
        fetcher = Fetcher(cluster, {T0: 0, T1: 0}, until={T0: 50})
        for _ in range(3):
            fetcher.poll(5_000)
        orders = [[part.partition for part in request.topics[0].partitions] for request in broker.seen[:3]]
        assert orders == [[0, 1], [1, 0], [1, 0]]


def test_returned_views_are_not_overwritten() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(FetchRequest, Logs({0: 200}))
        got = drain(Fetcher(cluster, {T0: 0}, until={T0: 200}))
        assert [bytes(each.records) for each in got] == [batch(base) for base in range(0, 200, PER_BATCH)]


def test_poll_without_new_records_returns_nothing_in_time() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(FetchRequest, Logs({0: 0}))
        fetcher = Fetcher(cluster, {T0: 0})
        started = time.monotonic()
        assert fetcher.poll(100) == []
        assert 0.09 < time.monotonic() - started < 30
        assert len(broker.seen) < 10


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_fetcher_supports_all_fetch_versions(version: int) -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.versions[ApiKey.FETCH] = (0, version)
        broker.on(FetchRequest, Logs({0: 30}))
        assert values(drain(Fetcher(cluster, {T0: 0}, until={T0: 30}))) == list(range(30))
        assert broker.seen[0].topics[0].topic == ("t" if version < 13 else "")


def test_topic_without_an_id_is_fetched_by_name() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topic_ids["t"] = ZERO_UUID
        broker.on(FetchRequest, Logs({0: 10}))
        assert len(drain(Fetcher(cluster, {T0: 0}, until={T0: 10}))) == 1
        assert broker.seen[0].topics[0].topic == "t"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_moved_partition_is_looked_up_again(code: ErrorCode) -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        logs = Logs({0: 30})
        logs.errors[0] = [ErrorCode.NONE, code, code]
        broker.on(FetchRequest, logs)
        assert values(drain(Fetcher(cluster, {T0: 0}, until={T0: 30}))) == list(range(30))
        assert broker.metadata_requests == 3


def test_healthy_partition_is_read_while_another_fails() -> None:
    with ScriptedBroker() as broker, cluster_of(broker, api_timeout_ms=60_000) as cluster:
        broker.topics["t"] = 2
        logs = Logs({0: 100, 1: 100})
        logs.errors[1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100_000
        broker.on(FetchRequest, logs)
        fetcher = Fetcher(cluster, {T0: 0, T1: 0}, until={T0: 100, T1: 100})
        got: list[Fetched] = []
        while fetcher.position(T0) < 100:
            got += fetcher.poll(5_000)
        assert values(got) == list(range(100))


def test_permanent_error_is_raised_eventually() -> None:
    with ScriptedBroker() as broker, cluster_of(broker, api_timeout_ms=100) as cluster:
        logs = Logs({0: 100})
        logs.errors[0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100_000
        broker.on(FetchRequest, logs)
        fetcher = Fetcher(cluster, {T0: 0})
        with pytest.raises(ErrorResponse, match="the leader changed"):
            fetcher.poll(10_000)


def test_missing_topic_is_raised_eventually() -> None:
    with ScriptedBroker() as broker, cluster_of(broker, api_timeout_ms=100) as cluster:
        fetcher = Fetcher(cluster, {TopicPartition(TopicName("nix"), 0): 0})
        with pytest.raises(UnknownTopic):
            fetcher.poll(10_000)


def test_out_of_range_offset_is_reported_and_can_be_corrected() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.topics["t"] = 2
        broker.on(FetchRequest, Logs({0: 20, 1: 20}))
        fetcher = Fetcher(cluster, {T0: 99, T1: 0}, until={T0: 20, T1: 20})
        fetcher.seek(T0, 99)
        del fetcher._until[T0]
        got = fetcher.poll(5_000)
        assert values(got) == list(range(10)), "what came with the error is not lost"
        with pytest.raises(OffsetOutOfRange) as raised:
            fetcher.poll(5_000)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 0, 99)
        fetcher.seek(T0, 10)
        while fetcher.position(T0) < 20 or fetcher.position(T1) < 20:
            fetcher.poll(5_000)


def test_response_to_a_request_before_a_seek_is_dropped() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.on(FetchRequest, Logs({0: 100}))
        fetcher = Fetcher(cluster, {T0: 0})
        fetcher.poll(5_000)
        fetcher.seek(T0, 70)
        assert [each.fetch_offset for each in fetcher.poll(5_000)] == [70]
        fetcher.remove(T0)
        assert fetcher.poll(30) == []


def test_recreated_topic_is_detected() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        logs = Logs({0: 100})
        broker.on(FetchRequest, logs)
        fetcher = Fetcher(cluster, {T0: 0})
        fetcher.poll(5_000)
        broker.topic_ids["t"] = topic_id("another")
        logs.errors[0] = [ErrorCode.UNKNOWN_TOPIC_ID] * 3
        with pytest.raises(TopicRecreated, match="deleted and recreated"):
            for _ in range(10):
                fetcher.poll(5_000)


def test_wrong_topic_id_is_refused() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        fetcher = Fetcher(cluster, {T0: 0}, topic_ids={"t": Uuid(bytes(range(16)))})
        with pytest.raises(TopicRecreated):
            fetcher.poll(5_000)


def test_reconnect_neither_loses_nor_repeats_records() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        logs = Logs({0: 100})
        answered = 0

        def answer_sometimes(request: FetchRequest, version: int) -> FetchResponse:
            nonlocal answered
            answered += 1
            if answered % 3 == 0:
                raise HangUp
            return logs(request, version)

        broker.on(FetchRequest, answer_sometimes)
        assert values(drain(Fetcher(cluster, {T0: 0}, until={T0: 100}))) == list(range(100))


def test_unreachable_broker_is_raised_eventually() -> None:
    with ScriptedBroker() as broker, cluster_of(broker, api_timeout_ms=100, connect_timeout_ms=100) as cluster:
        broker.on(FetchRequest, Logs({0: 100}))
        fetcher = Fetcher(cluster, {T0: 0})
        fetcher.poll(5_000)
        broker.__exit__(None, None, None)
        with pytest.raises(KafkaUnavailable):
            for _ in range(1_000):
                fetcher.poll(1_000)


def test_incomplete_batch_is_not_returned() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        logs = Logs({0: 10})
        logs.cut = 30
        broker.on(FetchRequest, logs)
        fetcher = Fetcher(cluster, {T0: 0})
        assert fetcher.poll(20) == []
        assert fetcher.position(T0) == 0


def test_aborted_transactions_are_returned() -> None:
    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        part = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=10,
            last_stable_offset=10,
            aborted_transactions=[AbortedTransaction(producer_id=4, first_offset=2)],
            records=batch(0),
        )
        topics = [FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[part])]
        return FetchResponse(responses=topics)

    with ScriptedBroker() as broker, cluster_of(broker, isolation_level=1) as cluster:
        broker.on(FetchRequest, fetch)
        (got,) = Fetcher(cluster, {T0: 0}).poll(5_000)
        assert got.aborted == ((4, 2),)
        assert broker.seen[0].isolation_level == 1


def test_refused_fetch_is_raised() -> None:
    with ScriptedBroker() as broker, cluster_of(broker) as cluster:
        refusal = FetchResponse(error_code=ErrorCode.INVALID_REQUEST, responses=[])
        broker.on(FetchRequest, lambda request, version: refusal)
        with pytest.raises(ErrorResponse, match="INVALID_REQUEST"):
            Fetcher(cluster, {T0: 0}).poll(5_000)
