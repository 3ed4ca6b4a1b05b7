"""Jepsen's workload for Kafka while the broker is killed repeatedly; the checker finds no anomaly."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from workload.brokers import BROKERS, broker, create_topics
from workload.nemesis import kill_for
from workload.recorder import read_history
from workload.settings import PROTOCOLS, GroupProtocol
from workload.tried import is_enough

from checker.anomaly import Anomaly
from checker.history import Kind, Outcome, operations
from checker.verdict import NOT_PROMISED, check

TESTS = Path(__file__).resolve().parents[1]
TOPICS = {"a": 2, "b": 2, "c": 1}
# Between one start and the next kill.
BETWEEN_SECONDS = {"odradek": (0.7, 2.0), "apache-kafka": (2.0, 5.0)}
SECONDS_MAX = 400  # For its end.


@contextmanager
def workload(
    address: str,
    history: Path,
    seconds: float,
    seed: int,
    program: Sequence[str] = (),
    *,
    newest: GroupProtocol = PROTOCOLS[-1],
    in_flight: int = 5,
) -> Iterator[None]:
    """Run for so many seconds, until the block is over and enough was tried; then the history is complete.

    `newest` is the newest group protocol that the brokers support; `in_flight` limits requests of producers.
    """
    topics = [f"{name}:{count}" for name, count in TOPICS.items()]
    over = history.with_suffix(".over")
    options = [
        f"--in-flight={in_flight}",
        f"--over={over}",
        f"--seconds={seconds}",
        f"--seed={seed}",
        f"--newest={newest}",
        f"--program={shlex.join(program)}",
    ]
    path = os.pathsep.join([str(TESTS), str(TESTS / "interop")])
    command = [sys.executable, "-m", "workload", address, str(history), *topics, *options]
    errors = history.with_suffix(".txt")
    with (
        errors.open("w") as output,
        subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            yield
            over.touch()
            status = process.wait(SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # And its workers.
    assert status == 0, f"exit {status}: {errors.read_text()[-5000:]}"


def crash(name: str, folder: Path, seconds: float, seed: int) -> None:
    history = folder / "history.jsonl"
    with broker(name, folder) as running:
        create_topics(running.address, TOPICS)
        with workload(running.address, history, seconds, seed):
            kills = kill_for(seconds, running, BETWEEN_SECONDS[name], seed)
    check_history(history, kills, seconds)


def check_history(
    history: Path,
    kills: int,
    seconds: float,
    not_promised: Collection[Anomaly] = NOT_PROMISED,
    *,
    unheard: tuple[int, int] | None = None,
) -> None:
    """Check the history of a workload's clients.

    Committed offsets that were returned between the two times in `unheard`, in ns, are ignored: a deposed broker that
    had not learned of it may have returned them.
    """
    done = operations(read_history(history))
    if unheard is not None:
        begun, ended = unheard
        done = [
            replace(one, outcome=Outcome.INFO, steps=())
            if one.kind is Kind.COMMITTED and one.completed_ns > begun and one.invoked_ns < ended
            else one
            for one in done
        ]
    verdict = check(done, not_promised)
    counts = Counter((one.kind, one.outcome) for one in done)
    print(f"{kills} kills, {dict(counts)}\n{verdict}")
    assert not verdict.broken, str(verdict)
    finals = [one for one in done if one.kind is Kind.FINAL]
    assert [one.error for one in finals] == [""] * sum(TOPICS.values())
    assert kills > 0
    assert is_enough(done, seconds)


@pytest.mark.parametrize("name", BROKERS)
def test_some_crashes_cause_no_anomaly(tmp_path: Path, name: str) -> None:
    crash(name, tmp_path, seconds=12, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("name", BROKERS)
def test_many_crashes_cause_no_anomaly(tmp_path: Path, name: str, seed: int) -> None:
    crash(name, tmp_path, seconds=180, seed=seed)
