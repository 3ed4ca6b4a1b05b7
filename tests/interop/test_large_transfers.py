"""Resources of large transfers: memory, disks, and consumers that do not read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import ErrorCode
from support.asking import (
    FETCH,
    created,
    delete,
    fetch,
    fetch_request,
    produce,
    produced,
)
from support.faults import Faults, Operations
from support.large_requests import (
    CONFIGS,
    WITH_COMPANY,
    LocalBroker,
    Stalled,
    Ways,
    answer,
    can_store,
    fetched,
    large,
    local_broker,
    log_file,
    value,
    values,
)
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving, serving
from support.small_disk import fill, small_disk
from support.waiting import until

pytestmark = [
    pytest.mark.skipif(not can_store(), reason="there is no mover here, or none that stores"),
    pytest.mark.disk,
]

NO_ERROR = ErrorCode.NONE
SMALL_BUDGET = {"queued_max_request_bytes": "3100000", "socket_request_max_bytes": "3100000"}


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


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_connection_in_a_mover_does_not_block_the_memory_queue(tmp_path: Path, ways: Ways, is_idle: bool) -> None:
    """A request as large as the whole budget is received once no other such request is in flight."""
    with local_broker(tmp_path / "here", **SMALL_BUDGET) as broker, ExitStack() as clients:
        first, second = (clients.enter_context(RawClient(broker.port)) for _ in range(2))
        created(first, "t", "u")
        stalled = Stalled(first, broker.directory)
        if is_idle:
            stalled.finish()
        assert produce(second, "u", value(3_000_000)) == (NO_ERROR, 0)
        if not is_idle:
            assert answer(stalled.finish()) == (NO_ERROR, 1)
        assert produced(first, "t", value(seed=3)) == 2
        assert ways.begun == ways.done == 2


def test_a_connection_in_a_mover_does_not_wait_for_memory(tmp_path: Path, ways: Ways) -> None:
    """Another request has taken the whole budget, and does not end."""
    with local_broker(tmp_path / "here", **SMALL_BUDGET) as broker, ExitStack() as clients:
        first, second = (clients.enter_context(RawClient(broker.port)) for _ in range(2))
        created(first, "t", "u")
        produced(first, "t", b"first")
        sent = large("u", 3_000_000)
        second.send(sent[:2_500_000])
        until(lambda: broker.on_loop(held_bytes) > 1 << 20)
        for number in range(1, 6):
            assert produced(first, "t", value(seed=number)) == number
        assert ways.done == 5
        second.send(sent[2_500_000:])
        assert answer(second.read_frame()) == (NO_ERROR, 0), "nobody waited, so nobody was too slow"


def held_bytes(running: Any) -> int:
    return sum(connection._wire._share.held for listener in running.listeners for connection in listener._connections)


# ---------------------------------------------------------------- disks


@pytest.mark.parametrize("is_full_at_once", [False, True])
def test_a_large_request_fails_on_a_full_disk(tmp_path: Path, is_full_at_once: bool) -> None:
    """The response has the error, requests sent since are answered, and later there is space again."""
    with (
        small_disk(tmp_path / "disk", 32) as disk,
        serving(tmp_path / "broker", log_dirs=str(disk / "data"), message_max_bytes="20000000") as broker,
        RawClient(broker.port) as client,
    ):
        until((disk / "data" / "metadata.sqlite.reserve").exists)  # The broker reserves space a second after the start.
        created(client, "t")
        produced(client, "t", b"first")
        hog, file = disk / "hog", log_file(disk / "data")
        size = file.stat().st_size
        fill(hog)
        if not is_full_at_once:
            os.truncate(hog, hog.stat().st_size - (2 << 20))
        for _ in range(3):
            client.send(large(size=8_000_000) + large(size=7_000_000))
            for _ in range(2):
                assert answer(client.read_frame()) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert values(client) == [b"first"]
            assert file.stat().st_size == size
        hog.unlink()
        for number in range(1, 3):
            assert produced(client, "t", value(8_000_000, number)) == number
        assert values(client) == [b"first", value(8_000_000, 1), value(8_000_000, 2)]
        assert "Traceback" not in broker.errors()


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def failing(tmp_path: Path, faults: Faults) -> Iterator[Serving]:
    running = Serving(tmp_path, **CONFIGS)
    running.environment, running.program = faults.environment, WITH_COMPANY
    with running:
        yield running
    assert "Traceback" not in running.errors()


def test_a_disk_that_fails_during_a_large_request(tmp_path: Path, failing: Serving, faults: Faults) -> None:
    with RawClient(failing.port) as client:
        created(client, "t", "good")
        stalled = Stalled(client, tmp_path / "data")
        faults.fail(Operations.WRITES, "/t-0/")
        assert answer(stalled.finish()) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert faults.failures
        faults.repair()
        # It stays offline: the state of that disk is unknown.
        assert produce(client, "t", value()) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert fetch(client, "t", 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        produced(client, "good", b"first")
        assert produced(client, "good", value()) == 1
    failing.kill()
    failing.start()
    with RawClient(failing.port) as client:
        assert values(client) == [b"first"]
        assert values(client, "good") == [b"first", value()]
        assert produced(client, "t", value()) == 1


def test_an_unreadable_large_slice_closes_its_connection(tmp_path: Path, failing: Serving, faults: Faults) -> None:
    with RawClient(failing.port) as client, RawClient(failing.port) as reader:
        created(client, "t", "good")
        produced(client, "t", value())
        faults.fail(Operations.READS, "/t-0/")
        with pytest.raises(Closed):
            fetch(reader, "t", 0)
        assert faults.failures
        faults.repair()
        assert fetch(client, "t", 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert produced(client, "good", value()) == 0
        assert values(client, "good") == [value()]


# ---------------------------------------------------------------- large slices


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_stalled_consumer_delays_no_other(broker: LocalBroker, client: RawClient, ways: Ways, is_cold: bool) -> None:
    sent = [value(3_000_000, number) for number in range(4)]
    for one in sent:
        produced(client, "t", one)
    file = log_file(broker.directory)
    if is_cold:
        cool(file)
    with RawClient(broker.port, receive_buffer=4096) as slow:
        slow.send(frame(fetch_request("t", 0), FETCH) + frame(fetch_request("t", 2), FETCH, 2))
        until(lambda: ways.sent > 0)
        produced(client, "t", b"meanwhile")
        assert values(client) == [*sent, b"meanwhile"]
        for begin in (0, 2):
            records = fetched(slow.read_frame())
            assert [one in records for one in sent] == [number >= begin for number in range(4)]
    assert ways.sent >= 2


def test_a_consumer_stalled_for_too_long_is_closed(tmp_path: Path, ways: Ways) -> None:
    """After its idle connection was closed, its place in the mover and its file are released."""
    with local_broker(tmp_path / "here", connections_max_idle_ms="1000", log_segment_delete_delay_ms="100") as broker:
        with RawClient(broker.port) as client:
            created(client, "stalled-topic")
            produced(client, "stalled-topic", value(9_000_000))
        with RawClient(broker.port, receive_buffer=4096) as slow:
            slow.send(frame(fetch_request("stalled-topic", 0), FETCH))
            until(lambda: ways.sent > 0)
            until(lambda: not broker.on_loop(lambda running: len(running.listeners[0])))
        with RawClient(broker.port) as client:
            assert delete(client, "stalled-topic") == NO_ERROR
        until(lambda: not any("stalled-topic" in name for name in open_files()))


def open_files() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(link.readlink()))
    return found


def cool(file: Path) -> None:
    """Remove the file from the page cache if the file system supports that."""
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@pytest.mark.parametrize("is_cold", [False, True])
def test_disconnected_consumers_leave_nothing_behind(tmp_path: Path, process: Serving, is_cold: bool) -> None:
    with RawClient(process.port) as client:
        created(client, "t")
        for number in range(3):
            produced(client, "t", value(9_000_000, number))
        produced(client, "t", b"last")
        values(client)
        before = descriptors(process)
        for _ in range(5):
            if is_cold:
                cool(log_file(tmp_path / "data"))
            with RawClient(process.port, receive_buffer=4096) as leaving:
                leaving.send(frame(fetch_request("t", 0), FETCH) * 3)
                assert len(leaving.socket.recv(1000)) > 0
        until(lambda: descriptors(process) <= before)
        assert values(client) == [*(value(9_000_000, number) for number in range(3)), b"last"]


def descriptors(process: Serving) -> int:
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())
