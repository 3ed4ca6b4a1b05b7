"""File descriptors run out: new connections are rejected or wait, old ones live, and no log goes offline for it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from support.asking import ALL, LEADER, create, created, delete, fetch, fetch_all, produce, produced
from support.raw_client import Closed, RawClient
from support.serving import Serving, serving
from support.waiting import until

LIMIT = 128
SECONDS_MAX = 180


def limit_to(broker: Serving, count: int) -> None:
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (count, hard))


def open_files(broker: Serving) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))  # noqa: PTH208  # Names are all that is wanted.


def test_the_file_descriptor_table_is_allocated_at_the_start(tmp_path: Path) -> None:
    """With threads, the kernel takes some 10 ms to grow the table, each time in the middle of an accept."""
    with serving(tmp_path) as running:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{running.pid}/status").read_text().splitlines())
        limit, _ = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
        assert int(status["FDSize"]) >= min(limit, 16_384)


def is_idle(broker: Serving) -> bool:
    before = broker.cpu_seconds()
    time.sleep(0.3)
    return broker.cpu_seconds() - before < 0.03


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path) as running:
        until(lambda: is_idle(running))  # Then it has loaded all of its code.
        limit_to(running, LIMIT)
        yield running
        assert "Traceback" not in running.errors()


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        one.ping()
        yield one


def is_served(client: RawClient) -> bool:
    try:
        client.ping()
    except Closed:
        return False
    return True


def accepted(broker: Serving) -> RawClient:
    """Connect, with retries as in clients: the broker may not have closed former connections yet."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        one = RawClient(broker.port)
        if is_served(one):
            return one
        one.close()
        assert time.monotonic() < deadline


def crowded(broker: Serving, *, syncs: bool = False) -> tuple[list[RawClient], int]:
    """Open connections until no more are served; return the served ones, and the number of refused ones.

    The served ones come first, unless the broker syncs logs in the meantime: these then leave their files to later
    ones.
    """
    served: list[RawClient] = []
    refused = 0
    for _ in range(2 * LIMIT):
        one = RawClient(broker.port)
        if is_served(one):
            assert syncs or not refused, "first come, first served"
            served.append(one)
        else:
            refused += 1
            one.close()
    return served, refused


def test_new_connections_are_rejected_and_old_ones_live(broker: Serving, client: RawClient) -> None:
    created(client, "t")
    served, refused = crowded(broker)
    assert LIMIT // 2 < len(served) < LIMIT
    assert refused > LIMIT
    # The logs have what they need: those in use, and new ones.
    for one in served:
        produced(one, "t", b"x")
    created(client, "new", partitions=5)
    for partition in range(5):
        assert produced(client, "new", b"x", partition=partition) == 0
    assert delete(client, "new") == ErrorCode.NONE
    assert broker.is_idle_for(2)
    for one in served:
        one.close()
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with RawClient(broker.port) as again:
            if is_served(again):
                break
        assert time.monotonic() < deadline
    assert len(fetch_all(client, "t")) == len(served)


def test_broker_without_descriptors_serves_its_connections(broker: Serving, client: RawClient) -> None:
    """The broker serves its connections, takes no log offline, and works again when descriptors are free."""
    created(client, "t", partitions=2)
    produced(client, "t", b"before")
    limit_to(broker, open_files(broker))
    # A log whose file is open takes records; one whose file would have to be opened says that it can't.
    assert produced(client, "t", b"meanwhile") == 1
    assert produce(client, "t", b"refused", partition=1)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    waiting = [RawClient(broker.port) for _ in range(10)]
    before = broker.cpu_seconds()
    for _ in range(20):
        client.ping()
        time.sleep(0.1)
    assert broker.cpu_seconds() - before < 1, "half of the time"
    limit_to(broker, 2 * LIMIT)
    for one in waiting:
        one.close()
    assert produced(client, "t", b"after", partition=1) == 0
    assert fetch_all(client, "t") == [(0, b"before"), (1, b"meanwhile")]
    with RawClient(broker.port) as again:
        assert produced(again, "t", b"after") == 2


def test_a_topic_created_without_descriptors_works_later(broker: Serving, client: RawClient) -> None:
    """The creation may succeed or fail; a created topic can be used once there are descriptors."""
    created(client, "t")
    limit_to(broker, open_files(broker))
    (error,) = create(client, "new", partitions=3)
    limit_to(broker, 2 * LIMIT)
    if error:
        created(client, "new", partitions=3)
    for value in (b"x", b"y"):
        for partition in range(3):
            until(lambda value=value, partition=partition: is_written(client, value, partition))
    for partition in range(3):
        # Records refused for a lost leadership may be in the log all the same.
        assert {value for _, value in fetch_all(client, "new", partition=partition)} == {b"x", b"y"}


def is_written(client: RawClient, value: bytes, partition: int) -> bool:
    """Write a record; return False while the partition has no leader, which may change twice after its opening."""
    error, _ = produce(client, "new", value, partition=partition)
    assert error in {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    return error == ErrorCode.NONE


def test_descriptors_that_run_out_right_after_the_start(tmp_path: Path) -> None:
    """Code that is not loaded by then is loaded when descriptors are free again."""
    with serving(tmp_path) as broker:
        limit_to(broker, open_files(broker))
        until(lambda: is_idle(broker))
        limit_to(broker, LIMIT)
        until(lambda: is_idle(broker))
        with RawClient(broker.port) as client:
            created(client, "t")
            assert produced(client, "t", b"x") == 0
            assert fetch_all(client, "t") == [(0, b"x")]
        assert "Traceback" not in broker.errors()


SMALL = 64  # With 20 that the broker needs for itself.


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path, replica_high_watermark_checkpoint_interval_ms="200") as running:
        until(lambda: is_idle(running))
        limit_to(running, SMALL)
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.errors()
        assert "housekeeping failed" not in running.errors() and "unclean shutdown" not in running.errors()


def topics(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def is_in_checkpoint(broker: Serving, names: list[str]) -> bool:
    checkpoint = broker.directory / "data" / "replication-offset-checkpoint"
    text = checkpoint.read_text() if checkpoint.exists() else ""
    return {f"{name} 0" for name in names} <= {line.rpartition(" ")[0] for line in text.splitlines()}


def test_written_logs_leave_descriptors_for_connections(small: Serving) -> None:
    """There are more logs than descriptors, and a crowd of connections that come and go."""
    names = topics(60)
    with RawClient(small.port) as client:
        created(client, *names)
        for name in names:
            assert produced(client, name, b"x") == 0
        served, refused = crowded(small, syncs=True)
        assert refused and len(served) >= 8, "idle logs let go for them"
        for one in served:
            one.close()
        with accepted(small) as new:
            for name in names:
                assert produced(new, name, b"y") == 1
        until(lambda: is_in_checkpoint(small, names))
        assert [fetch_all(client, name) for name in names] == [[(0, b"x"), (1, b"y")]] * len(names)


@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_logs_three_times_as_many_as_descriptors_can_be_written(small: Serving, acks: int) -> None:
    """Rounds of writes, with retries of refused ones: a log with unsynced data keeps its file open until the sync."""
    names = topics(200)
    with RawClient(small.port) as client:
        created(client, *names)
        for number in range(3):
            for name in names:
                deadline = time.monotonic() + SECONDS_MAX
                while (answer := produce(client, name, b"%d" % number, acks=acks)) != (ErrorCode.NONE, number):
                    assert answer[0] == ErrorCode.KAFKA_STORAGE_ERROR and acks == LEADER
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
        for name in names:
            deadline = time.monotonic() + SECONDS_MAX
            while (found := fetch(client, name, 0)) != (ErrorCode.NONE, [(0, b"0"), (1, b"1"), (2, b"2")]):
                assert found[0] == ErrorCode.KAFKA_STORAGE_ERROR and acks == LEADER
                assert time.monotonic() < deadline
                time.sleep(0.01)
        until(lambda: is_in_checkpoint(small, names))
        assert "offline" not in small.errors()
        accepted(small).close()
