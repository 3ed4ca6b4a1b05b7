"""Wall clock jumps under a running broker: the wall clock is used in records, and no wait depends on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import ProduceResponse
from support.asking import (
    ALL,
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    created,
    delete,
    fetch,
    fetch_all,
    fetch_request,
    produce,
    produce_request,
    produced,
)
from support.faults import Faults
from support.raw_client import RawClient, frame
from support.serving import Serving
from support.waiting import until
from support.workers import TOPIC, Reader, Writer, check_kept, read_all, wait_for_progress, workers

HOUR_SECONDS = 3600
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, faults: Faults) -> Iterator[Serving]:
    overrides = {
        "log.segment.delete.delay.ms": "1000",
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "500",
        "replica.high.watermark.checkpoint.interval.ms": "500",
    }
    serving = Serving(tmp_path, **overrides)
    serving.environment = faults.environment
    with serving as running:
        yield running
    assert "Traceback" not in serving.errors()


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        yield one


def create_with(client: RawClient, name: str, **configs: str) -> None:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=entries)
    (made,) = client.request(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS, CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE


JUMPS = [pytest.param(hours, id=f"{hours:+} h") for hours in (-1, 1)]


@pytest.mark.parametrize("hours", JUMPS)
def test_no_wait_depends_on_the_wall_clock(broker: Serving, client: RawClient, faults: Faults, hours: int) -> None:
    """Long polls end, acks=all completes, and topics and their files come and go, before and after a jump."""
    created(client, "t", "doomed")
    produced(client, "t", b"before")
    produced(client, "doomed", b"x")
    with RawClient(broker.port) as poller:
        poller.ping()
        poller.send(frame_of_poll(1))
        assert delete(client, "doomed") == ErrorCode.NONE
        faults.shift_clock(hours * HOUR_SECONDS)
        assert poller.read_frame()
        poller.send(frame_of_poll(1))
        assert poller.read_frame()
    until(lambda: not list((broker.directory / "data").glob("doomed*")))
    for _ in range(3):
        produced(client, "t", b"after", timestamp_ms=1_700_000_000_000)
    created(client, "new")
    assert delete(client, "new") == ErrorCode.NONE
    until(lambda: not list((broker.directory / "data").glob("new*")))
    until(lambda: "t 0 4" in (broker.directory / "data" / "replication-offset-checkpoint").read_text())
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert [value for _, value in fetch_all(again, "t")] == [b"before", b"after", b"after", b"after"]


def frame_of_poll(offset: int) -> bytes:
    return frame(fetch_request("t", offset, wait_ms=1500), FETCH)


def test_clients_continue_through_clock_jumps(broker: Serving, client: RawClient, faults: Faults) -> None:
    created(client, TOPIC, partitions=1)
    # A little less than an hour: further, records of clients whose clock is right would be from the future.
    jumps = [0.0, -3500.0, 3500.0, -3500.0, 86_400.0, 0.0]
    writer, reader = Writer(broker, 0, ALL), Reader(broker, 0)
    with workers(writer, reader):
        for jump in jumps:
            faults.shift_clock(jump)
            wait_for_progress([writer], [writer.acknowledged + 20])
    kept = read_all(client, 0)
    check_kept(writer, kept)
    assert not writer.sent_again
    assert reader.seen == kept[: len(reader.seen)]


def test_records_an_hour_ahead_of_the_broker_are_rejected(broker: Serving, client: RawClient, faults: Faults) -> None:
    """As in Apache Kafka, message.timestamp.after.max.ms is an hour. The client's clock may be the right one."""
    created(client, "t")
    faults.shift_clock(-HOUR_SECONDS - 60)
    assert produce(client, "t", b"x") == (ErrorCode.INVALID_TIMESTAMP, -1)
    faults.shift_clock(0)
    assert produced(client, "t", b"x") == 0


def test_log_append_time_goes_back_and_offsets_do_not(broker: Serving, client: RawClient, faults: Faults) -> None:
    create_with(client, "t", message_timestamp_type="LogAppendTime", index_interval_bytes="0")
    times: list[int] = []
    for shift in (0, HOUR_SECONDS, 0, -HOUR_SECONDS, 0):
        faults.shift_clock(shift)
        answer = client.request(produce_request("t", b"x"), PRODUCE, ProduceResponse)
        times.append(answer.responses[0].partition_responses[0].log_append_time_ms)
    assert [round((at - times[0]) / HOUR_MS) for at in times] == [0, 1, 0, -1, 0]
    assert [offset for offset, _ in fetch_all(client, "t")] == list(range(5))
    # The first record at or after a time, in the order of the log.
    assert [offset_at(client, at) for at in (times[3], times[0], times[0] + HOUR_MS // 2, times[1] + HOUR_MS)] == [
        0,
        0,
        1,
        -1,
    ]


def offset_at(client: RawClient, timestamp: int) -> int:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    return client.request(request, 7, ListOffsetsResponse).topics[0].partitions[0].offset


def test_a_long_poll_is_woken_after_a_jump(broker: Serving, client: RawClient, faults: Faults) -> None:
    created(client, "t")
    with RawClient(broker.port) as poller:
        poller.ping()
        faults.shift_clock(-HOUR_SECONDS / 2)
        poller.send(frame(fetch_request("t", 0, wait_ms=15_000), FETCH))
        produced(client, "t", b"news")
        _, answer = decode_response(FetchResponse, FETCH, poller.read_frame())
    assert answer.responses[0].partitions[0].high_watermark == 1


def test_retention_deletes_nothing_because_of_a_jump_back(client: RawClient, faults: Faults) -> None:
    """Records younger than retention.ms by the current clock stay; a jump forward makes them old and deletes them.

    Records that are old by any clock show that retention ran.
    """
    create_with(client, "long", retention_ms=str(3 * HOUR_MS))
    create_with(client, "short", retention_ms=str(30 * MINUTE_MS))
    for topic in ("old", "as-old"):
        create_with(client, topic, retention_ms=str(30 * MINUTE_MS))
    for topic in ("long", "short"):
        produced(client, topic, b"kept")
    faults.shift_clock(-HOUR_SECONDS)
    # After the second deletion, retention has visited every log since the first one.
    for topic in ("old", "as-old"):
        produced(client, topic, b"x", timestamp_ms=time.time_ns() // 1_000_000 - 10 * HOUR_MS)
        until(lambda topic=topic: fetch(client, topic, 0)[0] == ErrorCode.OFFSET_OUT_OF_RANGE)
    for topic in ("long", "short"):
        assert fetch_all(client, topic) == [(0, b"kept")]
    faults.shift_clock(HOUR_SECONDS)
    until(lambda: fetch(client, "short", 0)[0] == ErrorCode.OFFSET_OUT_OF_RANGE)
    assert produced(client, "short", b"next") == 1
    assert fetch_all(client, "long") == [(0, b"kept")]
