"""Fetches of records that are not in the page cache: complete, and without making others wait for the disk."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.base.limits import SLICE_ELEMENTS
from odradek.log.files.page_cache import is_cached
from odradek.net.loop.pools import Pool
from odradek.record.record_batch import iter_batches
from odradek.testing import Broker
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.asking import FETCH, MIB, created, produced
from support.blocked_pool import SECONDS_MAX, BlockedPool
from support.raw_client import RawClient

# Segments of which each has an index of some pages, and a walk from an entry of it goes to another page.
SMALL = {"log.segment.bytes": str(MIB), "log.index.interval.bytes": "16384"}
BATCHES, VALUE_BYTES = 200, 10_000
BYTES_MAX = 100_000  # A fetch size that ends inside a segment.
READ_COMMITTED = 1
FILLED_MAX = 3

pytestmark = pytest.mark.disk


def values() -> list[bytes]:
    draw = random.Random(7)
    return [draw.randbytes(VALUE_BYTES) for _ in range(BATCHES)]


def fill(directory: Path, partitions: int = 1) -> None:
    """Write the directory of a stopped broker, so that the next one has nothing in memory."""
    with Broker(SMALL, directory=directory) as broker, RawClient(broker.port) as client:
        created(client, "t", partitions=partitions)
        for partition in range(min(partitions, FILLED_MAX)):
            for value in values():
                produced(client, "t", value, partition=partition, acks=1)


def drop(directory: Path) -> None:
    """Drop files from the page cache; skip the test if the file system keeps nothing in it, or all."""
    logs = list(directory.glob("t-*/*"))
    for path in logs:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if path.suffix == ".log" and path.stat().st_size and is_cached(file.fileno(), 0, path.stat().st_size):
                pytest.skip("the page cache keeps the files")


def fetch_of(offsets: Sequence[int], session: int = 0, epoch: int = -1, isolation: int = 0) -> FetchRequest:
    """Return a fetch of one partition per offset, without a session unless an epoch is given."""
    parts = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=BYTES_MAX)
        for partition, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * MIB,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=parts)],
        forgotten_topics_data=[],
    )


def ends(response: FetchResponse) -> dict[int, int]:
    """Return the next offset of each partition; check that its records are contiguous."""
    found = {}
    for topic in response.responses:
        for part in topic.partitions:
            assert not part.error_code
            assert isinstance(part.records, bytes | memoryview)
            batches = list(iter_batches(bytes(part.records)))
            assert batches or part.high_watermark == 0
            for one, following in pairwise(batches):
                assert one.next_offset == following.base_offset
            if batches:
                found[part.partition_index] = batches[-1].next_offset
    return found


@pytest.mark.parametrize("isolation", [0, READ_COMMITTED])
@pytest.mark.parametrize("partitions", [1, 3, SLICE_ELEMENTS + 1])
def test_only_the_fetch_of_cold_records_waits(tmp_path: Path, partitions: int, isolation: int) -> None:
    """All reading threads are blocked; a fetch that needs one waits, and all others are served."""
    fill(tmp_path, partitions)
    with Broker(SMALL, directory=tmp_path) as broker, RawClient(broker.port) as one, RawClient(broker.port) as other:
        created(other, "other")
        named = [BATCHES // 2] * min(partitions, FILLED_MAX) + [0] * (partitions - FILLED_MAX)
        drop(tmp_path)
        with ThreadPoolExecutor(1) as beside, BlockedPool(broker, Pool.READS) as held:
            pending = beside.submit(one.request, fetch_of(named, isolation=isolation), FETCH, FetchResponse)
            for number in range(20):
                assert produced(other, "other", b"served") == number
            assert not pending.done()
            held.gate.set()
            answer = pending.result(SECONDS_MAX)
        assert set(ends(answer)) == set(range(min(partitions, FILLED_MAX)))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("is_session", [False, True])
def test_cold_records_are_read_in_order(tmp_path: Path, partitions: int, is_session: bool) -> None:
    """The first fetches are parsed in full; later ones match a template."""
    fill(tmp_path, partitions)
    with Broker(SMALL, directory=tmp_path) as broker, RawClient(broker.port) as client:
        offsets, session, epoch = [0] * partitions, 0, 0 if is_session else -1
        rounds = 0
        while min(offsets) < BATCHES:
            drop(tmp_path)
            answer = client.request(fetch_of(offsets, session, epoch), FETCH, FetchResponse)
            if is_session:
                session, epoch = answer.session_id, epoch + 1
            assert answer.error_code == 0
            for partition, end in ends(answer).items():
                assert end > offsets[partition]
                offsets[partition] = end
            rounds += 1
        assert rounds > BATCHES * VALUE_BYTES // BYTES_MAX // 2


def test_a_consumer_gets_every_record(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with Broker(SMALL, directory=tmp_path) as broker:
        drop(tmp_path)
        settings = {"bootstrap.servers": broker.address, "group.id": "cold", "fetch.message.max.bytes": BYTES_MAX}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
        found: dict[int, list[bytes]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 2 * BATCHES:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None and message.error() is None
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None
            found[partition].append(value)
        consumer.close()
        assert found == {0: values(), 1: values()}


def test_a_file_truncated_during_a_cold_read_is_an_error(tmp_path: Path) -> None:
    """The file is truncated while a thread waits: the partition returns an error, and the broker continues."""
    fill(tmp_path)
    with Broker(SMALL, directory=tmp_path) as broker, RawClient(broker.port) as client, RawClient(broker.port) as other:
        drop(tmp_path)
        first = min(tmp_path.glob("t-0/*.log"))
        with ThreadPoolExecutor(1) as beside, BlockedPool(broker, Pool.READS) as held:
            pending = beside.submit(client.request, fetch_of([50]), FETCH, FetchResponse)
            other.ping()
            os.truncate(first, 0)
            held.gate.set()
            (part,) = pending.result(SECONDS_MAX).responses[0].partitions
        assert part.error_code
        created(other, "another")
        assert produced(other, "another", b"served") == 0
