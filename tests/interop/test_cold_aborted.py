"""Read-committed fetches whose .txnindex files are not in the page cache: only they wait for the disk."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.log.files.log_file_names import TRANSACTION_INDEX
from odradek.log.files.page_cache import is_absent
from odradek.net.loop.pools import Pool
from odradek.record.record_batch import iter_batches
from odradek.record.records import decode
from odradek.testing import Broker
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.asking import FETCH, MIB, created, produced
from support.blocked_pool import SECONDS_MAX, BlockedPool
from support.raw_client import RawClient

SMALL = {"log.segment.bytes": str(MIB), "log.index.interval.bytes": "16384"}
TRANSACTIONS, VALUES, VALUE_BYTES = 100, 6, 10_000
BYTES_MAX = 100_000
READ_COMMITTED = 1
SEGMENTS_MIN = 5  # More than the waits that a fetch would need for its records alone.
pytestmark = pytest.mark.disk

TEST_LOOP = "odradek-testing"  # The thread of a broker's loop.


def transactional(broker: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    return producer


@pytest.fixture(scope="module")
def committed() -> list[bytes]:
    draw = random.Random(7)
    return [draw.randbytes(VALUE_BYTES) for _ in range(TRANSACTIONS // 2 * VALUES)]


@pytest.fixture
def directory(tmp_path: Path, committed: list[bytes]) -> Path:
    """Return the directory of a stopped broker, with abort markers in each segment.

    One transaction is open from the beginning to the end, so a reader needs the indexes of all segments.
    """
    left = iter(committed)
    with Broker(SMALL, directory=tmp_path) as broker, RawClient(broker.port) as client:
        created(client, "t")
        long, producer = transactional(broker, "long"), transactional(broker, "short")
        long.produce("t", b"taken back at the end", partition=0)
        long.flush(SECONDS_MAX)
        for number in range(TRANSACTIONS):
            is_aborted = number % 2
            for _ in range(VALUES):
                producer.produce("t", bytes(VALUE_BYTES) if is_aborted else next(left), partition=0)
            producer.flush(SECONDS_MAX)
            (producer.abort_transaction if is_aborted else producer.commit_transaction)(SECONDS_MAX)
            producer.begin_transaction()
        long.abort_transaction(SECONDS_MAX)
        producer.abort_transaction(SECONDS_MAX)
    assert len(list(tmp_path.glob(f"t-0/*{TRANSACTION_INDEX}"))) >= SEGMENTS_MIN
    return tmp_path


def drop(directory: Path, suffix: str) -> None:
    """Drop the files from the page cache; skip the test if the file system keeps them."""
    for path in directory.glob(f"t-0/*{suffix}"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if path.suffix == TRANSACTION_INDEX and not is_absent(file.fileno(), 0, path.stat().st_size):
                pytest.skip("the page cache keeps the files")


def fetch_of(offset: int) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=BYTES_MAX)
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * MIB,
        isolation_level=READ_COMMITTED,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[part])],
        forgotten_topics_data=[],
    )


class Reader:
    """A consumer of committed records as in KIP-98, which leaves out records of aborted transactions."""

    def __init__(self) -> None:
        self.offset = 0
        self.values: list[bytes] = []

    def take(self, answer: FetchResponse) -> list[int]:
        """Consume a response; return the first offsets of its aborted transactions."""
        (part,) = answer.responses[0].partitions
        assert not part.error_code
        assert isinstance(part.records, bytes | memoryview)
        aborted = part.aborted_transactions or []
        begun = {one.producer_id: one.first_offset for one in sorted(aborted, key=lambda one: -one.first_offset)}
        for batch in iter_batches(bytes(part.records)):
            self.offset = batch.next_offset
            first = begun.get(batch.producer_id)
            if batch.is_control:
                later = [one.first_offset for one in aborted if one.producer_id == batch.producer_id]
                begun[batch.producer_id] = min((one for one in later if one > batch.base_offset), default=1 << 60)
            elif first is None or batch.base_offset < first:
                self.values += [bytes(record.value or b"") for record in decode(batch)]
        return [one.first_offset for one in aborted]


@pytest.mark.parametrize("dropped", [TRANSACTION_INDEX, ""])
def test_only_the_fetch_that_needs_a_cold_index_waits(directory: Path, dropped: str) -> None:
    """All reading threads are blocked; the fetch that needs an index waits, and all others are served."""
    with Broker(SMALL, directory=directory) as broker, RawClient(broker.port) as one, RawClient(broker.port) as other:
        created(other, "other")
        expected, found = Reader(), Reader()
        expected_offsets = expected.take(one.request(fetch_of(0), FETCH, FetchResponse))
        assert 0 in expected_offsets, "the long transaction, which the last index tells of"
    with Broker(SMALL, directory=directory) as broker, RawClient(broker.port) as one, RawClient(broker.port) as other:
        drop(directory, dropped)
        with ThreadPoolExecutor(1) as beside, BlockedPool(broker, Pool.READS) as held:
            pending = beside.submit(one.request, fetch_of(0), FETCH, FetchResponse)
            for number in range(20):
                assert produced(other, "other", b"served") == number
            assert not pending.done()
            held.gate.set()
            assert found.take(pending.result(SECONDS_MAX)) == expected_offsets
        assert (found.offset, found.values) == (expected.offset, expected.values)


@pytest.fixture
def read_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record the names of .txnindex files that the loop's thread reads and would have waited for."""
    found: list[str] = []
    pread = os.pread

    def watched(descriptor: int, size: int, position: int) -> bytes:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if threading.current_thread().name == TEST_LOOP and path.endswith(TRANSACTION_INDEX):
            found.append(path)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", watched)
    yield found


def test_all_committed_records_are_read_with_cold_indexes(
    directory: Path, committed: list[bytes], read_on_the_loop: list[str]
) -> None:
    """The loop reads no such index itself, however many the fetch waits for."""
    reader = Reader()
    with Broker(SMALL, directory=directory) as broker, RawClient(broker.port) as client:
        while len(reader.values) < len(committed):
            before = reader.offset
            drop(directory, "")
            reader.take(client.request(fetch_of(before), FETCH, FetchResponse))
            assert reader.offset > before
        assert reader.values == committed
        assert not read_on_the_loop
