"""`odradek topic segments` and `topic trim` with real brokers, whose files are on this machine."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from client_peers import BROKERS, STARTERS

from odradek.app.main import main
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.log_dir_description import replicas_of
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from support.asking import produce, produced
from support.raw_client import RawClient
from support.serving import Serving, serving
from support.terminals import own
from support.waiting import until

HOUR_MS = 3_600_000
VALUE = b"x" * 100_000
Run = Callable[..., tuple[str, str]]


@pytest.fixture(params=BROKERS)
def address(request: pytest.FixtureRequest) -> str:
    return STARTERS[request.param]()


@pytest.fixture
def run(address: str, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(address, capfd)


def runner(address: str, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command and return both of its streams; its exit status must be `status`."""

    def run_one(*arguments: str, status: int = 0) -> tuple[str, str]:
        at = [] if "--log-dir" in arguments else ["--bootstrap-server", address]
        returned = main([*arguments, *at])
        captured = capfd.readouterr()
        assert returned == status, captured.err
        return captured.out, own(captured.err)

    return run_one


def filled(run: Run, address: str, *configs: str, first_ms: int | None = None, step_ms: int = 60_000) -> str:
    """Create 40 records in four segments of partition 0, a minute apart, the last one now."""
    name = f"storage-{uuid4().hex[:12]}"
    given = ("segment.bytes=1048576", "message.timestamp.after.max.ms=9223372036854775807", *configs)
    run("topic", "create", name, "--partitions", "2", *(word for each in given for word in ("-c", each)))
    first = now_ms() - 39 * step_ms if first_ms is None else first_ms
    with RawClient(int(address.rpartition(":")[2])) as client:
        # Apache Kafka reports a topic before it leads its partitions.
        until(lambda: produce(client, name, VALUE, timestamp_ms=first)[0] == ErrorCode.NONE)
        for number in range(1, 40):
            produced(client, name, VALUE, timestamp_ms=first + number * step_ms)
    return name


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def segments(run: Run, topic: str, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run("topic", "segments", topic, "--json", *options)[0])
    return rows


def test_segments_show_their_age_and_deletion_time(run: Run, address: str) -> None:
    topic = filled(run, address, "retention.ms=7200000")
    rows = segments(run, topic)
    assert [(row["partition"], row["base_offset"], row["end_offset"]) for row in rows] == [
        (0, 0, 10),
        (0, 10, 20),
        (0, 20, 30),
        (0, 30, 40),
        (1, 0, 0),
    ]
    assert [row["is_active"] for row in rows] == [False, False, False, True, True]
    assert all(row["newest_timestamp"] - row["first_timestamp"] == 9 * 60_000 for row in rows[:4])
    assert all(row["until"] == row["newest_timestamp"] + 2 * HOUR_MS for row in rows[:4])
    assert all(10 * len(VALUE) < row["size"] < 11 * len(VALUE) for row in rows[:4])
    assert rows[4]["why"] == "active segment, empty"
    shown, _ = run("topic", "segments", topic, "--partition", "0")
    assert shown.count("retention.ms after its newest record") == 4
    assert shown.splitlines()[-1].startswith("4 segments, 3.")


def test_segments_name_a_record_from_the_future(run: Run, address: str) -> None:
    topic = filled(run, address, "retention.ms=-1", first_ms=now_ms() - 10 * HOUR_MS)
    with RawClient(int(address.rpartition(":")[2])) as client:
        for _ in range(2):  # Into a segment of its own, with another behind it.
            for timestamp in (now_ms(), (1 << 62), now_ms()):
                produced(client, topic, VALUE * 4, timestamp_ms=timestamp)
    held = segments(run, topic, "--partition", "0")[3:]
    assert all(row["why"].startswith(("never deleted", "active segment; never deleted")) for row in held)
    folder = folder_of(address, topic)
    rows = segments(run, topic, "--log-dir", str(folder), "-c", "retention.ms=3600000")
    whys = [row["why"] for row in rows if row["partition"] == 0]
    assert all("newest record is older than retention.ms" in why for why in whys[:3])
    (holder, *behind) = [why for why in whys if "forever" in why]
    assert "the record at 41 has a timestamp " in holder and "years in the future" in holder
    assert behind and all("forever" in why for why in behind)


def folder_of(address: str, topic: str) -> Path:
    """Return the data directory as reported by the broker."""
    name = TopicPartition(TopicName(topic), 0)
    with Cluster(ClientConfig(address)) as cluster:
        cluster.partitions([topic])
        return Path(replicas_of(cluster, cluster.leader(name), [name])[name].log_dir)


def test_trim_shows_a_plan_and_executes_it(run: Run, address: str) -> None:
    topic = filled(run, address)
    shown, remarks = run("topic", "trim", topic, "--before-offset", "25", "--json")
    assert (
        "no records deleted: run again with --execute to delete them" in remarks
        and f"latest offset of {topic}-1: using 0" in remarks
    )
    first, second = json.loads(shown)
    assert (first["start"], first["new"], first["end"], first["records"]) == (0, 25, 40, 25)
    assert 2_000_000 < first["bytes"] < 2_010_000
    assert second["records"] == second["bytes"] == 0
    _, remarks = run("topic", "trim", topic, "-p", "0", "--before-offset", "25", "--execute")
    assert remarks == "odradek: deleted 25 records\n"
    first, _ = json.loads(run("topic", "describe", topic, "--json")[0])[0]["partitions"]
    assert (first["start_offset"], first["end_offset"]) == (25, 40)
    assert "below the log start offset 25" in segments(run, topic, "-p", "0")[0]["why"]
    run("topic", "trim", topic, "-p", "0", "--before-offset", "3", "--execute")
    _, remarks = run("topic", "trim", topic, "--all", "--execute")
    assert remarks == "odradek: deleted 15 records\n"


def test_trim_deletes_records_before_a_time(run: Run, address: str) -> None:
    topic = filled(run, address, "retention.ms=-1", first_ms=1_700_000_000_000, step_ms=1_000)
    shown, _ = run("topic", "trim", topic, "--before-time", "2023-11-14T22:13:27.500Z", "--json")
    assert [row["new"] for row in json.loads(shown)] == [8, 0]
    shown, _ = run("topic", "trim", topic, "--before-time", "2024-01-01", "--execute", "--json")
    assert [row["new"] for row in json.loads(shown)] == [40, 0]


def test_refused_trims_name_the_reason(run: Run, address: str) -> None:
    topic = filled(run, address)
    compacted = f"compacted-{uuid4().hex[:8]}"
    run("topic", "create", compacted, "-c", "cleanup.policy=compact")
    for arguments, message, status in (
        ((topic,), "choose one of --before-offset, --before-time and --all", 2),
        ((topic, "--all", "--before-offset", "1"), "choose one of", 2),
        ((topic, "--before-time", "soon"), "use a time like", 2),
        ((topic, "--all", "-p", "7"), "partition 7 does not exist", 1),
        (("nowhere-at-all", "--all"), "does not exist", 1),
        ((compacted, "--all", "--execute"), "its cleanup.policy must include delete", 1),
    ):
        _, remarks = run("topic", "trim", *arguments, status=status)
        assert message in remarks and remarks.count("\n") == 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path) as running:
        yield running


def test_a_folder_of_another_broker_is_not_used(broker: Serving, capfd: pytest.CaptureFixture[str]) -> None:
    """The folder has the same name but belongs to another broker, so its contents say nothing about this one."""
    run = runner(broker.address, capfd)
    topic = filled(run, broker.address)
    properties = broker.directory / "data" / "meta.properties"
    properties.write_text(properties.read_text().replace("broker.id=", "broker.id=7"))
    shown, remarks = run("topic", "segments", topic, "-p", "0", status=1)
    assert not shown
    assert "which is on another machine or not readable: run this command there" in remarks
    shown, _ = run("topic", "trim", topic, "-p", "0", "--all", "--json")
    assert json.loads(shown)[0]["bytes"] is None
    assert segments(run, topic, "-p", "0", "--log-dir", str(properties.parent))


def test_segments_of_a_folder_are_shown_without_a_broker(
    broker: Serving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = runner(broker.address, capfd)
    topic = filled(run, broker.address)
    run("topic", "trim", topic, "-p", "0", "--before-offset", "15", "--execute")
    broker.stop()
    copied = tmp_path / "copied"
    shutil.copytree(broker.directory / "data", copied)
    first, second, *_ = segments(run, topic, "-p", "0", "--log-dir", str(copied), "-c", "retention.bytes=2000000")
    assert "below the log start offset 15" in first["why"]
    assert "the log exceeds retention.bytes" in second["why"]
    assert "has no log of nothing" in run("topic", "segments", "nothing", "--log-dir", str(copied), status=1)[1]
    wrong = run("topic", "segments", topic, "--log-dir", str(copied), "-c", "retention.ms=soon", status=2)[1]
    assert "retention.ms" in wrong
    assert "--config requires --log-dir" in run("topic", "segments", topic, "-c", "retention.ms=1", status=2)[1]
