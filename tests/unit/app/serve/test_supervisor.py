"""The supervisor of several broker processes: with scripts as children, and with `odradek serve`."""

from __future__ import annotations

import array
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.app.serve import server, supervisor
from odradek.app.serve.line_queue import LINE_BYTES_MAX
from odradek.app.serve.supervisor import RESTART_PAUSES_SECONDS, STEADY_SECONDS, RestartBackoff
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.waits]

# A child: it records each of its starts, and then runs the given Python code.
CHILD = """
import os, signal, subprocess, sys
from pathlib import Path
from odradek.app.supervised import stop_at_end_of
stop_at_end_of(int(sys.argv[1]), 0.1)
noted = Path(f"starts-{sys.argv[2]}")
with noted.open("a") as file:
    file.write(f"{os.getpid()}\\n")
starts = len(noted.read_text().split())
def ready():
    os.write(1, b"ready FAKE://127.0.0.1:1\\n")
def wait():
    while True:
        signal.pause()
def ignore(*numbers):
    for number in numbers:
        signal.signal(number, lambda *_: os.write(2, b"told\\n"))
exec(sys.argv[3])
"""
FIRST = """
import json, signal, sys
from odradek.app.serve.child import Child
from odradek.app.serve.line_queue import LineQueue
from odradek.app.serve.supervisor import Supervisor, log_to
given = json.loads(sys.argv[1])
if given["is_nohup"]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
queue = LineQueue()
log_to(queue, writes_json=given["writes_json"])
children = [
    Child(f"broker {i}", [sys.executable, "child.py"], [str(i), code], writes_json=given["writes_json"])
    for i, code in enumerate(given["codes"], 1)
]
sys.exit(Supervisor(children, queue, given["pauses"], given["stop_seconds"]).run())
"""
SERVE = """
import json, sys
from odradek.app.serve import supervisor
from odradek.app.serve.local_brokers import brokers_of
def apart(*arguments, **options):
    # Until brokers can share a tree.
    return [
        one._replace(arguments=(*one.arguments, f"--override=metadata.log.dir=data/broker{one.id}"))
        for one in brokers_of(*arguments, **options)
    ]
supervisor.brokers_of = apart
given = json.loads(sys.argv[1])
sys.exit(supervisor.run(given["count"], None, given["overrides"]))
"""


class First:
    """A supervisor process in its own folder, with its output in files."""

    def __init__(self, folder: Path, program: str, given: Any, **options: Any) -> None:
        self.folder = folder
        (folder / "child.py").write_text(CHILD)
        (folder / "first.py").write_text(program)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "first.py", json.dumps(given)],
                cwd=folder,
                **{"stdout": out, "stderr": err, "start_new_session": True, **options},
            )

    def out(self) -> str:
        return (self.folder / "out").read_text()

    def err(self) -> str:
        return (self.folder / "err").read_text()

    def until_ready(self, count: int) -> None:
        until(lambda: self.out().count("ready ") >= count or self.process.poll() is not None)
        assert self.out().count("ready ") == count, self.err()

    def pids(self, number: int) -> list[int]:
        """Return the successive process ids of child `number`."""
        noted = self.folder / f"starts-{number}"
        return [int(pid) for pid in noted.read_text().split()] if noted.exists() else []

    def all_pids(self) -> list[int]:
        return [int(pid) for noted in self.folder.glob("starts-*") for pid in noted.read_text().split()]

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


Start = Callable[..., First]


@pytest.fixture
def firsts() -> Iterator[list[First]]:
    started: list[First] = []
    yield started
    for first in started:
        if first.process.poll() is None:
            first.process.kill()  # Its children end by themselves.
            first.process.wait()


@pytest.fixture
def start(tmp_path: Path, firsts: list[First]) -> Start:
    def start(
        *codes: str,
        pauses: Sequence[float] = (0, 0.01, 0.02),
        stop_seconds: float = 60,
        writes_json: bool = False,
        is_nohup: bool = False,
        **options: Any,
    ) -> First:
        given = {
            "codes": codes,
            "pauses": pauses,
            "stop_seconds": stop_seconds,
            "writes_json": writes_json,
            "is_nohup": is_nohup,
        }
        firsts.append(First(tmp_path, FIRST, given, **options))
        return firsts[-1]

    return start


@pytest.fixture
def serve(tmp_path: Path, firsts: list[First]) -> Start:
    def serve(count: int, *overrides: str, **options: Any) -> First:
        given = {"count": count, "overrides": ["log.dirs=data", *overrides]}
        firsts.append(First(tmp_path, SERVE, given, **options))
        return firsts[-1]

    return serve


def is_running(pid: int) -> bool:
    """Return True unless the process has ended; a zombie counts as ended, because nobody may be there to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def have_all_exited(pids: Sequence[int]) -> bool:
    return not any(map(is_running, pids))


def is_known(pid: int) -> bool:
    """Return True if the process exists, even as a zombie."""
    return Path(f"/proc/{pid}").exists()


SERVES = "ready(); wait()"


def test_ready_lines_are_forwarded_and_errors_name_their_broker(start: Start) -> None:
    program = 'ready(); os.write(2, b"one\\n\\xff two\\nrest"); os.close(2); wait()'
    first = start(program, program)
    first.until_ready(2)
    until(lambda: (first.folder / "err").read_bytes().count(b"rest\n") == 2)
    assert first.end() == 0
    assert first.out() == "ready FAKE://127.0.0.1:1\n" * 2
    lines = [b"broker %d: %b" % (number, text) for number in (1, 2) for text in (b"one", b"rest", b"\xff two")]
    assert sorted((first.folder / "err").read_bytes().splitlines()) == lines


def test_last_output_of_a_child_is_forwarded(start: Start) -> None:
    first = start('os.write(2, b"x" * 65_000 + b"\\nno newline"); sys.exit(1)')
    assert first.process.wait(60) == 1
    assert first.err().startswith(f"broker 1: {'x' * 65_000}\nbroker 1: no newline\n")


def test_too_long_line_is_truncated(start: Start) -> None:
    size = 20 * LINE_BYTES_MAX
    first = start(f'ready(); sys.stderr.write("x" * {size} + "\\nnext\\n"); sys.stderr.flush(); wait()')
    until(lambda: "next\n" in first.err())
    assert first.end() == 0
    assert first.err().splitlines() == [
        f"broker 1: {'x' * LINE_BYTES_MAX}... ({size - LINE_BYTES_MAX} more)",
        "broker 1: next",
    ]


def test_json_lines_are_forwarded_unchanged(start: Start) -> None:
    first = start(
        "ready(); os.write(2, b'{\"a\": 1}\\nno json\\n'); sys.exit(7) if starts == 1 else wait()", writes_json=True
    )
    first.until_ready(2)
    until(lambda: first.err().count("no json") == 2)
    assert first.end() == 0
    lines = first.err().splitlines()
    assert lines[:2] == ['{"a": 1}', "broker 1: no json"]
    assert json.loads(lines[2])["message"] == "broker 1 ended with status 7: restarting now"


def test_ended_child_is_restarted_and_leaves_no_zombie(start: Start) -> None:
    first = start(SERVES, SERVES)
    first.until_ready(2)
    (killed,) = first.pids(2)
    os.kill(killed, signal.SIGKILL)
    first.until_ready(3)
    assert not is_known(killed)
    assert (len(first.pids(1)), len(first.pids(2))) == (1, 2)
    assert sorted(first.children()) == sorted([first.pids(1)[-1], first.pids(2)[-1]])
    assert "broker 2 was killed by SIGKILL: restarting now\n" in first.err()
    assert first.end() == 0
    assert not any(map(is_known, first.all_pids()))


def test_restart_pauses_increase(start: Start) -> None:
    first = start("ready(); sys.exit(starts) if starts < 5 else wait()")
    first.until_ready(5)
    assert first.end() == 0
    assert re.findall("broker 1 .*", first.err()) == [
        "broker 1 ended with status 1: restarting now",
        "broker 1 ended with status 2: restarting in 0.01 s",
        "broker 1 ended with status 3: restarting in 0.02 s",
        "broker 1 ended with status 4: restarting in 0.02 s",
    ]


def test_restart_pauses_are_reset_after_stable_operation() -> None:
    pauses = RestartBackoff()
    assert [pauses.next(0) for _ in range(8)] == [*RESTART_PAUSES_SECONDS, 30]
    assert [pauses.next(STEADY_SECONDS - 0.1), pauses.next(STEADY_SECONDS), pauses.next(0)] == [30, 0, 1]


def test_child_killed_before_it_is_ready_is_restarted(start: Start) -> None:
    first = start("os.kill(os.getpid(), signal.SIGKILL) if starts == 1 else ready(); wait()")
    first.until_ready(1)
    assert first.end() == 0
    assert len(first.pids(1)) == 2


@pytest.mark.parametrize("status", [1, 2])
def test_failure_of_a_child_before_it_is_ready_ends_all(start: Start, status: int) -> None:
    first = start(SERVES, f'os.write(2, b"why\\n"); sys.exit({status})', SERVES)
    assert first.process.wait(60) == status
    assert "broker 2: why\n" in first.err()
    assert f"broker 2 ended with status {status} before it was ready: stopping all brokers\n" in first.err()
    assert not any(map(is_known, first.all_pids()))


def test_missing_program_stops_all(tmp_path: Path, firsts: list[First]) -> None:
    given = {"codes": [SERVES], "pauses": [0], "stop_seconds": 60, "writes_json": False, "is_nohup": False}
    firsts.append(First(tmp_path, FIRST.replace("[sys.executable,", '["/no/such/program",'), given))
    assert firsts[0].process.wait(60) == 1
    assert "broker 1 failed to start ([Errno 2] No such file or directory" in firsts[0].err()


def test_failure_to_create_a_process_stops_all(tmp_path: Path, firsts: list[First]) -> None:
    """No child was started, so there is none to wait for."""
    given = {"codes": [SERVES], "pauses": [0], "stop_seconds": 60, "writes_json": False, "is_nohup": False}
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\nsys.exit(Super"
    firsts.append(First(tmp_path, FIRST.replace("sys.exit(Super", few), given))
    assert firsts[0].process.wait(30) == 1
    assert "broker 1 failed to start ([Errno 24] Too many open files) before it was ready" in firsts[0].err()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_all_children(start: Start, number: signal.Signals) -> None:
    first = start(SERVES, SERVES, SERVES)
    first.until_ready(3)
    assert first.end(number) == 0
    assert len(first.all_pids()) == 3
    assert not any(map(is_known, first.all_pids()))
    assert first.err() == ""


def test_stop_cancels_a_pending_restart(start: Start) -> None:
    first = start("ready(); sys.exit(3)", SERVES, pauses=[1_000])
    until(lambda: "in 1000 s" in first.err())
    assert first.end() == 0
    assert len(first.pids(1)) == 1


def test_ctrl_c_in_a_terminal_restarts_no_child(start: Start) -> None:
    leaves = "signal.signal(signal.SIGINT, lambda *_: sys.exit(0)); ready(); wait()"
    first = start(*[leaves] * 5)
    first.until_ready(5)
    os.killpg(first.process.pid, signal.SIGINT)  # The process has its own session.
    assert first.process.wait(60) == 0
    assert len(first.all_pids()) == 5
    assert have_all_exited(first.all_pids())


def test_child_that_does_not_stop_is_killed(start: Start) -> None:
    first = start("ignore(signal.SIGTERM); ready(); wait()", SERVES, stop_seconds=0.2)
    first.until_ready(2)
    assert first.end() == 0
    assert "broker 1 did not stop within 0.2 s: killing it\n" in first.err()
    assert not any(map(is_known, first.all_pids()))


def test_second_ctrl_c_kills_children(start: Start) -> None:
    first = start("ignore(signal.SIGTERM, signal.SIGINT); ready(); wait()", stop_seconds=1_000)
    first.until_ready(1)
    first.process.send_signal(signal.SIGINT)
    until(lambda: "broker 1: told\n" in first.err())
    assert first.end(signal.SIGINT) == 0
    assert "broker 1 did not stop before the second interrupt: killing it\n" in first.err()
    assert not any(map(is_known, first.all_pids()))


def test_sighup_is_ignored_under_nohup(start: Start) -> None:
    first = start(SERVES, is_nohup=True)
    first.until_ready(1)
    first.process.send_signal(signal.SIGHUP)
    os.kill(first.pids(1)[0], signal.SIGKILL)
    first.until_ready(2)
    assert first.end() == 0


def test_no_child_survives_the_supervisor(start: Start) -> None:
    first = start(SERVES, "ignore(signal.SIGTERM); ready(); wait()", SERVES)
    first.until_ready(3)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: have_all_exited(first.all_pids()))


def test_closed_output_does_not_block_children(start: Start) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = 'ready(); os.write(2, b"x" * 10_000_000); Path("done").touch(); wait()'
    first = start(program, stdout=writing, stderr=writing)
    os.close(writing)
    until((first.folder / "done").exists)
    assert first.end() == 0


def test_unread_output_does_not_prevent_a_stop(start: Start) -> None:
    reading, writing = os.pipe()
    first = start(
        'signal.signal(signal.SIGTERM, lambda *_: (os.write(2, b"last\\n" * 1_000_000), os._exit(0)))\n'
        'while True: os.write(2, b"x" * 1_000 + b"\\n")',
        stderr=writing,
    )
    os.close(writing)
    size = array.array("i", [0])

    def is_full() -> bool:
        fcntl.ioctl(reading, termios.FIONREAD, size)
        return size[0] > 60_000

    until(is_full)
    assert first.end() == 0
    os.close(reading)


def test_grandchild_does_not_prevent_a_restart(start: Start) -> None:
    first = start("ready(); sys.exit(subprocess.Popen(['sleep', '300']).pid and 5) if starts == 1 else wait()")
    first.until_ready(2)
    group = first.process.pid
    assert first.end() == 0
    os.killpg(group, signal.SIGKILL)  # The sleep still runs in the session that the test created.


def test_supervisor_waits_longer_than_a_broker_takes_to_stop() -> None:
    assert supervisor.STOP_SECONDS_MAX > server.STOP_SECONDS_MAX


def test_supervisor_does_not_import_broker_modules() -> None:
    imported = subprocess.run(
        [sys.executable, "-c", "import sys, odradek.app.serve.supervisor; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert not {"asyncio", "uvloop", "ssl", "sqlite3", "odradek.net", "odradek.wire", "odradek.log"}.intersection(
        imported
    )


FREE = "listeners=PLAINTEXT://127.0.0.1:0"


def test_three_brokers_serve_and_stop(serve: Start) -> None:
    first = serve(3, FREE)
    first.until_ready(3)
    assert len(set(re.findall(r"(?m)^ready PLAINTEXT://127\.0\.0\.1:(\d+)$", first.out()))) == 3
    pids = first.children()
    assert len(pids) == 3
    assert first.end() == 0, first.err()
    assert not any(map(is_known, pids))
    for i in (1, 2, 3):
        assert (first.folder / f"data/broker{i}/.kafka_cleanshutdown").exists()
        assert f"broker.id={i}\n" in (first.folder / f"data/broker{i}/meta.properties").read_text()


def test_broker_stops_cleanly_when_the_supervisor_is_killed(serve: Start) -> None:
    first = serve(1, FREE)
    first.until_ready(1)
    (pid,) = first.children()
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: have_all_exited([pid]))
    assert (first.folder / "data/broker1/.kafka_cleanshutdown").exists()


def test_port_in_use_ends_the_command(serve: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        first = serve(1, f"listeners=PLAINTEXT://127.0.0.1:{port}")
        assert first.process.wait(60) == 1
    assert re.search(rf"(?m)^broker 1: odradek serve: .*{port}", first.err())
    assert "broker 1 ended with status 1 before it was ready: stopping all brokers\n" in first.err()
