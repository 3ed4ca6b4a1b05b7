"""A full disk: Produce fails with an error, acknowledged records stay, and free space makes it work again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from support.asking import ALL, LEADER, create, created, delete, fetch, fetch_all, produce, produced
from support.raw_client import RawClient
from support.serving import Serving, serving
from support.small_disk import fill, free_bytes, small_disk
from support.waiting import until

DISK_MIB = 24
KIB = 1 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_MIB) as path:
        yield path


@pytest.fixture
def broker(tmp_path: Path, disk: Path) -> Iterator[Serving]:
    overrides = {"log_dirs": str(disk / "data"), "log_segment_delete_delay_ms": "100", "log_segment_bytes": "1048576"}
    with serving(tmp_path / "broker", **overrides) as running:
        until((disk / "data" / "metadata.sqlite.reserve").exists)  # The broker reserves space a second after the start.
        yield running
        assert "Traceback" not in running.errors()


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        yield one


class Filled:
    """Acknowledged values from before the disk was full, by offset."""

    def __init__(self, client: RawClient, topic: str, acks: int) -> None:
        self.kept: dict[int, bytes] = {}
        for number in range(1000):
            value = b"%d " % number * 8 * KIB
            error, offset = produce(client, topic, value, acks=acks)
            if error:
                break
            self.kept[offset] = value
        self.error = error


@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_produce_fails_and_works_again_when_there_is_room(
    broker: Serving, client: RawClient, disk: Path, acks: int
) -> None:
    created(client, "t", "other")
    produced(client, "other", b"before")
    hog = disk / "hog"
    hog.write_bytes(bytes(4 << 20))
    filled = Filled(client, "t", acks)
    assert filled.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(filled.kept) > 50
    # Until then all records can be read, none can be written, and no client is disconnected.
    for _ in range(3):
        assert dict(fetch_all(client, "t")) == filled.kept
        assert fetch_all(client, "other") == [(0, b"before")]
        assert produce(client, "t", bytes(100 * KIB), acks=acks)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    hog.unlink()
    value = b"after" * 20 * KIB
    filled.kept[produced(client, "t", value, acks=acks)] = value
    assert sorted(filled.kept) == list(range(len(filled.kept))), "an offset was used for what was refused"
    assert dict(fetch_all(client, "t")) == filled.kept
    produced(client, "other", b"after")
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert dict(fetch_all(again, "t")) == filled.kept
        assert fetch_all(again, "other") == [(0, b"before"), (1, b"after")]


def test_a_topic_can_be_deleted_on_a_full_disk(broker: Serving, client: RawClient, disk: Path) -> None:
    """Deletion needs space in the metadata too, and that is reserved."""
    created(client, "t", "large")
    produced(client, "t", b"before")
    Filled(client, "large", ALL)
    fill(disk / "rest")
    assert not free_bytes(disk)
    assert delete(client, "large") == ErrorCode.NONE
    until(lambda: free_bytes(disk) > 10 << 20)
    produced(client, "t", bytes(100 * KIB))
    assert create(client, "large") == [ErrorCode.NONE]
    assert produced(client, "large", b"anew") == 0


def test_many_topics_can_be_deleted_on_a_full_disk(broker: Serving, client: RawClient, disk: Path) -> None:
    """The reserved space lasts for more than one deletion."""
    names = [f"topic-{number}" for number in range(100)]
    for name in names:
        created(client, name, partitions=3)
    fill(disk / "rest")
    for name in names:
        assert delete(client, name) == ErrorCode.NONE, name
        fill(disk / "rest")


def test_topic_creation_fails_on_a_full_disk_and_works_later(broker: Serving, client: RawClient, disk: Path) -> None:
    created(client, "t")
    fill(disk / "rest")
    errors = [create(client, f"new-{number}", partitions=50)[0] for number in range(20)]
    assert errors[-1] != ErrorCode.NONE
    assert fetch(client, "t", 0) == (ErrorCode.NONE, [])
    (disk / "rest").unlink()
    # Topics created then work now, and so do new ones.
    for number, error in enumerate(errors):
        if error:
            created(client, f"new-{number}", partitions=50)
        assert produced(client, f"new-{number}", b"x", partition=7) == 0
        assert produced(client, f"new-{number}", b"x", partition=49) == 0


def test_a_broker_started_on_a_full_disk_serves_its_records(
    tmp_path: Path, broker: Serving, client: RawClient, disk: Path
) -> None:
    created(client, "t", "large")
    produced(client, "t", b"before")
    filled = Filled(client, "large", ALL)
    fill(disk / "rest")
    broker.kill()
    broker.start()
    with RawClient(broker.port) as again:
        assert dict(fetch_all(again, "large")) == filled.kept
        assert fetch_all(again, "t") == [(0, b"before")]
        assert delete(again, "large") == ErrorCode.NONE
        until(lambda: free_bytes(disk) > 10 << 20)
        assert produced(again, "t", b"after") == 1


def test_a_start_on_a_full_disk_is_logged(broker: Serving, client: RawClient, disk: Path) -> None:
    """A start with space logs nothing; a full disk is served, and takes records again once there is space."""
    created(client, "t")
    produced(client, "t", b"before")
    assert "full" not in broker.errors()
    broker.kill()
    fill(disk / "rest")
    os.truncate(disk / "rest", (disk / "rest").stat().st_size - 600 * KIB)
    broker.start()
    assert f"the disk of {disk / 'data'} is almost full (" in broker.errors()
    assert f"MiB of {DISK_MIB}.0 MiB free): writes that do not fit are rejected" in broker.errors()
    with RawClient(broker.port) as again:
        assert fetch_all(again, "t") == [(0, b"before")]
        (disk / "rest").unlink()
        until(lambda: produce(again, "t", b"after")[0] == ErrorCode.NONE)
