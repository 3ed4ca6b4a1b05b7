"""Output into a pipe that is not read, for a while or forever."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import termios
import threading
from pathlib import Path

import pytest

from odradek.app.terminal import patient_output
from odradek.app.terminal.patient_output import PatientOutput, terminated_in_order


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_output, "MEANWHILE_EVERY_MS", 5)


def test_full_pipe_leaves_time_for_other_work() -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    data = bytes(range(256)) * 400
    received = bytearray()
    calls = 0

    def drain() -> None:
        while piece := os.read(reading, 65536):
            received.extend(piece)

    reader = threading.Thread(target=drain)

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            reader.start()

    PatientOutput(writing, count).write(data)
    os.close(writing)
    reader.join()
    os.close(reading)
    assert received == data
    assert calls >= 10


def test_stopped_terminal_leaves_time_for_other_work() -> None:
    """Ctrl-S, or a pager that waits for a key."""
    master, terminal = pty.openpty()
    termios.tcflow(terminal, termios.TCOOFF)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            termios.tcflow(terminal, termios.TCOON)

    PatientOutput(terminal, count).write(b"hello")
    assert os.read(master, 100) == b"hello"
    assert calls >= 10
    os.close(terminal)
    os.close(master)


def test_closed_pipe_raises_broken_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        PatientOutput(writing, lambda: None).write(b"x")
    os.close(writing)


def test_files_are_written_at_once(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        PatientOutput(file.fileno(), lambda: pytest.fail("a file never blocks")).write(bytes(1 << 20))
    assert (tmp_path / "out").stat().st_size == 1 << 20


def test_sigterm_passes_through_the_finally_clauses() -> None:
    before = signal.getsignal(signal.SIGTERM)
    tidied = []
    with pytest.raises(SystemExit) as ended, terminated_in_order():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            tidied.append(True)
    assert ended.value.code == 143
    assert tidied
    assert signal.getsignal(signal.SIGTERM) is before
