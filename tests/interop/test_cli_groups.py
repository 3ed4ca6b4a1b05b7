"""`odradek group` and `odradek consume --group` with real brokers, and with librdkafka's consumers in the groups."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from client_peers import BROKERS, STARTERS
from confluent_kafka import Consumer
from kafka_peer import REAL_KAFKA, run_tool

from odradek.app.main import main
from support.terminals import own
from support.waiting import SECONDS_MAX, until

ODRADEK = [sys.executable, "-m", "odradek"]
KAFKAS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class Terminal:
    """A runner of commands on one broker."""

    def __init__(self, address: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self.errors = ""
        self._capfd = capfd

    def run(self, *arguments: str, status: int = 0) -> str:
        """Return standard output, or the sentence on standard error if a status other than 0 is expected."""
        returned = main([*arguments, "--bootstrap-server", self.address])
        captured = self._capfd.readouterr()
        self.errors = own(captured.err)
        assert returned == status, captured.err
        if status:
            assert self.errors.count("\n") == 1, self.errors
        return self.errors if status else captured.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [*ODRADEK, *arguments, "--bootstrap-server", self.address]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(params=BROKERS)
def terminal(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(STARTERS[request.param](), capfd)


@pytest.fixture
def names() -> tuple[str, str]:
    """Return the names of an unused topic and an unused group."""
    unique = uuid4().hex[:12]
    return f"cli-{unique}", f"group-{unique}"


@pytest.fixture
def topic(terminal: Terminal, names: tuple[str, str]) -> str:
    """Create three partitions of ten records each, with values `partition-number`."""
    name, _ = names
    terminal.run("topic", "create", name, "--partitions", "3")
    for partition in range(3):
        write(terminal, name, partition, range(10))
    return name


@pytest.fixture
def group(names: tuple[str, str]) -> str:
    return names[1]


def write(terminal: Terminal, topic: str, partition: int, numbers: range) -> None:
    lines = "".join(f"{partition}-{number}\n" for number in numbers)
    command = [*ODRADEK, "produce", topic, "-p", str(partition), "-b", terminal.address]
    subprocess.run(command, input=lines.encode(), check=True, timeout=SECONDS_MAX)


def everything() -> set[str]:
    return {f"{partition}-{number}" for partition in range(3) for number in range(10)}


def described(terminal: Terminal, group: str) -> Any:
    (found,) = terminal.json("group", "describe", group)
    return found


def committed(terminal: Terminal, group: str) -> dict[int, int | None]:
    return {each["partition"]: each["committed"] for each in described(terminal, group)["offsets"]}


def lags(terminal: Terminal, group: str) -> dict[int, int | None]:
    return {each["partition"]: each["lag"] for each in described(terminal, group)["offsets"]}


@contextmanager
def librdkafka(
    terminal: Terminal, group: str, topic: str, settings: Mapping[str, str] = {}, *, commits: bool = True
) -> Iterator[None]:
    """Run a consumer that reads and commits all, and is in the group until the end of the block.

    Only one thread uses it: confluent-kafka can block if two threads use a consumer at a time.
    """
    configuration = {
        "bootstrap.servers": terminal.address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        **settings,
    }
    is_over, has_assignment = threading.Event(), threading.Event()

    def consume() -> None:
        consumer = Consumer(configuration)
        consumer.subscribe([topic])
        while not is_over.is_set():
            message = consumer.poll(0.1)
            if commits and message is not None and not message.error():
                consumer.commit(message=message)
            if consumer.assignment():
                has_assignment.set()
        consumer.close()

    consuming = threading.Thread(target=consume)
    consuming.start()
    try:
        until(has_assignment.is_set)
        yield
    finally:
        is_over.set()
        consuming.join()


def test_a_group_resumes_at_its_committed_offsets(terminal: Terminal, topic: str, group: str) -> None:
    first = terminal.run("consume", topic, "--group", group, "-n", "7").splitlines()
    assert len(first) == 7
    assert sum(offset or 0 for offset in committed(terminal, group).values()) == 7, "what was printed, and no more"
    rest = terminal.run("consume", topic, "--group", group).splitlines()
    assert set(first) | set(rest) == everything()
    assert len(first) + len(rest) == 30
    assert terminal.run("consume", topic, "--group", group) == ""
    write(terminal, topic, 1, range(10, 12))
    assert terminal.run("consume", topic, "-g", group) == "1-10\n1-11\n"
    assert lags(terminal, group) == {0: 0, 1: 0, 2: 0}


@pytest.mark.share(4)
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_unprinted_records_are_not_committed(terminal: Terminal, topic: str, group: str, most: int) -> None:
    """That holds for any place of the last printed record in a response of several batches."""
    for number in range(10, 13):
        write(terminal, topic, 0, range(number, number + 1))
    printed: list[str] = []
    while lines := terminal.run("consume", topic, "-g", group, "-n", str(most)).splitlines():
        assert len(lines) <= most
        printed += lines
    assert sorted(printed) == sorted(everything() | {"0-10", "0-11", "0-12"})


def test_the_from_option_sets_the_start_of_a_new_group(terminal: Terminal, topic: str, group: str) -> None:
    assert terminal.run("consume", topic, "-g", group, "--from", "end") == ""
    assert committed(terminal, group) == {0: 10, 1: 10, 2: 10}
    write(terminal, topic, 2, range(10, 11))
    assert terminal.run("consume", topic, "-g", group, "--from", "beginning") == "2-10\n", "it is not new any more"
    assert set(terminal.run("consume", topic, "-g", f"{group}-b", "--from", "-1").split()) == {"0-9", "1-9", "2-10"}
    assert "offset 99 is out of range for" in terminal.run(
        "consume", topic, "-g", f"{group}-c", "--from", "99", status=1
    )
    assert "does not exist" in terminal.run("consume", f"{topic}-nix", "-g", f"{group}-d", status=1)


def test_groups_are_listed_and_deleted(terminal: Terminal, topic: str, group: str) -> None:
    terminal.run("consume", topic, "-g", group)
    (listed,) = [each for each in terminal.json("group", "list") if each["group"] == group]
    assert (listed["type"], listed["protocol"], listed["state"]) == ("classic", "consumer", "Empty")
    assert group in terminal.run("group", "list", "--state", "empty", "--type", "classic").split()
    assert group not in terminal.run("group", "list", "--state", "stable").split()
    assert group not in terminal.run("group", "list", "--type", "consumer").split()
    assert group not in terminal.run("group", "list", "--protocol", "connect").split()
    assert group in terminal.run("group", "describe").split(), "all of them"
    assert terminal.run("group", "delete-offsets", group, "--topic", f"{topic}:0,2").splitlines() == [
        f"deleted the offset of {topic}-0",
        f"deleted the offset of {topic}-2",
    ]
    assert committed(terminal, group) == {1: 10}
    assert terminal.run("group", "delete", group) == f"deleted {group}\n"
    missing = f"odradek: group {group}: the group does not exist (GROUP_ID_NOT_FOUND)\n"
    assert terminal.run("group", "delete", group, status=1) == missing
    assert terminal.run("group", "describe", group, status=1) == missing
    assert terminal.run("group", "delete", group, "--if-exists") == f"{group} does not exist\n"


def reset(terminal: Terminal, group: str, *arguments: str) -> dict[int, int]:
    return {each["partition"]: each["new"] for each in terminal.json("group", "reset-offsets", group, *arguments)}


def test_offsets_are_reset(terminal: Terminal, topic: str, group: str) -> None:
    terminal.run("consume", topic, "-g", group)
    assert reset(terminal, group, "--all-topics", "--to-earliest") == {0: 0, 1: 0, 2: 0}
    assert terminal.errors == "odradek: no offsets changed: run again with --execute to set them\n"
    assert committed(terminal, group) == {0: 10, 1: 10, 2: 10}
    assert reset(terminal, group, "--topic", f"{topic}:0,1", "--shift-by", "-4", "--execute") == {0: 6, 1: 6}
    assert terminal.errors == f"odradek: reset the offsets of 2 partitions of group {group}\n"
    assert committed(terminal, group) == {0: 6, 1: 6, 2: 10}
    assert set(terminal.run("consume", topic, "-g", group).split()) == {
        f"{p}-{n}" for p in (0, 1) for n in range(6, 10)
    }
    assert reset(terminal, group, "--topic", topic, "--to-offset", "99") == {0: 10, 1: 10, 2: 10}
    assert f"odradek: new offset 99 is higher than the latest offset of {topic}-1: using 10\n" in terminal.errors
    assert reset(terminal, group, "--topic", topic, "--to-current") == {0: 10, 1: 10, 2: 10}
    assert reset(terminal, group, "--topic", f"{topic}:2", "--by-duration", "1d") == {2: 0}
    assert reset(terminal, group, "--topic", f"{topic}:2", "--to-datetime", "2199-01-01T00:00Z") == {2: 10}
    assert "has no record at or after this time" in terminal.errors
    assert reset(terminal, f"{group}-new", "--topic", f"{topic}:1", "--to-latest", "--execute") == {1: 10}
    assert lags(terminal, f"{group}-new") == {1: 0}
    table = terminal.run("group", "reset-offsets", group, "--topic", f"{topic}:1", "--to-offset", "3").splitlines()
    assert table[0].split() == ["group", "topic", "partition", "committed", "new"]
    assert table[2].split() == [group, topic, "1", "10", "3"]


def test_refused_offset_resets_name_the_reason(terminal: Terminal, topic: str, group: str) -> None:
    words = ("group", "reset-offsets", group)
    assert "has no committed offsets: name topics" in terminal.run(*words, "--all-topics", "--to-latest", status=1)
    assert "has no committed offset for it" in terminal.run(*words, "--topic", topic, "--shift-by", "1", status=1)
    refused = terminal.run(*words, "--topic", f"{topic}:3", "--to-latest", status=1)
    assert f"partition 3 does not exist: topic {topic} has 3" in refused
    assert "does not exist" in terminal.run(*words, "--topic", f"{topic}-nix", "--to-latest", status=1)


def test_reset_plans_are_exported_and_imported(terminal: Terminal, topic: str, group: str, tmp_path: Path) -> None:
    other = f"{group}-2"
    for each in (group, other):
        terminal.run("consume", topic, "-g", each)
    plan = tmp_path / "plan.csv"
    plan.write_text(
        terminal.run("group", "reset-offsets", group, "--topic", f"{topic}:0,1", "--to-offset", "4", "--export")
    )
    assert plan.read_text() == f"{topic},0,4\n{topic},1,4\n"
    assert reset(terminal, group, "--from-file", str(plan), "--execute") == {0: 4, 1: 4}
    assert committed(terminal, group) == {0: 4, 1: 4, 2: 10}
    several = ("group", "reset-offsets", group, other, "--topic", f"{topic}:2", "--to-offset", "5", "--export")
    plan.write_text(terminal.run(*several))
    assert plan.read_text() == f"{group},{topic},2,5\n{other},{topic},2,5\n"
    terminal.run("group", "reset-offsets", group, other, "--from-file", str(plan), "--execute")
    assert (committed(terminal, group)[2], committed(terminal, other)[2]) == (5, 5)
    plan.write_text(f"{topic}-nix,0,4\n")
    assert "does not exist" in terminal.run("group", "reset-offsets", group, "--from-file", str(plan), status=1)


@pytest.mark.java
@pytest.mark.skipif(REAL_KAFKA[1].args[0], reason="needs Kafka's tool")
def test_reset_plans_are_compatible_with_kafkas_tool(
    terminal: Terminal, topic: str, group: str, tmp_path: Path
) -> None:
    terminal.run("consume", topic, "-g", group)
    plan = tmp_path / "plan.csv"
    plan.write_text(terminal.run("group", "reset-offsets", group, "--topic", topic, "--to-offset", "3", "--export"))
    common = ("--bootstrap-server", terminal.address, "--group", group, "--reset-offsets")
    run_tool(tmp_path, KAFKAS_TOOL, *common, "--from-file", str(plan), "--execute")
    assert committed(terminal, group) == {0: 3, 1: 3, 2: 3}
    output = run_tool(tmp_path, KAFKAS_TOOL, *common, "--topic", topic, "--to-offset", "7", "--export", "--dry-run")
    plan.write_text("".join(line + "\n" for line in output.splitlines() if line.startswith(topic)))
    assert reset(terminal, group, "--from-file", str(plan), "--execute") == {0: 7, 1: 7, 2: 7}
    shown = run_tool(tmp_path, KAFKAS_TOOL, "--bootstrap-server", terminal.address, "--group", group, "--describe")
    assert sorted(line.split()[2:6] for line in shown.splitlines() if line.startswith(group)) == [
        [str(partition), "7", "10", "3"] for partition in range(3)
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_described_and_protected(
    terminal: Terminal, topic: str, group: str, protocol: str
) -> None:
    kind = {"group.protocol": "consumer"} if protocol == "consumer" else {"group.instance.id": "their-instance"}
    with librdkafka(terminal, group, topic, {"client.id": "their-client", **kind}):
        until(lambda: lags(terminal, group) == {0: 0, 1: 0, 2: 0})
        found = described(terminal, group)
        (member,) = found["members"]
        assert (found["type"], member["client"], member["host"]) == (protocol, "their-client", "127.0.0.1")
        assert member["assignment"] == {topic: [0, 1, 2]}
        assert member["topics"] == [topic]
        assert {each["member"] for each in found["offsets"]} == {member["member"]}
        if protocol == "consumer":
            assert found["assignor"] == "uniform"
            assert found["epoch"] == found["assignment_epoch"] == member["epoch"]
            assert member["target"] == member["assignment"]
        else:
            assert (found["assignor"], member["instance"]) == ("range", "their-instance")
        text = terminal.run("group", "describe", group)
        assert f"{group}  Stable  {protocol}, {found['assignor']}  1 member" in text
        assert f"{topic}:0,1,2" in text
        assert group in terminal.run("group", "list", "-s", "stable", "-t", protocol).split()
        refused = terminal.run("group", "reset-offsets", group, "--topic", topic, "--to-latest", status=1)
        assert "has 1 member (state Stable): stop its consumers first" in refused
        assert "stop its consumers first (NON_EMPTY_GROUP)" in terminal.run("group", "delete", group, status=1)
        assert "members of the group subscribe" in terminal.run(
            "group", "delete-offsets", group, "--topic", topic, status=1
        )


def test_rebalance_reasons_are_shown(names: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka writes them to its log at most."""
    terminal = Terminal(STARTERS["odradek"](), capfd)
    topic, group = names
    terminal.run("topic", "create", topic)
    terminal.run("consume", topic, "-g", group)
    assert "the consumer is being closed" in described(terminal, group)["rebalances"][-1]["reason"]
    assert "last rebalance 20" in terminal.run("group", "describe", group)


class Reader:
    """A process that follows a topic; its lines arrive in `lines`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Stop the process; return its exit status and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        errors = self.process.stderr.read().decode()
        status = self.process.wait(SECONDS_MAX)
        self._thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status, errors


@pytest.mark.share(2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"])
def test_two_members_share_a_topic_until_one_leaves(
    terminal: Terminal, topic: str, group: str, number: signal.Signals, status: int
) -> None:
    readers = [Reader(terminal.start("consume", topic, "-g", group, "--follow")) for _ in range(2)]
    try:
        until(lambda: sorted(map(shares, members(terminal, group))) == [1, 2])
        write(terminal, topic, 0, range(10, 20))
        write(terminal, topic, 2, range(10, 20))
        expected = everything() | {f"{partition}-{n}" for partition in (0, 2) for n in range(10, 20)}
        until(lambda: {line for reader in readers for line in reader.lines} >= expected)
        assert readers[1].end(number) == (status, "")
        until(lambda: list(map(shares, members(terminal, group))) == [3])
        for partition in range(3):
            write(terminal, topic, partition, range(20, 25))
        until(lambda: lags(terminal, group) == {0: 0, 1: 0, 2: 0})
        assert readers[0].end(number) == (status, "")
    finally:
        for reader in readers:
            reader.process.kill()
    assert members(terminal, group) == []
    lines = [line for reader in readers for line in reader.lines]
    assert sorted(lines) == sorted(set(lines)), "nobody was thrown out, so nothing came twice"
    assert set(lines) == expected | {f"{partition}-{n}" for partition in range(3) for n in range(20, 25)}


def members(terminal: Terminal, group: str) -> list[Any]:
    """Return the members of the group, or none if the group does not exist yet."""
    if not any(each["group"] == group for each in terminal.json("group", "list")):
        return []
    found: list[Any] = described(terminal, group)["members"]
    return found


def shares(member: Any) -> int:
    return sum(map(len, member["assignment"].values()))


def test_a_blocked_output_pipe_does_not_block_the_group(terminal: Terminal, topic: str, group: str) -> None:
    """Other members continue, and the blocked one stays a member."""
    write(terminal, topic, 0, range(10, 60_000))
    waiting = terminal.start("consume", topic, "-g", group, "--follow")
    try:
        until(lambda: sum(map(shares, members(terminal, group))) == 3)
        (before,) = members(terminal, group)
        with librdkafka(terminal, group, topic, commits=False):
            until(lambda: sorted(map(shares, members(terminal, group))) == [1, 2])
            assert before["member"] in {each["member"] for each in members(terminal, group)}
        until(lambda: list(map(shares, members(terminal, group))) == [3])
        reader = Reader(waiting)
        until(lambda: len(reader.lines) >= 60_020)
        until(lambda: lags(terminal, group) == {0: 0, 1: 0, 2: 0})
        assert reader.end() == (130, "")
    finally:
        waiting.kill()
    assert set(reader.lines) == everything() | {f"0-{number}" for number in range(10, 60_000)}


def test_a_classic_member_joins_a_group_of_the_consumer_protocol(terminal: Terminal, topic: str, group: str) -> None:
    """The command uses the classic protocol; KIP-848 allows both in one group."""
    with librdkafka(terminal, group, topic, {"group.protocol": "consumer"}):
        reader = Reader(terminal.start("consume", topic, "-g", group, "--follow"))
        try:
            until(lambda: sorted(map(shares, members(terminal, group))) == [1, 2])
            for partition in range(3):
                write(terminal, topic, partition, range(10, 13))
            until(lambda: lags(terminal, group) == {0: 0, 1: 0, 2: 0})
            assert reader.end() == (130, "")
        finally:
            reader.process.kill()
        until(lambda: list(map(shares, members(terminal, group))) == [3])
    assert reader.lines


def test_a_reader_commits_its_records_when_its_pipe_closes(terminal: Terminal, topic: str, group: str) -> None:
    write(terminal, topic, 1, range(10, 60_000))
    head = terminal.start("consume", topic, "-g", group)
    assert head.stdout is not None
    head.stdout.read(10)
    head.stdout.close()
    assert head.wait(SECONDS_MAX) in (0, 141)
    assert head.stderr is not None
    assert head.stderr.read() == b""
    head.stderr.close()
    assert members(terminal, group) == [], "it has left"
    rest = terminal.run("consume", topic, "-g", group).splitlines()
    assert f"1-{59_999}" in rest


def test_a_static_member_returns_to_its_partitions(terminal: Terminal, topic: str, group: str) -> None:
    command = ("consume", topic, "-g", group, "--follow", "--group-instance-id", "static-1")
    first = Reader(terminal.start(*command))
    until(lambda: set(first.lines) == everything())
    until(lambda: lags(terminal, group) == {0: 0, 1: 0, 2: 0})
    assert first.end()[0] == 130
    (member,) = members(terminal, group)
    assert member["instance"] == "static-1", "it has not left"
    second = Reader(terminal.start(*command))
    until(lambda: [each["member"] for each in members(terminal, group)] not in ([], [member["member"]]))
    write(terminal, topic, 2, range(10, 12))
    until(lambda: second.lines == ["2-10", "2-11"])
    usurper = Reader(terminal.start(*command))
    until(lambda: second.process.poll() is not None)
    status, errors = second.end()
    assert (status, errors.count("\n")) == (1, 1)
    assert "another member with the same group.instance.id has joined (FENCED_INSTANCE_ID)" in errors
    assert usurper.end()[0] == 130


def test_formats_and_limits_work_with_a_group(terminal: Terminal, topic: str, group: str) -> None:
    lines = terminal.run("consume", topic, "-g", group, "--format", "json", "-n", "30").splitlines()
    assert {json.loads(line)["value"] for line in lines} == everything()
    assert terminal.run("consume", topic, "-g", f"{group}-raw", "--format", "raw", "-n", "1") in everything()
    started = time.monotonic()
    assert terminal.run("consume", topic, "-g", f"{group}-none", "-n", "0") == ""
    assert time.monotonic() - started < 60
