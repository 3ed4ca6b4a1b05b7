"""A disk that returns errors: only its logs go offline, and acknowledged records are there later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from support.asking import ALL, LEADER, create, created, delete, fetch, fetch_all, produce, produced
from support.faults import Faults, Operations
from support.raw_client import Closed, RawClient
from support.serving import Serving

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
RECORDS = 20


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, faults: Faults) -> Iterator[Serving]:
    serving = Serving(tmp_path, **{"log.segment.bytes": "1048576"})
    serving.environment = faults.environment
    with serving as running:
        yield running
    assert "Traceback" not in serving.errors()


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        yield one


def filled(client: RawClient) -> list[tuple[int, bytes]]:
    """Write records to partition 1 of topic `bad`, to its partition 0 and to topic `good`."""
    created(client, "bad", "good", partitions=2)
    for partition in range(2):
        for number in range(RECORDS):
            produced(client, "bad", b"%d" % number, partition=partition, acks=(ALL, LEADER)[number % 2])
    produced(client, "good", b"before")
    return [(number, b"%d" % number) for number in range(RECORDS)]


def check_others(client: RawClient, records: list[tuple[int, bytes]]) -> None:
    """Check that other partitions and topics work, and that topics can be created and deleted."""
    assert fetch_all(client, "bad", partition=0) == records
    offset = produced(client, "good", b"meanwhile")
    assert fetch_all(client, "good")[-1] == (offset, b"meanwhile")
    assert create(client, "new") == [ErrorCode.NONE]
    assert produced(client, "new", b"x") == 0
    assert delete(client, "new") == ErrorCode.NONE


@pytest.mark.share(3)
@pytest.mark.parametrize("acks", [ALL, LEADER])
@pytest.mark.parametrize("operation", [Operations.WRITES, Operations.SYNCS, Operations.WRITES | Operations.SYNCS])
def test_a_failed_write_or_sync_takes_the_log_offline(
    broker: Serving, client: RawClient, faults: Faults, operation: Operations, acks: int
) -> None:
    records = filled(client)
    faults.fail(operation, "/bad-1/")
    error, offset = produce(client, "bad", b"refused", partition=1, acks=acks)
    if acks == LEADER and operation == Operations.SYNCS:
        # No request needed a sync yet: the next one finds out.
        assert (error, offset) == (ErrorCode.NONE, RECORDS)
        error, offset = produce(client, "bad", b"refused", partition=1)
    assert (error, offset) == (STORAGE_ERROR, -1)
    assert faults.failures
    faults.repair()
    # It stays offline: the state of that disk is unknown.
    assert produce(client, "bad", b"refused", partition=1, acks=acks) == (STORAGE_ERROR, -1)
    assert fetch(client, "bad", 0, partition=1) == (STORAGE_ERROR, [])
    check_others(client, records)
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        kept = fetch_all(again, "bad", partition=1)
        assert kept[:RECORDS] == records
        assert produced(again, "bad", b"after", partition=1) == len(kept)
        check_others(again, records)


def test_a_failed_read_takes_the_log_offline(broker: Serving, client: RawClient, faults: Faults) -> None:
    """The first reader's connection closes, as its response was half sent; the next reader gets an error."""
    records = filled(client)
    faults.fail(Operations.READS, "/bad-1/")
    with RawClient(broker.port) as reader, pytest.raises(Closed):
        fetch(reader, "bad", 0, partition=1)
    assert faults.failures
    assert fetch(client, "bad", 0, partition=1) == (STORAGE_ERROR, [])
    check_others(client, records)
    faults.repair()
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert fetch_all(again, "bad", partition=1) == records


def test_a_failed_open_takes_the_log_offline(broker: Serving, client: RawClient, faults: Faults) -> None:
    """The log needs a new segment, and its disk refuses to open one."""
    records = filled(client)
    faults.fail(Operations.OPENS, "/bad-1/")
    errors = [produce(client, "bad", bytes(300_000), partition=1)[0] for _ in range(6)]
    assert errors[:3] == [ErrorCode.NONE] * 3
    assert errors[4:] == [STORAGE_ERROR] * 2
    check_others(client, records)
    faults.repair()
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        kept = fetch_all(again, "bad", partition=1)
        assert kept[:RECORDS] == records
        assert [size for _, size in kept[RECORDS:]] == [bytes(300_000)] * errors.count(ErrorCode.NONE)


def test_a_log_that_fails_to_open_at_the_start_is_offline(broker: Serving, client: RawClient, faults: Faults) -> None:
    records = filled(client)
    broker.kill()
    faults.fail(Operations.READS, "/bad-1/")
    broker.start()
    with RawClient(broker.port) as again:
        assert produce(again, "bad", b"refused", partition=1) == (STORAGE_ERROR, -1)
        assert fetch(again, "bad", 0, partition=1) == (STORAGE_ERROR, [])
        check_others(again, records)
    faults.repair()
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert fetch_all(again, "bad", partition=1) == records


def test_a_broker_with_a_failed_log_stops(tmp_path: Path, faults: Faults) -> None:
    broker = Serving(tmp_path)
    broker.environment = faults.environment
    broker.start()
    with RawClient(broker.port) as client:
        records = filled(client)
        faults.fail(Operations.ALL, "/bad-1/")
        assert produce(client, "bad", b"refused", partition=1)[0] == STORAGE_ERROR
    assert broker.stop() == 0
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists(), "the next start has to check this log"
    faults.repair()
    broker.start()
    with RawClient(broker.port) as client:
        assert fetch_all(client, "bad", partition=1)[:RECORDS] == records
    broker.stop()


@pytest.mark.parametrize("operations", [Operations.SYNCS, Operations.WRITES])
def test_a_failed_metadata_disk_stops_changes_until_a_restart(
    broker: Serving, client: RawClient, faults: Faults, operations: Operations
) -> None:
    """Metadata cannot change before the next start, even if the disk recovers; records are written all along."""
    created(client, "before")
    faults.fail(operations, "metadata.sqlite")
    assert create(client, "failed") == [STORAGE_ERROR]
    assert faults.failures
    faults.repair()
    failures = faults.failures
    assert create(client, "later") == [STORAGE_ERROR]
    assert delete(client, "before") == STORAGE_ERROR
    assert faults.failures == failures
    assert produced(client, "before", b"x") == 0
    assert broker.errors().count("The disk of the metadata file") == 1
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        # It was not acknowledged, and may be there all the same.
        assert create(again, "failed")[0] in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert create(again, "later") == [ErrorCode.NONE]
        assert fetch_all(again, "before") == [(0, b"x")]
        assert delete(again, "before") == ErrorCode.NONE
