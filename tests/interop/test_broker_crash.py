"""kill -9 under load, again and again: what was acknowledged is there, in order; what was once read stays as it was."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID
from odradek.record.batch import iter_batches
from odradek.record.builder import encode_batch
from odradek.record.records import decode
from odradek.wire.client import decode_response
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving, serving

TOPIC = "t"
PIPELINE = 8
ALL, LEADER = -1, 1
MARKER = ".kafka_cleanshutdown"
PORT_SECONDS_MAX = 20


def produce_request(partition: int, numbers: range, acks: int) -> ProduceRequest:
    now = time.time_ns() // 1_000_000
    records = encode_batch([(None, str(number).encode(), (), now) for number in numbers])
    parts = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=parts)])


def create(client: RawClient, name: str = TOPIC, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    (made,) = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE


def read(client: RawClient, partition: int, offset: int, wait_ms: int = 0) -> list[tuple[int, int]]:
    """Offset and number of some records from there on."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[asked])]
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics, forgotten_topics_data=[])
    (part,) = client.ask(request, 12, FetchResponse).responses[0].partitions
    assert part.error_code == ErrorCode.NONE, f"{ErrorCode(part.error_code).name} at {offset} of {partition}"
    assert isinstance(part.records, memoryview)
    records = [record for batch in iter_batches(part.records) for record in decode(batch)]
    return [(one.offset, int(one.value or b"")) for one in records if one.offset >= offset]


def read_all(client: RawClient, partition: int) -> list[int]:
    found: list[int] = []
    while some := read(client, partition, len(found)):
        assert [offset for offset, _ in some] == list(range(len(found), len(found) + len(some)))
        found += [number for _, number in some]
    return found


class Worker(threading.Thread):
    """Works on one connection; when that breaks, on the next.  `check` raises what went wrong for good."""

    def __init__(self, broker: Serving, partition: int) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.partition = partition
        self.is_over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                try:
                    with RawClient(self.broker.port) as client:
                        self.work(client)
                except (Closed, OSError):
                    time.sleep(0.01)
        except BaseException as error:
            self._error = error

    def work(self, client: RawClient) -> None:
        raise NotImplementedError

    def check(self) -> None:
        self.is_over.set()
        self.join(PORT_SECONDS_MAX)
        if self._error is not None:
            raise self._error


class Writer(Worker):
    """Counts into one partition, with some requests on the way; what was not acknowledged is sent again."""

    def __init__(self, broker: Serving, partition: int, acks: int) -> None:
        super().__init__(broker, partition)
        self.acks = acks
        self.acknowledged = 0  # Every number below it.
        self.sent_again: set[int] = set()
        self._sent_up_to = 0

    def work(self, client: RawClient) -> None:
        sent = self.acknowledged
        self.sent_again.update(range(sent, self._sent_up_to))
        while not self.is_over.is_set():
            while sent < self.acknowledged + PIPELINE:
                client.send(frame(produce_request(self.partition, range(sent, sent + 1), self.acks), 9))
                sent += 1
                self._sent_up_to = max(self._sent_up_to, sent)
            _, answer = decode_response(ProduceResponse, 9, client.read_frame())
            (part,) = answer.responses[0].partition_responses
            assert part.error_code == ErrorCode.NONE, ErrorCode(part.error_code).name
            self.acknowledged += 1


class Reader(Worker):
    """Remembers what every offset held when it was read."""

    def __init__(self, broker: Serving, partition: int) -> None:
        super().__init__(broker, partition)
        self.seen: list[int] = []

    def work(self, client: RawClient) -> None:
        while not self.is_over.is_set():
            self.seen += [number for _, number in read(client, self.partition, len(self.seen), wait_ms=100)]


@contextmanager
def workers(*all_of_them: Worker) -> Iterator[None]:
    for worker in all_of_them:
        worker.start()
    try:
        yield
    finally:
        for worker in all_of_them:
            worker.check()


def crash(directory: Path, rounds: int, seed: int) -> None:
    random_ = random.Random(seed)
    with serving(directory) as broker:
        with RawClient(broker.port) as client:
            create(client, partitions=3)
        writers = [Writer(broker, 0, ALL), Writer(broker, 1, ALL), Writer(broker, 2, LEADER)]
        readers = [Reader(broker, partition) for partition in range(3)]
        with workers(*writers, *readers):
            for _ in range(rounds):
                before = [writer.acknowledged for writer in writers]
                time.sleep(random_.uniform(0.05, 0.4))
                broker.kill()
                broker.start()
                wait_for_progress(writers, before)
        with RawClient(broker.port) as client:
            for writer, reader in zip(writers, readers, strict=True):
                kept = read_all(client, writer.partition)
                check_kept(writer, kept)
                assert reader.seen == kept[: len(reader.seen)]
        assert "Traceback" not in broker.errors()


def wait_for_progress(writers: list[Writer], before: list[int]) -> None:
    deadline = time.monotonic() + PORT_SECONDS_MAX
    while any(writer.acknowledged <= count for writer, count in zip(writers, before, strict=True)):
        assert time.monotonic() < deadline, "no writer gets on"
        assert all(writer.is_alive() for writer in writers)
        time.sleep(0.01)


def check_kept(writer: Writer, kept: list[int]) -> None:
    """Every acknowledged number is there; only what was on its way when the broker died may be there again."""
    assert set(range(writer.acknowledged)) <= set(kept), "acknowledged and gone"
    firsts = list(dict.fromkeys(kept))
    assert firsts == sorted(firsts), "out of order"
    times: dict[int, int] = {}
    for number in kept:
        times[number] = times.get(number, 0) + 1
    assert {number for number, count in times.items() if count > 1} <= writer.sent_again


def test_ten_crashes_under_load(tmp_path: Path) -> None:
    crash(tmp_path, rounds=10, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_crashes_under_load(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, rounds=100, seed=seed)


def test_topics_survive_a_kill_in_the_middle_of_making_them(tmp_path: Path) -> None:
    """Each topic is there whole or not at all, and a deleted one does not come back."""
    with serving(tmp_path) as broker:
        for number in range(5):
            with RawClient(broker.port) as client:
                create(client, f"kept-{number}", 5)
                state = DeleteTopicState(name=f"kept-{number - 1}", topic_id=ZERO_UUID)
                client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=5000), 6, DeleteTopicsResponse)
                for more in range(20):
                    wanted = CreatableTopic(
                        name=f"half-{number}-{more}",
                        num_partitions=20,
                        replication_factor=1,
                        assignments=[],
                        configs=[],
                    )
                    client.send(frame(CreateTopicsRequest(topics=[wanted]), 7))
                time.sleep(0.02 * number)
                broker.kill()
            broker.start()
            with RawClient(broker.port) as client:
                topics = client.ask(MetadataRequest(topics=None), 12, MetadataResponse).topics
                names = {topic.name for topic in topics}
                assert f"kept-{number}" in names
                assert f"kept-{number - 1}" not in names
                for topic in topics:
                    assert len(topic.partitions) == (5 if topic.name == f"kept-{number}" else 20)
                    assert {part.error_code for part in topic.partitions} == {ErrorCode.NONE}
        assert "Traceback" not in broker.errors()


def test_a_clean_stop_leaves_its_marker_and_keeps_everything(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            create(client)
            client.ask(produce_request(0, range(100), LEADER), 9, ProduceResponse)
        assert broker.stop() == 0
        assert (tmp_path / "data" / MARKER).exists()
        broker.start()
        assert not (tmp_path / "data" / MARKER).exists()
        with RawClient(broker.port) as client:
            assert read_all(client, 0) == list(range(100))
            client.ask(produce_request(0, range(100, 101), ALL), 9, ProduceResponse)
            assert read_all(client, 0) == list(range(101))
        broker.kill()
        assert not (tmp_path / "data" / MARKER).exists()
        broker.start()


def test_ctrl_c_stops_in_a_moment_whoever_is_connected(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            create(client)
            for _ in range(20):
                value = [(None, b"x" * 1_000_000, (), 1)]
                parts = [PartitionProduceData(index=0, records=encode_batch(value))]
                topics = [TopicProduceData(name=TOPIC, partition_data=parts)]
                client.ask(ProduceRequest(acks=LEADER, timeout_ms=1000, topic_data=topics), 9, ProduceResponse)
        asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)]
        slow = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=asked)], forgotten_topics_data=[]
        )
        ends = [FetchPartition(partition=0, fetch_offset=20, partition_max_bytes=1)]
        poll = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            topics=[FetchTopic(topic=TOPIC, partitions=ends)],
            forgotten_topics_data=[],
        )
        slow_readers = [RawClient(broker.port, receive_buffer=4096) for _ in range(5)]
        for one in slow_readers:
            one.send(frame(slow, 12) * 3)
        waiting = RawClient(broker.port)
        waiting.send(frame(poll, 12))
        idle = RawClient(broker.port)
        idle.ping()
        started = time.monotonic()
        assert broker.interrupt() == 0
        assert time.monotonic() - started < 5
        _, answer = decode_response(FetchResponse, 12, waiting.read_frame())  # It is answered, with nothing.
        assert answer.responses[0].partitions[0].high_watermark == 20
        assert waiting.is_closed()
        assert idle.is_closed()
        for one in (*slow_readers, waiting, idle):
            one.close()
        assert (tmp_path / "data" / MARKER).exists()
        broker.start()
