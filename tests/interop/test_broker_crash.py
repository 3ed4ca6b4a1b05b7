"""Repeated kill -9 under load: acknowledged records are there, in order, and records once read do not change."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import encode_batch
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.asking import ALL, LEADER, PRODUCE, created, produce_request
from support.raw_client import RawClient, frame
from support.serving import serving
from support.workers import TOPIC, Reader, Writer, check_kept, read_all, wait_for_progress, workers

MARKER = ".kafka_cleanshutdown"


def numbers_request(numbers: range, acks: int) -> ProduceRequest:
    return produce_request(TOPIC, *(b"%d" % number for number in numbers), acks=acks)


def crash(directory: Path, rounds: int, seed: int) -> None:
    random_ = random.Random(seed)
    with serving(directory) as broker:
        with RawClient(broker.port) as client:
            created(client, TOPIC, partitions=3)
        writers = [Writer(broker, 0, ALL), Writer(broker, 1, ALL), Writer(broker, 2, LEADER)]
        readers = [Reader(broker, partition) for partition in range(3)]
        with workers(*writers, *readers):
            for _ in range(rounds):
                before = [writer.acknowledged for writer in writers]
                time.sleep(random_.uniform(0.0, 0.25))
                broker.kill()
                broker.start()
                wait_for_progress(writers, before)
        with RawClient(broker.port) as client:
            for writer, reader in zip(writers, readers, strict=True):
                kept = read_all(client, writer.partition)
                check_kept(writer, kept)
                assert reader.seen == kept[: len(reader.seen)]
        assert "Traceback" not in broker.errors()


def test_twenty_crashes_under_load_lose_nothing(tmp_path: Path) -> None:
    crash(tmp_path, rounds=20, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_crashes_under_load_lose_nothing(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, rounds=100, seed=seed)


def test_a_kill_during_creation_leaves_whole_topics_or_none(tmp_path: Path) -> None:
    """Each topic exists whole or not at all, and a deleted one does not come back."""
    with serving(tmp_path) as broker:
        for number in range(5):
            with RawClient(broker.port) as client:
                created(client, f"kept-{number}", partitions=5)
                state = DeleteTopicState(name=f"kept-{number - 1}", topic_id=ZERO_UUID)
                client.request(DeleteTopicsRequest(topics=[state], timeout_ms=5000), 6, DeleteTopicsResponse)
                for more in range(20):
                    creatable = CreatableTopic(
                        name=f"half-{number}-{more}",
                        num_partitions=20,
                        replication_factor=1,
                        assignments=[],
                        configs=[],
                    )
                    client.send(frame(CreateTopicsRequest(topics=[creatable]), 7))
                time.sleep(0.02 * number)
                broker.kill()
            broker.start()
            with RawClient(broker.port) as client:
                topics = client.request(MetadataRequest(topics=None), 12, MetadataResponse).topics
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
            created(client, TOPIC)
            client.request(numbers_request(range(100), LEADER), PRODUCE, ProduceResponse)
        assert broker.stop() == 0
        assert (tmp_path / "data" / MARKER).exists()
        broker.start()
        assert not (tmp_path / "data" / MARKER).exists()
        with RawClient(broker.port) as client:
            assert read_all(client, 0) == list(range(100))
            client.request(numbers_request(range(100, 101), ALL), PRODUCE, ProduceResponse)
            assert read_all(client, 0) == list(range(101))
        broker.kill()
        assert not (tmp_path / "data" / MARKER).exists()
        broker.start()


def test_ctrl_c_stops_at_once_despite_open_connections(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, TOPIC)
            for _ in range(20):
                value = [(None, b"x" * 1_000_000, (), 1)]
                parts = [PartitionProduceData(index=0, records=encode_batch(value))]
                topics = [TopicProduceData(name=TOPIC, partition_data=parts)]
                client.request(ProduceRequest(acks=LEADER, timeout_ms=1000, topic_data=topics), 9, ProduceResponse)
        partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)]
        slow = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
            forgotten_topics_data=[],
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
        assert time.monotonic() - started < 60
        _, answer = decode_response(FetchResponse, 12, waiting.read_frame())  # It is answered without records.
        assert answer.responses[0].partitions[0].high_watermark == 20
        assert waiting.is_closed()
        assert idle.is_closed()
        for one in (*slow_readers, waiting, idle):
            one.close()
        assert (tmp_path / "data" / MARKER).exists()
        broker.start()
