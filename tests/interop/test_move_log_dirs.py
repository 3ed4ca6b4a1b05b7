"""AlterReplicaLogDirs requests: partitions change their data directory while clients write and read."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from kafka_peer import jars, missing

from odradek.base.errors import ErrorCode
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from support.asking import created, delete, fetch_all, produced
from support.raw_client import RawClient
from support.serving import Serving

PROGRAM = Path(__file__).parent / "java" / "MoveLogs.java"
PARTITIONS = 4
WAIT_SECONDS_MAX = 30


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    directories = [tmp_path / name for name in "abc"]
    overrides = {
        "log.dirs": ",".join(map(str, directories)),
        "metadata.log.dir": str(tmp_path / "metadata"),
        "log.segment.bytes": "1048576",
    }
    with Serving(tmp_path, **overrides) as serving:
        yield serving
    assert "Traceback" not in serving.errors()


def alter(client: RawClient, path: Path | str, *partitions: int, topic: str = "t", version: int = 2) -> list[ErrorCode]:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)])
    answer = client.request(request, version, AlterReplicaLogDirsResponse)
    return [ErrorCode(one.error_code) for one in answer.results[0].partitions]


def where(tmp_path: Path, partition: int, topic: str = "t") -> str:
    (found,) = tmp_path.glob(f"[abc]/{topic}-{partition}")
    return found.parent.name


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def node_of(tmp_path: Path) -> int:
    lines = (tmp_path / "a" / "meta.properties").read_text().splitlines()
    return next(int(line.partition("=")[2]) for line in lines if line.startswith("broker.id="))


@pytest.mark.parametrize("version", [1, 2])
def test_moved_partitions_stay_after_a_restart(tmp_path: Path, broker: Serving, version: int) -> None:
    with RawClient(broker.port) as client:
        created(client, "t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            for number in range(20):
                produced(client, "t", bytes(100_000) + b"%d" % number, partition=partition)
        records = {partition: fetch_all(client, "t", partition=partition) for partition in range(PARTITIONS)}
        moved = alter(client, tmp_path / "c", *range(PARTITIONS), version=version)
        assert moved == [ErrorCode.NONE] * PARTITIONS
        wait_until(lambda: all((tmp_path / "c" / f"t-{one}").is_dir() for one in range(PARTITIONS)))
        wait_until(lambda: not [*tmp_path.glob("[ab]/t-?"), *tmp_path.glob("c/*-future")])
        assert all(fetch_all(client, "t", partition=one) == records[one] for one in range(PARTITIONS))
        for partition in range(PARTITIONS):
            records[partition].append((produced(client, "t", b"after", partition=partition), b"after"))
    for ends in (broker.kill, broker.stop, broker.kill):
        ends()
        broker.start()
        with RawClient(broker.port) as client:
            assert all(fetch_all(client, "t", partition=one) == records[one] for one in range(PARTITIONS))
        assert {where(tmp_path, one) for one in range(PARTITIONS)} == {"c"}


def test_invalid_moves_return_kafkas_errors(tmp_path: Path, broker: Serving) -> None:
    with RawClient(broker.port) as client:
        created(client, "t", "x" * 249)
        assert alter(client, tmp_path / "nowhere", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert alter(client, tmp_path / "a", 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert alter(client, tmp_path / "a", 0, topic="no-such") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert alter(client, tmp_path / "a", 0, topic="x" * 249) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_moves_under_load_lose_no_record(tmp_path: Path, broker: Serving) -> None:
    """Writes are acknowledged while a partition moves through all directories, and a reader follows."""
    acknowledged: list[tuple[int, bytes]] = []
    is_over = threading.Event()

    def write() -> None:
        with RawClient(broker.port) as client:
            number = 0
            while not is_over.is_set():
                value = b"%d" % number
                acknowledged.append((produced(client, "t", value), value))
                number += 1

    with RawClient(broker.port) as client:
        created(client, "t")
        produced(client, "t", *[bytes(10_000)] * 90)
        writer = threading.Thread(target=write)
        writer.start()
        for name in ("a", "b", "c", "a", "b", "c"):
            assert alter(client, tmp_path / name, 0) == [ErrorCode.NONE]
            wait_until(lambda name=name: (tmp_path / name / "t-0").is_dir())
            wait_until(lambda: len(list(tmp_path.glob("[abc]/t-0"))) == 1)
            written = len(acknowledged)
            wait_until(lambda written=written: len(acknowledged) > written)
        is_over.set()
        writer.join()
        found = fetch_all(client, "t")[90:]
    assert found == acknowledged
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        assert fetch_all(client, "t")[90:] == acknowledged


def test_a_kill_during_a_move_restarts_it(tmp_path: Path, broker: Serving) -> None:
    """The next start restarts the move; DescribeLogDirs shows a slow one, and it can be reverted."""
    broker.stop()
    broker.start({"replica.alter.log.dirs.io.max.bytes.per.second": "200000"})
    with RawClient(broker.port) as client:
        created(client, "t")
        for number in range(10):
            produced(client, "t", bytes(100_000) + b"%d" % number)
        records = fetch_all(client, "t")
        first = where(tmp_path, 0)
        target = next(name for name in "abc" if name != first)
        assert alter(client, tmp_path / target, 0) == [ErrorCode.NONE]
        wait_until(lambda: bool(list(tmp_path.glob(f"{target}/t-0.*-future"))))
    broker.kill()
    broker.start({"replica.alter.log.dirs.io.max.bytes.per.second": "100000000"})
    wait_until(lambda: (tmp_path / target / "t-0").is_dir() and where(tmp_path, 0) == target)
    with RawClient(broker.port) as client:
        assert fetch_all(client, "t") == records
    broker.stop()
    broker.start({"replica.alter.log.dirs.io.max.bytes.per.second": "1000"})
    with RawClient(broker.port) as client:
        assert alter(client, tmp_path / first, 0) == [ErrorCode.NONE]
        wait_until(lambda: bool(list(tmp_path.glob(f"{first}/t-0.*-future"))))
        assert alter(client, tmp_path / target, 0) == [ErrorCode.NONE]  # Where it is.
        wait_until(lambda: not list(tmp_path.glob("?/t-0.*-future")))
        assert where(tmp_path, 0) == target
        assert alter(client, tmp_path / first, 0) == [ErrorCode.NONE]
        wait_until(lambda: bool(list(tmp_path.glob(f"{first}/t-0.*-future"))))
        assert delete(client, "t") == ErrorCode.NONE
        wait_until(lambda: not list(tmp_path.glob("?/t-0.*-future")))


def test_kafka_python_moves_a_partition(tmp_path: Path, broker: Serving) -> None:
    with RawClient(broker.port) as client:
        created(client, "t")
        produced(client, "t", b"x")
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        target = next(name for name in "abc" if name != where(tmp_path, 0))
        admin.alter_replica_log_dirs({("t", 0, node_of(tmp_path)): str(tmp_path / target)})
        wait_until(lambda: (tmp_path / target / "t-0").is_dir() and where(tmp_path, 0) == target)
    finally:
        admin.close()


@pytest.mark.java
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_the_java_client_moves_a_partition(tmp_path: Path, broker: Serving) -> None:
    """The client sees the move in progress, with the remaining offsets."""
    broker.stop()
    broker.start({"replica.alter.log.dirs.io.max.bytes.per.second": "400000"})
    with RawClient(broker.port) as client:
        created(client, "t")
        for number in range(10):
            produced(client, "t", bytes(100_000) + b"%d" % number)
    first = where(tmp_path, 0)
    target = next(name for name in "abc" if name != first)
    arguments = [broker.address, "t", "0", str(node_of(tmp_path)), str(tmp_path / target)]
    command = ["java", "-cp", f"{jars()}/*", str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("/")]
    assert [str(tmp_path / first), str(tmp_path / target)] in [row[:2] for row in rows]
    assert any(int(row[2]) > 0 for row in rows)
    assert rows[-1][:2] == [str(tmp_path / target), "null"]
