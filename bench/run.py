"""Odradek, Apache Kafka and a lower bound, doing the same work in one run.

    python bench/run.py                      everything, about 40 minutes
    python bench/run.py --quick              the cases that matter most
    python bench/run.py --only small         groups, or parts of names; --list names them
    python bench/run.py --targets odradek    no comparison, while something is being made faster

Results go to a JSON file after every measurement, so that a run that is broken off leaves what it has; bench/report
makes a page of it.  Only one broker is under load at a time, and each in turn (A B A B); the others stay up, idle.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import fresh
import machine
import measure
import show
from brokers import BROKERS, Broker
from cases import GROUPS, TARGETS, Case, cases
from kinds import KINDS
from work import Budget, Numbers, Target

from odradek.client.connection.client_errors import ClientError

MB = 1_000_000
SYSTEMS = ("odradek", "kafka", "bound")
BUDGETS = {
    "full": Budget(1.5, 1.5, 0.3, 3, 2000 * MB, 300 * MB, 500 * MB),
    "quick": Budget(0.7, 0.7, 0.2, 3, 1000 * MB, 150 * MB, 200 * MB),
    "smoke": Budget(0.1, 0, 0.02, 1, 20 * MB, 4 * MB, 4 * MB),
}
WARMUP_SECONDS = {"full": 14.0, "quick": 8.0, "smoke": 0.0}
IDLE_SECONDS = {"full": 3.0, "quick": 2.0, "smoke": 0.05}

# What makes a JVM compile what the cases need.
WARMING = (
    Case("", "", "produce", batch_bytes=1, window=50),
    Case("", "", "produce", batch_bytes=1, window=1),
    Case("", "", "produce", value_bytes=1024),
    Case("", "", "consume", value_bytes=1024, batch_bytes=65_536),
)


class Results:
    """The file of results, whole after every change."""

    def __init__(self, path: Path, mode: str, folder: Path) -> None:
        self._path = path
        self._content: dict[str, object] = {"mode": mode, "machine": machine.describe(folder)}
        self._cases: list[dict[str, object]] = []
        self._content["cases"] = self._cases

    def begin(self, case: Case) -> None:
        self._repetitions: dict[str, list[Numbers]] = {}
        self._errors: dict[str, str] = {}
        self._cases.append({**asdict(case), "results": self._repetitions, "errors": self._errors})

    def add(self, target: str, numbers: Numbers) -> None:
        self._repetitions.setdefault(target, []).append({name: _rounded(number) for name, number in numbers.items()})
        self._write()

    def fail(self, target: str, error: str) -> None:
        self._errors[target] = error
        self._write()

    def has_failed(self, target: str) -> bool:
        return target in self._errors

    def medians(self) -> dict[str, Numbers]:
        return {target: measure.medians(numbers) for target, numbers in self._repetitions.items()}

    def errors(self) -> dict[str, str]:
        return self._errors

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._content, indent=1) + "\n")
        partial.replace(self._path)


def _rounded(number: float) -> float:
    return float(f"{number:.5g}")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that brokers and folders do not outlive a run.
    options = _options()
    chosen = [case for case in cases() if _is_chosen(case, options)]
    if options.list:
        for case in chosen:
            print(f"{case.group:12} {case.name:45} {' '.join(_targets(case, options))}")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=options.directory))
    try:
        results = Results(options.out, options.mode, folder)
        failed = _run(chosen, options, folder, results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\nresults in {options.out}; a page of them: bench/report {options.out}")
    return 1 if failed else 0


def _run(chosen: list[Case], options: argparse.Namespace, folder: Path, results: Results) -> bool:
    failed = False
    for case in [case for case in chosen if case.group == "start"]:
        failed |= _start(case, options, folder, results)
    loaded = [case for case in chosen if case.group != "start"]
    names = {TARGETS[target][0] for case in loaded for target in _targets(case, options)}
    with _brokers([name for name in BROKERS if name in names], folder) as brokers:
        for broker in brokers.values():
            _warm_up(broker, options)
        for case in loaded:
            targets = [Target(name, brokers[TARGETS[name][0]], TARGETS[name][1]) for name in _targets(case, options)]
            failed |= _measure(case, targets, options, results)
    return failed


@contextmanager
def _brokers(names: list[str], folder: Path) -> Iterator[dict[str, Broker]]:
    running: dict[str, Broker] = {}
    try:
        for name in names:
            broker = BROKERS[name](folder / name)
            running[name] = broker
            broker.start()
            print(f"{name} is up, process {broker.pid}", flush=True)
        yield running
    finally:
        for broker in running.values():
            broker.stop()


def _warm_up(broker: Broker, options: argparse.Namespace) -> None:
    seconds = WARMUP_SECONDS[options.mode] / len(WARMING)
    if not seconds:
        return
    print(f"warming {broker.name} up", flush=True)
    for case in WARMING:
        KINDS[case.kind](Target(broker.name, broker, {}), case, options.budget, seconds)


def _start(case: Case, options: argparse.Namespace, folder: Path, results: Results) -> bool:
    results.begin(case)
    for repetition in range(options.budget.repetitions):
        for name in _targets(case, options):
            where = folder / f"fresh-{name}-{repetition}"
            results.add(name, fresh.measure(name, where, options.budget, IDLE_SECONDS[options.mode]))
    show.start(case, results.medians())
    return False


def _measure(case: Case, targets: list[Target], options: argparse.Namespace, results: Results) -> bool:
    """True if a target failed; the others are measured all the same."""
    results.begin(case)
    budget: Budget = options.budget
    with ExitStack() as topics:
        if case.keeps_topic:
            targets = [_with_topic(target, case, topics, results) for target in targets]
        for repetition in range(budget.repetitions):
            warmup_seconds = budget.warmup_seconds if repetition else budget.first_warmup_seconds
            for target in targets:
                if not results.has_failed(target.name):
                    with _recorded(target, results):
                        results.add(target.name, KINDS[case.kind](target, case, budget, warmup_seconds))
    show.case(case, results.medians(), results.errors())
    return bool(results.errors())


def _with_topic(target: Target, case: Case, topics: ExitStack, results: Results) -> Target:
    with _recorded(target, results):
        return target._replace(topic=topics.enter_context(target.with_topic(case.partitions)))
    return target


@contextmanager
def _recorded(target: Target, results: Results) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ClientError, OSError) as error:
        print(error, file=sys.stderr)
        results.fail(target.name, str(error).strip().rpartition("\n")[2] or type(error).__name__)


def _targets(case: Case, options: argparse.Namespace) -> list[str]:
    return [name for name in case.targets if not options.targets or _system(name) in options.targets]


def _system(target: str) -> str:
    return target.partition("-")[0]


def _is_chosen(case: Case, options: argparse.Namespace) -> bool:
    if case.client == "java" and _without_java():
        return False
    if options.only and not any(word == case.group or word in case.name for word in options.only):
        return False
    if options.mode != "full" and not (case.is_quick or options.only):
        return False
    return bool(_targets(case, options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", dest="mode", action="store_const", const="quick", default="full")
    parser.add_argument("--smoke", dest="mode", action="store_const", const="smoke", help="a moment of each, for tests")
    parser.add_argument("--only", action="append", metavar="WORD", help=f"{', '.join(GROUPS)}, or a part of a name")
    parser.add_argument("--targets", type=lambda text: text.split(","), help=f"of {','.join(SYSTEMS)}")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--seconds", type=float, help="of each measurement")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "bench" / "results.json")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data meanwhile")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    budget = asdict(BUDGETS[options.mode])
    if options.repetitions:
        budget["repetitions"] = options.repetitions
    if options.seconds:
        budget["seconds"] = options.seconds
    options.budget = Budget(**budget)
    if not options.targets or "kafka" in options.targets:
        _needs_kafka(options)
    return options


def _without_java() -> str | None:
    import kafka_peer  # On the path since `brokers` is imported.

    return kafka_peer.missing()


def _needs_kafka(options: argparse.Namespace) -> None:
    if reason := _without_java():
        print(f"without Apache Kafka: {reason}", file=sys.stderr)
        options.targets = [name for name in SYSTEMS if name != "kafka" and name in (options.targets or SYSTEMS)]


if __name__ == "__main__":
    begun = time.monotonic()
    code = main()
    print(f"{time.monotonic() - begun:.0f} s")
    sys.exit(code)
