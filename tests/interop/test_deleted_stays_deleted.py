"""kill -9 during DeleteRecords and retention: records reported as deleted do not come back."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from support.asking import CREATE_TOPICS, LEADER, fetch, produced
from support.raw_client import RawClient, frame
from support.serving import Serving, serving
from support.workers import Worker, workers

TRIMMED, RETAINED = "trimmed", "retained"
PARTITIONS = 6
EARLIEST = -2
VALUE = b"x" * 20_000
SECONDS_MAX = 60


class Witness(Worker):
    """A client that keeps requesting log starts and records; every reported log start must hold."""

    def __init__(self, broker: Serving, topic: str) -> None:
        super().__init__(broker, 0, topic)
        self.starts = [0] * PARTITIONS
        self.rounds = 0

    def work(self, client: RawClient) -> None:
        while not self.is_over.is_set():
            for partition, start in enumerate(starts(client, self.topic)):
                self.on_start(partition, start)
            for partition in range(PARTITIONS):
                error, _ = fetch(client, self.topic, max(self.starts[partition] - 1, 0), partition=partition)
                if self.starts[partition]:
                    assert error == ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic}-{partition}: {error.name}"
            self.rounds += 1

    def on_start(self, partition: int, start: int) -> None:
        before = self.starts[partition]
        assert start >= before, f"{self.topic}-{partition} began at {before}, and now at {start}"
        self.starts[partition] = start


class Trimmer(Witness):
    """A client that writes and deletes its records, at times in one partition and at times in all."""

    def __init__(self, broker: Serving, seed: int) -> None:
        super().__init__(broker, TRIMMED)
        self.random = random.Random(seed)

    def work(self, client: RawClient) -> None:
        while not self.is_over.is_set():
            for partition in range(PARTITIONS):
                produced(client, TRIMMED, b"a", b"b", b"c", partition=partition, acks=LEADER)
            some = self.random.sample(range(PARTITIONS), self.random.choice([1, 2, PARTITIONS]))
            client.send(frame(delete_request(TRIMMED, some), 2))
            _, answer = decode_response(DeleteRecordsResponse, 2, client.read_frame())
            for part in answer.topics[0].partitions:
                assert part.error_code == ErrorCode.NONE, ErrorCode(part.error_code).name
                self.on_start(part.partition_index, part.low_watermark)
            self.rounds += 1


class Filler(Worker):
    """A writer of records that retention by size deletes again."""

    def work(self, client: RawClient) -> None:
        while not self.is_over.is_set():
            for partition in range(PARTITIONS):
                produced(client, RETAINED, VALUE, partition=partition, acks=LEADER)
            time.sleep(0.01)


def delete_request(topic: str, partitions: list[int], offset: int = -1) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=index, offset=offset) for index in partitions]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=5_000)


def starts(client: RawClient, topic: str) -> list[int]:
    parts = [ListOffsetsPartition(partition_index=index, timestamp=EARLIEST) for index in range(PARTITIONS)]
    topics = [ListOffsetsTopic(name=topic, partitions=parts)]
    answer = client.request(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse)
    return [part.offset for part in answer.topics[0].partitions]


def make(broker: Serving) -> None:
    small = {"segment.bytes": "1048576", "retention.bytes": "1048576", "file.delete.delay.ms": "100"}
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=PARTITIONS,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in ((TRIMMED, {}), (RETAINED, small))
    ]
    with RawClient(broker.port) as client:
        client.send(frame(CreateTopicsRequest(topics=topics), CREATE_TOPICS))
        client.read_frame()


def crash(directory: Path, rounds: int, seed: int) -> None:
    random_ = random.Random(seed)
    settings = {"log.retention.check.interval.ms": "20", "log.initial.task.delay.ms": "0"}
    with serving(directory, **{key.replace(".", "_"): value for key, value in settings.items()}) as broker:
        make(broker)
        witnesses = [Trimmer(broker, seed), Trimmer(broker, seed + 1), Witness(broker, TRIMMED)]
        witnesses += [Witness(broker, RETAINED)]
        with workers(*witnesses, Filler(broker, 0)):
            for number in range(rounds):
                starts_seen = [0] * PARTITIONS
                if number % 3:
                    time.sleep(random_.uniform(0.0, 0.4))
                else:
                    starts_seen = starts_after_deletion(broker)
                broker.kill()
                broker.start()
                with RawClient(broker.port) as client:
                    assert all(
                        start >= before for start, before in zip(starts(client, RETAINED), starts_seen, strict=True)
                    )
                wait_for_answers(witnesses)
            deadline = time.monotonic() + SECONDS_MAX
            while not all(all(one.starts) for one in witnesses):
                assert time.monotonic() < deadline, "nothing was deleted"
                time.sleep(0.05)
        assert "Traceback" not in broker.errors()


def starts_after_deletion(broker: Serving) -> list[int]:
    """Wait until retention deletes something, and return the log starts at once."""
    deadline = time.monotonic() + SECONDS_MAX
    with RawClient(broker.port) as client:
        before = now = starts(client, RETAINED)
        while now == before:
            assert time.monotonic() < deadline, "retention deletes nothing"
            now = starts(client, RETAINED)
    return now


def wait_for_answers(witnesses: list[Witness]) -> None:
    before = [one.rounds for one in witnesses]
    deadline = time.monotonic() + SECONDS_MAX
    while any(one.rounds <= count for one, count in zip(witnesses, before, strict=True)):
        assert time.monotonic() < deadline, "no answers"
        assert all(one.is_alive() for one in witnesses)
        time.sleep(0.01)


@pytest.mark.nightly
def test_twelve_crashes_during_deletion_restore_no_record(tmp_path: Path) -> None:
    crash(tmp_path, rounds=12, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 15))
def test_a_hundred_crashes_during_deletion_restore_no_record(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, rounds=100, seed=seed)
