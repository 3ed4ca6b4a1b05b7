"""Several data directories: one that fails goes offline alone, at the start or later; nothing of it is recreated."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.app.main import main
from odradek.base.errors import ErrorCode
from odradek.core.coordinators.state_topics import partition_for
from odradek.testing import Broker, BrokerFailed
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from support.asking import create, created, delete, fetch, fetch_all, produce, produced
from support.faults import Faults, Operations
from support.raw_client import RawClient
from support.serving import Serving, outcome_of_serve
from support.serving_cluster import ServingCluster
from support.small_disk import failing_disk, fill, pull, small_disk
from support.waiting import SECONDS_MAX, until

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
PARTITIONS = 6
WAIT_SECONDS_MAX = 30


def serving(tmp_path: Path, *names: str) -> Serving:
    directories = [tmp_path / name for name in names or ("a", "b")]
    return Serving(
        tmp_path,
        **{
            "log.dirs": ",".join(map(str, directories)),
            "metadata.log.dir": str(tmp_path / "metadata"),
            "offsets.topic.num.partitions": "4",
            "metrics.listener": "127.0.0.1:0",
        },
    )


def filled(client: RawClient) -> dict[int, list[tuple[int, bytes]]]:
    created(client, "t", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        for number in range(3):
            produced(client, "t", b"%d" % number, partition=partition)
    return {partition: [(number, b"%d" % number) for number in range(3)] for partition in range(PARTITIONS)}


def held(directory: Path) -> set[int]:
    return {int(path.name[2:]) for path in directory.glob("t-?")}


def check_served(client: RawClient, records: dict[int, list[tuple[int, bytes]]], offline: set[int]) -> None:
    """Check that partitions in good directories are served and writable, and others return a storage error."""
    for partition, expected in records.items():
        if partition in offline:
            assert fetch(client, "t", 0, partition=partition) == (STORAGE_ERROR, [])
            assert produce(client, "t", b"x", partition=partition) == (STORAGE_ERROR, -1)
        else:
            assert fetch_all(client, "t", partition=partition) == expected
            offset = produced(client, "t", b"more", partition=partition)
            expected.append((offset, b"more"))


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def without(path: Path) -> Path:
    """Unmount the disk: its mount point is an empty directory."""
    aside = path.with_name(f"{path.name}-elsewhere")
    path.rename(aside)
    path.mkdir()
    return aside


def as_a_file(path: Path) -> Path:
    aside = path.with_name(f"{path.name}-elsewhere")
    path.rename(aside)
    path.write_text("no directory")
    return aside


def removed(path: Path) -> Path:
    aside = path.with_name(f"{path.name}-elsewhere")
    path.rename(aside)
    return aside


def give_back(path: Path, aside: Path) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    aside.rename(path)


@pytest.mark.share(3)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("breaks", [without, as_a_file, removed])
def test_an_unusable_directory_is_offline_from_the_start(
    tmp_path: Path, breaks: Callable[[Path], Path], clean: bool
) -> None:
    broker = serving(tmp_path)
    with broker, RawClient(broker.port) as client:
        records = filled(client)
        if not clean:
            broker.kill()
    bad = held(tmp_path / "b")
    assert 0 < len(bad) < PARTITIONS, "new logs go to the emptier directory"
    aside = breaks(tmp_path / "b")
    with broker, RawClient(broker.port) as client:
        check_served(client, records, bad)
        created(client, "new", partitions=3)
        assert produced(client, "new", b"x", partition=2) == 0
        assert delete(client, "new") == ErrorCode.NONE
    assert held(tmp_path / "a") == set(range(PARTITIONS)) - bad, "nothing is made anew elsewhere"
    assert f"{tmp_path}/b is offline" in broker.errors()
    assert f"{len(bad)} partitions are offline" in broker.errors()
    assert "Traceback" not in broker.errors()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    give_back(tmp_path / "b", aside)
    with broker, RawClient(broker.port) as client:
        check_served(client, records, set())


@pytest.mark.parametrize("returns", [True, False])
def test_a_topic_is_deleted_once_all_its_directories_are_back(tmp_path: Path, returns: bool) -> None:
    """As under ZooKeeper, its name is taken until then, so that no successor gets the rest of its data."""
    broker = serving(tmp_path)
    with broker, RawClient(broker.port) as client:
        filled(client)
    aside = without(tmp_path / "b")
    with broker, RawClient(broker.port) as client:
        assert delete(client, "t") == ErrorCode.NONE
        assert delete(client, "t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert create(client, "t") == [ErrorCode.TOPIC_ALREADY_EXISTS]
        wait_until(lambda: held(tmp_path / "a") == set())
    if returns:
        give_back(tmp_path / "b", aside)
    broker.start({} if returns else {"log.dirs": str(tmp_path / "a")})
    try:
        with RawClient(broker.port) as client:
            wait_until(lambda: create(client, "t") == [ErrorCode.NONE])
            assert produced(client, "t", b"x") == 0
    finally:
        broker.stop()
    assert {*held(tmp_path / "a"), *held(tmp_path / "b")} == {0}


def test_an_empty_directory_is_used_again_after_a_start_without_it(tmp_path: Path) -> None:
    broker = serving(tmp_path)
    with broker, RawClient(broker.port) as client:
        filled(client)
    without(tmp_path / "b")
    with broker:
        assert "start once without it in log.dirs" in broker.errors()
    both = ",".join(str(tmp_path / name) for name in "ab")
    broker.start({"log.dirs": str(tmp_path / "a")})
    broker.stop()
    broker.start({"log.dirs": both})
    with RawClient(broker.port) as client:
        created(client, "new", partitions=PARTITIONS + 1)
    broker.stop()
    assert (tmp_path / "b" / "meta.properties").exists()
    assert list((tmp_path / "b").glob("new-*"))


def test_a_new_directory_beside_others_is_used(tmp_path: Path) -> None:
    with serving(tmp_path, "a") as broker, RawClient(broker.port) as client:
        records = filled(client)
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        check_served(client, records, set())
        created(client, "new")
    assert (tmp_path / "b" / "new-0").is_dir()


def test_start_without_a_usable_directory_fails(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("no directory")
    arguments = [f"--override=log.dirs={tmp_path}/a,{tmp_path}/b", f"--override=metadata.log.dir={tmp_path}/metadata"]
    status, errors = outcome_of_serve(tmp_path, *arguments, "--override=listeners=PLAINTEXT://127.0.0.1:0")
    assert status == 1
    assert errors.startswith("odradek serve: All log directories (log.dirs) are offline: ")
    assert errors.count("\n") == 1 and f"{tmp_path}/a: " in errors and f"{tmp_path}/b: " in errors


def test_a_directory_of_another_broker_ends_the_start(tmp_path: Path) -> None:
    """As in Apache Kafka, that is a wrong configuration and not a failing disk."""
    with serving(tmp_path):
        pass
    meta = tmp_path / "b" / "meta.properties"
    meta.write_text(meta.read_text().replace("broker.id=", "broker.id=1"))
    arguments = [f"--override=log.dirs={tmp_path}/a,{tmp_path}/b", f"--override=metadata.log.dir={tmp_path}/metadata"]
    status, errors = outcome_of_serve(tmp_path, *arguments, "--override=listeners=PLAINTEXT://127.0.0.1:0")
    assert status == 1 and "meta.properties has broker.id=" in errors


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def failing(tmp_path: Path, faults: Faults) -> Iterator[Serving]:
    broker = serving(tmp_path)
    broker.environment = faults.environment
    broker.start()
    yield broker
    broker.stop()
    assert "Traceback" not in broker.errors()


@pytest.mark.parametrize("operations", [Operations.SYNCS, Operations.WRITES, Operations.ALL])
def test_a_directory_that_fails_later_goes_offline(
    tmp_path: Path, failing: Serving, faults: Faults, operations: Operations, capfd: pytest.CaptureFixture[str]
) -> None:
    """One write finds the failure; other partitions of the directory go offline before anybody writes to them."""
    message = f"log directory {tmp_path}/b is offline until the next start, with "
    with RawClient(failing.port) as client:
        records = filled(client)
        bad = held(tmp_path / "b")
        faults.fail(operations, "/b/")
        assert produce(client, "t", b"x", partition=min(bad)) == (STORAGE_ERROR, -1)
        wait_until(lambda: message in failing.errors())
        faults.repair()
        capfd.readouterr()
        assert main(["doctor", failing.address, "--json"]) == 1
        found = json.loads(capfd.readouterr().out)["findings"]
        (finding,) = (one for one in found if ", with all of its partitions: " in one["says"])
        assert finding["check"] == "log dirs" and finding["says"].endswith(f"{tmp_path}/b")
        assert main(["cluster", "status", "-b", failing.address, "--json"]) == 4  # Partitions are offline.
        (status,) = json.loads(capfd.readouterr().out)["brokers"]
        assert status["offline_log_dirs"] == [f"{tmp_path}/b"]
        (metrics,) = re.findall(r"exporting metrics at (http:\S+)", failing.errors())
        counted = urlopen(metrics).read().decode()
        assert "kafka_log_log_manager_offline_log_directory_count 1.0" in counted
        check_served(client, records, bad)
        assert create(client, "new") == [ErrorCode.NONE]
        assert (tmp_path / "a" / "new-0").is_dir()
    assert failing.stop() == 0
    assert failing.errors().count(message) == 1
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists(), "the next start has to check its logs"
    failing.start()
    with RawClient(failing.port) as client:
        for partition, expected in records.items():  # Refused records may be there.
            assert fetch_all(client, "t", partition=partition)[: len(expected)] == expected


@pytest.mark.parametrize("names", ["a", "ab"])
def test_failure_of_the_last_directory_ends_the_process(tmp_path: Path, faults: Faults, names: str) -> None:
    """One line names all directories with their reasons, the process ends, and acknowledged records are there later."""
    broker = serving(tmp_path, *names)
    broker.environment = faults.environment
    with broker:
        with RawClient(broker.port) as client:
            records = filled(client)
            for name in names:
                assert not broker.has_ended
                lose(broker, client, faults, tmp_path / name)
        wait_until(lambda: broker.has_ended)
        assert broker.stop() == 1
        (message,) = (line for line in broker.errors().splitlines() if " CRITICAL " in line)
        assert "All log directories (log.dirs) are offline: " in message and message.endswith(
            " Shutting down the broker."
        )
        assert all(f"{tmp_path}/{name}: [Errno 5] " in message for name in names)
        assert "Traceback" not in broker.errors()
        faults.repair()
        broker.start()
        with RawClient(broker.port) as client:
            for partition, expected in records.items():
                assert fetch_all(client, "t", partition=partition)[: len(expected)] == expected


def lose(broker: Serving, client: RawClient, faults: Faults, directory: Path) -> None:
    faults.fail(Operations.WRITES | Operations.SYNCS, f"/{directory.name}/")
    assert produce(client, "t", b"x", partition=min(held(directory))) == (STORAGE_ERROR, -1)
    wait_until(lambda: f"log directory {directory} is offline" in broker.errors())


def test_failure_of_the_last_directory_stops_a_testing_broker(tmp_path: Path) -> None:
    """The process is the user's and continues; the broker stops with the reason."""
    with failing_disk(tmp_path / "disk", 8) as disk:
        broker = Broker(directory=disk / "data").start()
        broker.create_topic("t")
        with RawClient(broker.port) as client:
            produced(client, "t", b"x")
            pull(disk)
            assert produce(client, "t", b"x") == (STORAGE_ERROR, -1)
        wait_until(lambda: has_failed(broker))
        with pytest.raises(BrokerFailed, match="All log directories"):
            broker.close()


def has_failed(broker: Broker) -> bool:
    try:
        broker.check()
    except BrokerFailed:
        return True
    return False


def test_a_failing_checkpoint_takes_its_directory_offline(tmp_path: Path, failing: Serving, faults: Faults) -> None:
    with RawClient(failing.port) as client:
        records = filled(client)
        bad = held(tmp_path / "b")
        faults.fail(Operations.SYNCS, "/b/recovery-point")  # Only this fails: the directory works.
        wait_until(lambda: faults.failures > 0)
        check_served(client, records, set())
        faults.fail(Operations.SYNCS | Operations.WRITES, "/b/")
        produced(client, "t", b"y", partition=min(set(records) - bad))
        wait_until(lambda: f"log directory {tmp_path}/b is offline" in failing.errors())
        records[min(set(records) - bad)].append((4, b"y"))
        check_served(client, records, bad)


def test_groups_of_an_offline_directory_have_no_coordinator(tmp_path: Path, failing: Serving, faults: Faults) -> None:
    def find() -> ErrorCode:
        answer = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        return ErrorCode(answer.coordinators[0].error_code)

    def beat(group: str) -> ErrorCode:
        request = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        return ErrorCode(client.request(request, 4, HeartbeatResponse).error_code)

    groups = [f"group-{number}" for number in range(20)]
    with RawClient(failing.port) as client:
        filled(client)
        wait_until(lambda: find() == ErrorCode.NONE)
        assert {beat(group) for group in groups} == {ErrorCode.UNKNOWN_MEMBER_ID}
        offline = {int(path.name.rpartition("-")[2]) for path in (tmp_path / "b").glob("__consumer_offsets-*")}
        assert 0 < len(offline) < 4
        faults.fail(Operations.WRITES, "/b/")
        produce(client, "t", b"x", partition=min(held(tmp_path / "b")))
        wait_until(lambda: f"log directory {tmp_path}/b is offline" in failing.errors())
        for group in groups:
            is_offline = partition_for(group, 4) in offline
            assert beat(group) == (ErrorCode.NOT_COORDINATOR if is_offline else ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_failing_device_takes_its_directory_offline(tmp_path: Path) -> None:
    """Every call ends with EIO, as when a disk is pulled. A full device is no failure."""
    with failing_disk(tmp_path / "b", 8) as disk, serving(tmp_path) as broker, RawClient(broker.port) as client:
        records = filled(client)
        bad = held(disk)
        fill(disk / "filler")
        error = ErrorCode.NONE
        while error == ErrorCode.NONE:
            error, _ = produce(client, "t", bytes(60_000), partition=min(bad))
        assert error == STORAGE_ERROR
        (disk / "filler").unlink()
        assert produce(client, "t", b"more", partition=min(bad))[0] == ErrorCode.NONE
        assert "is offline" not in broker.errors()
        del records[min(bad)]
        pull(disk)
        assert produce(client, "t", b"x", partition=min(bad)) == (STORAGE_ERROR, -1)
        wait_until(lambda: f"log directory {disk} is offline" in broker.errors())
        check_served(client, records, bad)
        assert broker.stop() == 0
        with broker, RawClient(broker.port) as again:
            check_served(again, records, bad)


def test_a_cluster_member_leads_again_after_its_disk_was_full(tmp_path: Path) -> None:
    """The controller learns without a restart that partitions which lacked room at first are available now."""
    with small_disk(tmp_path / "data" / "broker2", 4) as disk, ServingCluster(tmp_path, 2) as cluster:
        fill(disk / "filler")
        client = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        client.create_topics([NewTopic("t", 4, 1)])["t"].result(SECONDS_MAX)

        def leaders() -> set[int]:
            return {one.leader for one in client.list_topics("t", timeout=SECONDS_MAX).topics["t"].partitions.values()}

        until(lambda: leaders() == {1, -1})
        (disk / "filler").unlink()
        until(lambda: leaders() == {1, 2})
        producer = Producer({"bootstrap.servers": cluster.address, "log_level": 0})
        failed: list[object] = []
        for partition in range(4):
            producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        assert failed == [None] * 4
        assert "Traceback" not in cluster.errors()


def test_a_read_only_file_system_takes_its_directory_offline(tmp_path: Path) -> None:
    """Linux remounts a file system read-only if its disk returns errors."""
    with small_disk(tmp_path / "b", 4) as disk:
        broker = serving(tmp_path)
        with broker, RawClient(broker.port) as client:
            records = filled(client)
        bad = held(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with broker, RawClient(broker.port) as client:
            check_served(client, records, bad)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with broker, RawClient(broker.port) as client:
            check_served(client, records, set())
