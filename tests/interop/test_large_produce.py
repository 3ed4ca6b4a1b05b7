"""Large Produce requests, written to the log by threads while they arrive, with the same effects as small ones."""

from __future__ import annotations

import itertools
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.truncation import truncate_to
from odradek.net.loop import active_connections as heard
from odradek.net.native.movers import Movers
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.testing import Broker
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.asking import (
    ALL,
    FETCH,
    LEADER,
    PRODUCE,
    create,
    created,
    delete,
    fetch,
    fetch_request,
    produce,
    produce_request,
    produced,
)
from support.large_requests import (
    BIG,
    CONFIGS,
    NEVER_MS,
    WITH_COMPANY,
    LocalBroker,
    Stalled,
    Ways,
    answer,
    can_store,
    fetched,
    large,
    local_broker,
    send_all,
    send_in_parts,
    value,
    values,
)
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving
from support.waiting import until

pytestmark = pytest.mark.skipif(not can_store(), reason="there is no mover here, or none that stores")

NO_ERROR = ErrorCode.NONE
VERSIONS = range(3, 14)
TOPIC_IDS_SINCE, ZSTD_SINCE = 13, 7
IN_FLIGHT = 5


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def broker(tmp_path: Path, ways: Ways) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "here") as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        created(one, "t")
        yield one


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Serving]:
    running = Serving(tmp_path, **CONFIGS)
    running.program = WITH_COMPANY
    with running:
        yield running
    assert "Traceback" not in running.errors()


# ---------------------------------------------------------------- the same as without


class Planned(NamedTuple):
    partition: int
    acks: int
    records: bytes


class Numbers:
    """Requests of one partition's producer: idempotent or not, at times repeated, or with a gap."""

    def __init__(self, random: Random, version: int) -> None:
        self.random = random
        self.version = version
        self.sequence = 0
        self.sent: list[bytes] = []

    def batch(self) -> bytes:
        random = self.random
        if self.sent and random.random() < 0.1:
            return random.choice(self.sent[-6:])
        size = random.choice([1 << 10, 70_000, 200_000, BIG, 3_000_000])
        count = random.choice([1, 2, 100])
        codecs = [codec for codec in Codec if codec is not Codec.ZSTD or self.version >= ZSTD_SINCE]
        codec = random.choice([Codec.NONE, random.choice(codecs)])
        half = random.randbytes(size // count // 2)
        records = [(b"key %d" % n, half + half, (), 1_700_000_000_000 + n) for n in range(count)]
        if random.random() < 0.3:
            return bytes(encode_batch(records, codec))
        gap = random.random() < 0.1
        raw = bytes(
            encode_batch(
                records,
                codec,
                producer_id=ProducerId(7),
                producer_epoch=ProducerEpoch(0),
                base_sequence=self.sequence + gap,
            )
        )
        if not gap:
            self.sequence += count
            self.sent.append(raw)
        return raw


def plan(version: int) -> list[Planned]:
    random = Random(version)
    numbers = [Numbers(random, version), Numbers(random, version)]
    return [
        Planned(partition, random.choice([ALL, ALL, LEADER]), numbers[partition].batch())
        for partition in [random.choice([0, 0, 1]) for _ in range(14)]
    ]


def request(planned: Planned, version: int, topic: str, topic_id: Uuid) -> bytes:
    part = PartitionProduceData(index=planned.partition, records=planned.records)
    topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])
    return frame(ProduceRequest(acks=planned.acks, timeout_ms=20_000, topic_data=[topic_data]), version)


def play(broker: LocalBroker, version: int) -> tuple[list[object], list[bytes]]:
    """Return the responses to one producer's requests, and the contents of its partitions afterwards."""
    topic, random = f"version-{version}", Random(version)
    with RawClient(broker.port) as client:
        created(client, topic, partitions=2)
        ids = {
            name: topic_id
            for topic_id, name in broker.on_loop(lambda running: dict(running.shell.broker.view.names)).items()
        }
        frames = [
            request(one, version, topic, ids[topic] if version >= TOPIC_IDS_SINCE else ZERO_UUID)
            for one in plan(version)
        ]
        answers: list[object] = []
        for start in range(0, len(frames), IN_FLIGHT):
            some = frames[start : start + IN_FLIGHT]
            sending = threading.Thread(target=send_all, args=(client.socket, some, random))
            sending.start()
            for _ in some:
                _, read = decode_response(ProduceResponse, version, client.read_frame())
                for one in read.responses:
                    one.topic_id = ZERO_UUID
                answers.append(read)
            sending.join()
    return answers, [broker.log(topic, partition) for partition in range(2)]


def test_responses_and_logs_equal_those_without_movers(tmp_path: Path, ways: Ways) -> None:
    """That holds for every version and codec, in segments that fill up soon, and however requests are split."""
    segments = {"log_segment_bytes": "5000000"}
    played = []
    for has_movers in (False, True):
        with (
            local_broker(tmp_path / str(has_movers), has_movers=has_movers, **segments) as broker,
            ThreadPoolExecutor(2) as pool,
        ):
            played.append(list(pool.map(lambda version: play(broker, version), VERSIONS)))
        assert (ways.begun > 0) == has_movers
    for version, without, with_movers in zip(VERSIONS, *played, strict=True):
        assert without[0] == with_movers[0], version
        assert without[1] == with_movers[1], version
    assert ways.begun == ways.done > 2 * len(VERSIONS)
    assert not ways.handed_back


def test_movers_write_repeated_large_requests(broker: LocalBroker, client: RawClient, ways: Ways) -> None:
    """The second request of a connection resembles the first."""
    for number in range(5):
        assert produced(client, "t", value(seed=number)) == number
        assert (ways.begun, ways.done) == (number, number)
    assert values(client) == [value(seed=number) for number in range(5)]


def test_the_loop_receives_requests_of_a_single_active_client(
    broker: LocalBroker, client: RawClient, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That ends once another client is active, and excludes very large requests."""
    for number in range(2):
        produced(client, "t", value(seed=number))
    assert ways.begun == 1
    monkeypatch.setattr(heard, "ALONE_MS", 0)
    assert produced(client, "t", value(seed=2)) == 2
    assert ways.begun == 1
    assert produced(client, "t", value(3_000_000)) == 3
    assert ways.begun == 2
    monkeypatch.setattr(heard, "ALONE_MS", NEVER_MS)  # That is: another client was active just now.
    assert produced(client, "t", value(seed=4)) == 4
    assert ways.begun == ways.done == 3
    assert values(client)[2:] == [value(seed=2), value(3_000_000), value(seed=4)]


def test_the_loop_tracks_the_active_connection(broker: LocalBroker, client: RawClient) -> None:
    with RawClient(broker.port) as other:
        seen = []
        for one in (client, other, other, client):
            produced(one, "t", b"x")
            seen.append(
                broker.on_loop(
                    lambda running: (
                        running.shell.active_connections.last,
                        running.shell.active_connections.changed_at[-1],
                    )
                )
            )
    assert seen[0][0] is seen[3][0] is not seen[1][0]
    assert seen[1] == seen[2]
    assert seen[0][1] <= seen[1][1] <= seen[3][1]
    client.close()
    until(lambda: broker.on_loop(lambda running: running.shell.active_connections.last) is None)


def test_a_half_closed_client_gets_its_response(client: RawClient, broker: LocalBroker, ways: Ways) -> None:
    produced(client, "t", b"first", acks=LEADER)
    client.send(large(acks=LEADER))
    client.end_of_sending()
    assert answer(client.read_frame()) == (NO_ERROR, 1)
    assert ways.done == 1


@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_a_waiting_consumer_is_woken(broker: LocalBroker, client: RawClient, ways: Ways, acks: int) -> None:
    """One consumer shares the producer's connection and is answered before it; the other has its own."""
    produced(client, "t", b"first", acks=acks)
    waiting = frame(fetch_request("t", 1, wait_ms=600_000), FETCH, 7)
    with RawClient(broker.port) as other:
        other.send(waiting)
        client.send(waiting + large(acks=acks))
        for one in (other, client):
            assert value() in fetched(one.read_frame())
        assert answer(client.read_frame()) == (NO_ERROR, 1)
    assert ways.done == 1


# ---------------------------------------------------------------- what is wrong with it


class Outcome(NamedTuple):
    answer: object
    is_closed: bool


def outcome(broker: LocalBroker, wrong: bytes, topic: str = "t") -> Outcome:
    """Return the outcome of a request and of its connection."""
    with RawClient(broker.port) as client:
        created(client, topic)
        produced(client, topic, b"first")
        send_in_parts(client.socket, wrong, Random(1))
        try:
            _, read = decode_response(ProduceResponse, PRODUCE, client.read_frame())
        except Closed:
            return Outcome(None, is_closed=True)
        client.ping()
        after = produced(client, topic, value(seed=7))
        assert fetch(client, topic, after) == (NO_ERROR, [(after, value(seed=7))])
        return Outcome(read, is_closed=False)


def resized(data: bytes) -> bytes:
    return struct.pack(">i", len(data) - 4) + data[4:]


WRONG: dict[str, tuple[Callable[[bytes], bytes], ErrorCode | None, bool]] = {
    "a wrong checksum": (lambda data: flipped(data, len(data) // 2), ErrorCode.CORRUPT_MESSAGE, True),
    "a wrong last byte": (lambda data: flipped(data, len(data) - 5), ErrorCode.CORRUPT_MESSAGE, True),
    "a tail that is cut short": (lambda data: flipped(data, len(data) - 1), None, True),
    "a tagged field": (lambda data: resized(data[:-1] + b"\x01\x70\x03abc"), NO_ERROR, False),
    "too large": (lambda data: large(size=10_000_001), ErrorCode.MESSAGE_TOO_LARGE, False),
    "no such partition": (lambda data: large(partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("name", WRONG)
def test_invalid_requests_are_answered_as_without_movers(name: str, tmp_path: Path, ways: Ways) -> None:
    spoil, error, is_begun = WRONG[name]
    sent = spoil(large())
    with local_broker(tmp_path / "without", has_movers=False) as broker:
        expected = outcome(broker, sent)
    with local_broker(tmp_path / "with") as broker:
        assert outcome(broker, sent) == expected
    assert (ways.begun - ways.done, ways.handed_back) == ((1, 1) if is_begun else (0, 0))
    if error is None:
        assert expected.is_closed
    else:
        assert expected.answer.responses[0].partition_responses[0].error_code == error  # type: ignore[attr-defined]


def test_a_request_that_the_mover_refuses_is_received_whole(
    client: RawClient, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mover refuses it, or there are no descriptors: the request is handled as any other."""
    produced(client, "t", b"first")
    monkeypatch.setattr(Movers, "store", lambda *arguments, **keywords: None)
    for number in range(1, 4):
        assert produce(client, "t", value(seed=number)) == (NO_ERROR, number)
    assert not ways.begun
    assert values(client) == [b"first", *(value(seed=number) for number in range(1, 4))]


# ---------------------------------------------------------------- others at the log's end


def test_a_stalled_producer_delays_no_other(broker: LocalBroker, client: RawClient, ways: Ways) -> None:
    stalled = Stalled(client, broker.directory)
    with RawClient(broker.port) as other:
        assert produced(other, "t", b"small") == 1
        assert (ways.handed_back, ways.done) == (1, 0)
        for number in range(2, 5):
            assert produced(other, "t", value(seed=number)) == number
        assert answer(stalled.finish()) == (NO_ERROR, 5)
        assert produced(client, "t", b"last") == 6
    assert values(client) == [b"first", b"small", *(value(seed=number) for number in range(2, 5)), value(), b"last"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_second_large_request_overtakes_a_stalled_one(
    broker: LocalBroker, client: RawClient, ways: Ways, share: float
) -> None:
    """The later request takes the earlier one's place in the log."""
    with RawClient(broker.port) as other:
        produced(other, "t", b"other")
        stalled = Stalled(client, broker.directory, share=share)
        assert produced(other, "t", value(seed=2)) == 2
        assert (ways.begun, ways.done, ways.handed_back) == (2, 1, 1)
        assert answer(stalled.finish()) == (NO_ERROR, 3)
    assert values(client) == [b"other", b"first", value(seed=2), value()]


def test_many_producers_share_a_partition(broker: LocalBroker, client: RawClient, ways: Ways) -> None:
    """Each value is in the log once, at the returned offset."""

    def work(number: int) -> list[tuple[int, int]]:
        with RawClient(broker.port) as one:
            random, found = Random(number), []
            for seed in range(number * 100, number * 100 + 12):
                sent = frame(produce_request("t", value(random.choice([100, BIG]), seed), acks=LEADER), PRODUCE)
                send_in_parts(one.socket, sent, random)
                error, offset = answer(one.read_frame())
                assert error == NO_ERROR
                found.append((offset, seed))
            assert found == sorted(found)
            return found

    with ThreadPoolExecutor(4) as pool:
        placed = dict(itertools.chain.from_iterable(pool.map(work, range(4))))
    found = values(client)
    assert len(found) == len(placed) == 48
    assert all(one == value(len(one), placed[offset]) for offset, one in enumerate(found))
    assert ways.begun


@pytest.mark.parametrize("what", ["roll", "retention", "truncation"])
def test_housekeeping_during_a_large_request(broker: LocalBroker, client: RawClient, ways: Ways, what: str) -> None:
    stalled = Stalled(client, broker.directory)

    def keep_house(running: Any) -> None:
        (partition,) = running.shell.broker.partitions.values()
        if what == "truncation":
            truncate_to(partition.log, partition.log.end_offset, TimestampMs(0))
        else:
            partition.log.roll(TimestampMs(0))
        if what == "retention":
            advance_start(partition.log, 1)
            assert delete_old_segments(partition.log, TimestampMs(0), 1) == 1

    broker.on_loop(keep_house)
    assert ways.handed_back == 1
    assert answer(stalled.finish()) == (NO_ERROR, 1)
    assert fetch(client, "t", 1) == (NO_ERROR, [(1, value())])


def test_a_topic_compacted_during_a_large_request_rejects_it(
    broker: LocalBroker, client: RawClient, ways: Ways
) -> None:
    """Its records have no keys, and needed no validation when the first of them arrived."""
    stalled = Stalled(client, broker.directory)

    def compact(running: Any) -> None:
        (partition,) = running.shell.broker.partitions.values()
        partition.configs = running.shell.broker.configs.for_topic({"cleanup.policy": "compact"})

    broker.on_loop(compact)
    assert answer(stalled.finish()) == (ErrorCode.INVALID_RECORD, -1)
    assert (ways.begun, ways.done, ways.handed_back) == (1, 0, 1)
    assert values(client) == [b"first"]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_deleted_during_a_large_request(
    broker: LocalBroker, client: RawClient, is_made_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stalled = Stalled(client, broker.directory)
    with RawClient(broker.port) as other:
        assert delete(other, "t") == NO_ERROR
        if is_made_again:
            created(other, "t")
            produced(other, "t", b"anew")
        expected = (NO_ERROR, 1) if is_made_again else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert answer(stalled.finish()) == expected
        if is_made_again:
            assert values(client) == [b"anew", value()]
        else:
            assert create(other, "t") == [NO_ERROR]
        client.ping()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# ---------------------------------------------------------------- its connection ends


def test_a_disconnect_during_a_large_request_leaves_no_data(broker: LocalBroker, client: RawClient, ways: Ways) -> None:
    for number in range(3):
        with RawClient(broker.port) as leaving:
            stalled = Stalled(leaving, broker.directory, share=(0.1, 0.5, 0.999)[number])
        until(lambda: stalled.file.stat().st_size == stalled.before)  # noqa: B023
    assert values(client) == [b"first"] * 3
    assert produced(client, "t", value()) == 3
    assert ways.lost == 3


def test_a_connection_lost_during_a_large_request_leaves_no_data(
    broker: LocalBroker, client: RawClient, ways: Ways
) -> None:
    """The loop loses it, not the mover: the response to an earlier request could not be sent."""
    stalled = Stalled(client, broker.directory)

    def lose(running: Any) -> None:
        for connection in running.listeners[0]._connections:
            connection._transport.abort()

    broker.on_loop(lose)
    assert client.is_closed()
    until(lambda: stalled.file.stat().st_size == stalled.before)
    with RawClient(broker.port) as again:
        assert values(again) == [b"first"]
    assert (ways.begun, ways.done, ways.handed_back, ways.lost) == (1, 0, 0, 0)


def test_an_idle_connection_is_closed_and_a_slow_one_is_not(tmp_path: Path, ways: Ways) -> None:
    with local_broker(tmp_path / "here", connections_max_idle_ms="3000") as broker, RawClient(broker.port) as client:
        created(client, "t", "slow")
        stalled = Stalled(client, broker.directory)
        with RawClient(broker.port) as slow:
            moving = Stalled(slow, broker.directory, topic="slow", share=0.1)
            began = time.monotonic()
            while time.monotonic() - began < 7:
                slow.send(moving.request[moving.at : moving.at + 1000])
                moving.at += 1000
                time.sleep(0.1)
            assert answer(moving.finish()) == (NO_ERROR, 1)
        assert client.is_closed()
        assert stalled.file.stat().st_size == stalled.before
        with RawClient(broker.port) as again:
            assert values(again) == [b"first"]


def test_a_stop_during_a_large_request_is_clean(tmp_path: Path, process: Serving) -> None:
    with RawClient(process.port) as client, RawClient(process.port) as reader:
        created(client, "t", "u")
        produced(reader, "u", value())
        Stalled(client, tmp_path / "data")
        reader.send(frame(fetch_request("u", 0), FETCH) * 50)  # And a large response that no client reads.
        assert process.stop() == 0
    check_restarted(process, was_clean=True)


def test_a_kill_during_a_large_request_leaves_no_partial_batch(tmp_path: Path, process: Serving) -> None:
    with RawClient(process.port) as client:
        created(client, "t")
        Stalled(client, tmp_path / "data")
        process.kill()
    check_restarted(process, was_clean=False)


def check_restarted(process: Serving, *, was_clean: bool) -> None:
    process.start()
    assert bool(re.search(r"t-0: truncated \d+ bytes of an incomplete batch", process.errors())) != was_clean
    with RawClient(process.port) as client:
        assert values(client) == [b"first"]
        for number in range(1, 4):
            assert produced(client, "t", value(seed=number)) == number
        assert values(client)[1:] == [value(seed=number) for number in range(1, 4)]


# ---------------------------------------------------------------- who wants to see each request


def test_injected_faults_apply_to_large_requests(ways: Ways) -> None:
    with Broker(CONFIGS) as broker, RawClient(broker.port) as client:
        broker.create_topic("t")
        produced(client, "t", b"first")
        fault = broker.faults.answer("Produce", error="NOT_LEADER_OR_FOLLOWER", topic="t")
        assert produce(client, "t", value()) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert fault.count == 1
        assert ways.counts["begun"] == 0
        assert produced(client, "t", value()) == 1
        assert ways.counts["done"] == 1, "no fault is due, and nobody looks"
        broker.faults.drop("Produce", after=True)
        with pytest.raises(Closed):
            produce(client, "t", value(seed=2))
        with RawClient(broker.port) as again:
            assert values(again) == [b"first", value(), value(seed=2)]
    assert ways.counts["begun"] == 1
