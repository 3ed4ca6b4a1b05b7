"""The command line with real brokers; tests of pipes and signals start processes of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from client_peers import BROKERS, STARTERS

from odradek.app.main import main
from support.terminals import all_shown, own
from support.waiting import SECONDS_MAX, readable, until

ODRADEK = [sys.executable, "-m", "odradek"]
Run = Callable[..., str]


@pytest.fixture(params=BROKERS)
def address(request: pytest.FixtureRequest) -> str:
    return STARTERS[request.param]()


@pytest.fixture
def run(address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command on the broker and return its standard output; its exit status must be `status`."""

    def run_one(*arguments: str, lines: str = "", status: int = 0) -> str:
        (tmp_path / "standard input").write_text(lines)
        with (tmp_path / "standard input").open() as given:
            monkeypatch.setattr(sys, "stdin", given)
            returned = main([*arguments, "--bootstrap-server", address])
        captured = capfd.readouterr()
        errors = own(captured.err)
        assert returned == status, errors
        assert errors.count("\n") == (1 if status else 0), errors
        return errors if status else captured.out

    return run_one


@pytest.fixture
def topic(run: Run) -> str:
    name = f"cli-{uuid4().hex[:12]}"
    assert (
        run("topic", "create", name, "--partitions", "2", "-c", "retention.ms=-1") == f"created {name} (2 partitions)\n"
    )
    return name


def test_a_topic_is_created_described_and_deleted(run: Run, topic: str) -> None:
    assert run("topic", "create", topic, "--if-not-exists") == f"{topic} already exists\n"
    assert "TOPIC_ALREADY_EXISTS" in run("topic", "create", topic, status=1)
    assert topic in run("topic", "list").split()
    run("produce", topic, "--partition", "1", lines="a\nb\n")
    (described,) = json.loads(run("topic", "describe", topic, "--json"))
    assert described["configs"] == {"retention.ms": "-1"}
    assert [(part["start_offset"], part["end_offset"]) for part in described["partitions"]] == [(0, 0), (0, 2)]
    assert "retention.ms=-1" in run("topic", "describe", topic)
    assert run("topic", "grow", topic, "--partitions", "4") == f"{topic} has 4 partitions\n"
    assert "INVALID_PARTITIONS" in run("topic", "grow", topic, "--partitions", "3", status=1)
    assert run("topic", "delete", topic) == f"deleted {topic}\n"
    assert run("topic", "delete", topic, "--if-exists") == f"{topic} does not exist\n"
    assert "odradek topic list" in run("topic", "delete", topic, status=1)


def test_mistakes_get_one_sentence(run: Run, topic: str, tmp_path: Path) -> None:
    assert "no.such" in run("topic", "create", "cli-x", "-c", "no.such=1", status=1)
    assert "; did you mean retention.ms?" in run("topic", "create", "cli-x", "-c", "retention.sm=1", status=1)
    assert "; did you mean retention.ms?" in run("topic", "create", "cli-x", "-c", "log.retention.ms=1", status=1)
    assert "does not exist" in run("consume", "cli-no-such", status=1)
    assert "partition 7 does not exist" in run("consume", topic, "-p", "7", status=1)
    assert "partition 7 does not exist" in run("produce", topic, "-p", "7", lines="x", status=1)
    assert "offset 5 is out of range for" in run("consume", topic, "--from", "5", status=1)
    assert "invalid --from 'soon'" in run("consume", topic, "--from", "soon", status=2)
    assert "no such file" in run("produce", topic, "--file", str(tmp_path / "nix"), status=1)
    assert f"{tmp_path} is a directory" in run("produce", topic, "--file", str(tmp_path), status=1)
    assert "line 2 is not valid JSON" in run("produce", topic, "--json", lines='{"value":"x"}\n{\n', status=1)
    assert run("consume", topic) == "x\n", "what came before the mistake is written"


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "reset-offsets", "g", "--to-latest", "--topic"],
        ["group", "delete-offsets", "g", "--topic"],
        ["txn", "describe-producers", "--partition", "0", "--topic"],
        ["txn", "abort", "--partition", "0", "--start-offset", "0", "--topic"],
        ["txn", "find-hanging", "--topic"],
    ],
)
def test_an_invalid_topic_name_is_explained(run: Run, arguments: list[str]) -> None:
    assert "has characters other than ASCII letters" in run(*arguments, "a/b", status=2)


def test_windows_line_ends_are_removed(run: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(b"a\r\nb\r\n")
    run("produce", topic, "--partition", "0", "--file", str(tmp_path / "values"))
    assert run("consume", topic) == "a\nb\n"


def test_lines_are_produced_and_consumed(run: Run, topic: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(5_000))
    run("produce", topic, "--partition", "0", "--codec", "zstd", lines=lines)
    assert run("consume", topic) == lines
    assert run("consume", topic, "-n", "2") == "line 0\nline 1\n"
    assert run("consume", topic, "--from", "-1") == "line 4999\n"
    assert run("consume", topic, "--partition", "0", "--from", "4998", "-n", "1") == "line 4998\n"
    assert run("consume", topic, "--from", "end") == ""
    assert run("consume", topic, "--from", "2001-01-01") == lines
    assert run("consume", topic, "--from", "2199-01-01T00:00Z") == ""
    assert run("consume", topic, "-n", "0") == ""
    assert run("consume", topic, "-n", "2", "--format", "raw") == "line 0line 1"


def test_a_file_is_produced_whole(run: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(b"a\n\nb\xff\nlast")
    run("produce", topic, "-p", "0", "--file", str(tmp_path / "values"))
    found = [json.loads(line) for line in run("consume", topic, "--format", "json").splitlines()]
    assert [each.get("value", each.get("value_base64")) for each in found] == ["a", "", "Yv8=", "last"]


def test_keys_headers_and_nulls_are_produced_and_consumed(run: Run, topic: str) -> None:
    run("produce", topic, "-k", ":", "--headers", "--null", "NULL", lines="h:1,g:2\tada:1815\n\tbob:NULL\n")
    found = {each["key"]: each for each in map(json.loads, run("consume", topic, "--format", "json").splitlines())}
    assert (found["ada"]["value"], found["ada"]["headers"]) == ("1815", {"h": "1", "g": "2"})
    assert found["bob"]["value"] is None
    assert sorted(run("consume", topic, "--format", "key-value", "-k", "=").splitlines()) == ["ada=1815", "bob=null"]


def test_json_lines_are_copied_between_topics(run: Run, topic: str) -> None:
    copy = f"{topic}-copy"
    run("topic", "create", copy, "--partitions", "2")
    given = [
        {"key": "k", "value": "v", "timestamp": 1000, "partition": 0, "headers": {"a": "x", "b": None}},
        {"key_base64": "/w==", "value": None, "timestamp": 2000, "partition": 1},
        {
            "key": None,
            "value_base64": "gA==",
            "timestamp": 3000,
            "partition": 1,
            "headers_base64": [["h", "gA=="], ["h", None]],
        },
    ]
    run("produce", topic, "--json", lines="\n".join(map(json.dumps, given)))
    first = run("consume", topic, "--format", "json")
    run("produce", copy, "--json", lines=first)
    second = run("consume", copy, "--format", "json")
    assert sorted(second.replace(f"{topic}-copy", topic).splitlines()) == sorted(first.splitlines())
    assert len(second.splitlines()) == 3
    run("topic", "create", f"{topic}-one", "--partitions", "1")
    refusal = run("produce", f"{topic}-one", "--json", lines=json.dumps(given[1]), status=1)
    assert "line 1 names partition 1, but topic" in refusal
    run("produce", f"{topic}-one", "--json", "--by-key", lines=first)
    assert len(run("consume", f"{topic}-one").splitlines()) == 3


def test_a_slow_pipe_is_written_at_once_and_followed(address: str, run: Run, topic: str) -> None:
    produce = subprocess.Popen([*ODRADEK, "produce", topic, "-b", address], stdin=subprocess.PIPE)
    consume = subprocess.Popen([*ODRADEK, "consume", topic, "--follow", "-b", address], stdout=subprocess.PIPE)
    assert produce.stdin is not None
    assert consume.stdout is not None
    try:
        for number in range(3):
            produce.stdin.write(b"%d\n" % number)
            produce.stdin.flush()
            assert readable(consume.stdout, seconds=SECONDS_MAX)
            assert consume.stdout.readline() == b"%d\n" % number
        produce.stdin.close()
        assert produce.wait(SECONDS_MAX) == 0
        consume.send_signal(signal.SIGINT)
        assert consume.wait(SECONDS_MAX) == 130
    finally:
        produce.kill()
        consume.kill()
        consume.stdout.close()


def test_ctrl_c_and_a_closed_pipe_are_quiet(address: str, run: Run, topic: str) -> None:
    run("produce", topic, lines="x\n" * 50_000)
    head = subprocess.Popen([*ODRADEK, "consume", topic, "-b", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert head.stdout is not None
    assert head.stderr is not None
    head.stdout.read(10)
    head.stdout.close()
    assert head.stderr.read() == b""
    head.stderr.close()
    assert head.wait(SECONDS_MAX) in (0, 141)
    follow = subprocess.Popen([*ODRADEK, "consume", topic, "-f", "-o", "end", "-b", address], stderr=subprocess.PIPE)
    until(lambda: has_connected(follow.pid))
    follow.send_signal(signal.SIGINT)
    _, errors = follow.communicate(timeout=SECONDS_MAX)
    assert (follow.returncode, errors.strip()) == (130, b"")


def has_connected(pid: int) -> bool:
    try:
        return any(str(one.readlink()).startswith("socket:") for one in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:  # A descriptor was closed before.
        return False


def test_progress_is_shown_on_a_terminal(address: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "values").write_text("x\n" * 2_000)
    terminal, end = pty.openpty()
    command = [*ODRADEK, "produce", topic, "--file", str(tmp_path / "values"), "-b", address]
    process = subprocess.Popen(command, stderr=end, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"})
    os.close(end)
    shown = all_shown(terminal)
    assert process.wait(SECONDS_MAX) == 0
    assert b"2,000 records" in shown
    assert b"3.9 KiB" in shown
