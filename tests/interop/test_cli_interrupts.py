"""Ctrl-C at any moment of a command: no traceback, and no output but at most an empty line."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from client_peers import odradek

from odradek.app.main import main
from support.waiting import SECONDS_MAX

pytestmark = pytest.mark.slow

MOMENTS = 40
# The command as its script starts it, with a mark on standard output at its first instruction, which is about Ctrl-C.
COMMAND = """
import _signal, os, sys
def noted(*given):
    _signal.signal = real
    real(*given)
    os.write(1, b"!")
real, _signal.signal = _signal.signal, noted
from odradek.app.main import main
sys.exit(main())
"""
LOST = """
from odradek.app.terminal.interrupts import InterruptBlock, end_quietly
class Destroyed:
    def __del__(self):
        raise KeyboardInterrupt
end_quietly()
with InterruptBlock():
    Destroyed()
    print("went on")
"""
IGNORED = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["odradek", "--version"]
from odradek.app.main import main
main()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def started(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the command and return once it has control."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"!"
    return process


def interrupted(arguments: Sequence[str], after_seconds: float) -> tuple[int, str]:
    """Send SIGINT that long after the command's first instruction; return its exit status and standard error."""
    process = started(arguments)
    time.sleep(after_seconds)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, errors.decode()


def seconds_until_output(arguments: Sequence[str]) -> float:
    process = started(arguments)
    began = time.monotonic()
    assert process.stdout is not None
    assert process.stdout.read(1)
    seconds = time.monotonic() - began
    process.kill()
    process.communicate()
    return seconds


@pytest.fixture(scope="module")
def topic() -> str:
    name = f"cli-{uuid4().hex[:12]}"
    assert main(["topic", "create", name, "-b", odradek()]) == 0
    command = [sys.executable, "-m", "odradek", "produce", name, "-b", odradek()]
    subprocess.run(command, input=b"x\n", check=True, timeout=SECONDS_MAX)
    return name


Verb = Callable[[], list[str]]


@pytest.fixture(params=["help", "topic list", "consume", "serve"])
def verb(request: pytest.FixtureRequest, topic: str, tmp_path: Path) -> Verb:
    folders = map(str, range(10 * MOMENTS))

    def serve() -> list[str]:
        folder = tmp_path / next(folders)
        return ["serve", f"--override=log.dirs={folder}", "--override=listeners=PLAINTEXT://127.0.0.1:0"]

    verbs: dict[str, Verb] = {
        "help": lambda: ["--help"],
        "topic list": lambda: ["topic", "list", "-b", odradek()],
        "consume": lambda: ["consume", topic, "--follow", "-b", odradek()],
        "serve": serve,
    }
    return verbs[request.param]


@pytest.mark.share(4)
def test_ctrl_c_is_quiet_at_any_moment(verb: Verb) -> None:
    whole = 1.2 * seconds_until_output(verb())
    moments = [whole * number / MOMENTS for number in range(MOMENTS)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda moment: interrupted(verb(), moment), moments))
    for status, errors in outcomes:
        assert errors in ("", "\n")
        # The signal ended it, which shells show as 130; the command ended after cleaning up; or it was done before.
        assert status in (-signal.SIGINT, 130, 0)
    assert any(status == -signal.SIGINT for status, _ in outcomes), "the first moments are before the verb is at work"


def outcome_of(program: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_ctrl_c_in_a_destructor_is_not_lost() -> None:
    assert outcome_of(LOST) == (-signal.SIGINT, "", "")


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    status, _, errors = outcome_of(IGNORED)
    assert (status, errors) == (0, "")


def test_a_call_from_python_changes_no_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == 0
    assert main(["topic", "list", "-b", odradek()]) == 0
    assert signal.getsignal(signal.SIGINT) is before
