"""What TLS costs, here and on Apache Kafka: the same work in plain text and under TLS 1.3, on one broker each.

    python bench/tls.py [--targets odradek,kafka] [--rounds 5] [--seconds 1.5] [--cases handshakes,fetch]

Each broker has a listener of each kind, and the same certificate (EC, P-256).  Rounds go through brokers and listeners
in turn, so that who else is on the machine disturbs all alike; medians are printed, as rows of Markdown.
Processor time is the broker's.
"""

from __future__ import annotations

import argparse
import shutil
import ssl
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import frames
import load_tls
from brokers import BROKERS, ROOT, Broker, free_port, new_topic
from load import Work
from work import Measured, load

sys.path.append(str(ROOT / "tests"))

from support.certificates import Authority, written

NAMES = ("odradek", "kafka")
PLAIN, TLS = "plain", "TLS"
SMALL, LARGE = 100, 1_000_000
PARTITIONS = 4
WARM_UP_SECONDS = 0.5
FIRST_WARM_UP_SECONDS = 3.0  # A JVM compiles.


@dataclass(frozen=True)
class Case:
    """`work` is produce, fetch or handshakes; of the last, `connections` is how many processes knock."""

    name: str
    work: str
    connections: int
    value_bytes: int = SMALL
    window: int = 1

    @property
    def is_large(self) -> bool:
        return self.value_bytes == LARGE


CASES = (
    Case("small, one at a time", "produce", 1),
    Case("small, one at a time, 100 connections", "produce", 100),
    Case("small, 50 in flight", "produce", 1, window=50),
    Case("small, 10 in flight, 100 connections", "produce", 100, window=10),
    Case("1 MB, 5 in flight", "produce", 1, LARGE, 5),
    Case("1 MB, one at a time, 100 connections", "produce", 100, LARGE),
    Case("fetch 1 MB", "fetch", 1, LARGE),
    Case("fetch 1 MB, 100 connections", "fetch", 100, LARGE),
    Case("connect and ask, one after the other", "handshakes", 1),
    Case("connect and ask, 4 at once", "handshakes", 4),
)


@dataclass
class Target:
    """One broker with both listeners."""

    broker: Broker
    ports: dict[str, int]
    contexts: dict[str, ssl.SSLContext | None]


def started(name: str, folder: Path, authority: Authority) -> Target:
    broker = BROKERS[name](folder / name)
    ports, controller = {PLAIN: broker.port, TLS: free_port()}, free_port()
    own = authority.known(load_tls.NAME)
    listeners = f"PLAINTEXT://127.0.0.1:{ports[PLAIN]},SSL://127.0.0.1:{ports[TLS]}"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(folder / f"{name}.pem", own.pkcs8_key() + own.chain),
        "listeners": listeners,
        "advertised.listeners": listeners,
    }
    if name.startswith("kafka"):
        settings["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
        settings["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "CONTROLLER": "PLAINTEXT"}
        settings["listener.security.protocol.map"] = ",".join(f"{one}:{what}" for one, what in protocols.items())
    broker.settings = {**broker.settings, **settings}
    broker.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority.pem)
    return Target(broker, ports, {PLAIN: None, TLS: context})


@dataclass
class Numbers:
    """A second, and the broker's processor time of each request in microseconds."""

    rate: float
    cpu_us: float
    client_cores: float


def measured(target: Target, case: Case, kind: str, seconds: float, warm_up: float | None = None) -> Numbers:
    """`warm_up` is in seconds, WARM_UP_SECONDS or what is measured if that is less."""
    broker, port, context = target.broker, target.ports[kind], target.contexts[kind]
    if warm_up is None:
        warm_up = min(WARM_UP_SECONDS, seconds)
    works: Sequence[Work]
    if case.work == "handshakes":
        works = [load_tls.Knocking(port, context, warm_up, seconds).work() for _ in range(case.connections)]
        return _numbers(load(broker, works))
    topic = new_topic()
    broker.create(topic, PARTITIONS, {})
    try:
        if case.work == "fetch":
            _fill(target, topic)
            request_of = load_tls.fetch_requests(topic, LARGE, PARTITIONS)
        else:
            request_of = load_tls.produce_requests(topic, case.value_bytes, case.window, PARTITIONS)
        plan = load_tls.Plan(port, context, case.connections, request_of, warm_up, seconds)
        return _numbers(load(broker, [plan.work()]))
    finally:
        broker.delete(topic)


def _fill(target: Target, topic: str) -> None:
    """A batch in each partition."""
    request_of = load_tls.produce_requests(topic, LARGE, 1, PARTITIONS)
    load(target.broker, [load_tls.Plan(target.ports[PLAIN], None, PARTITIONS, request_of, 0, 0).work()])


def _numbers(found: Measured) -> Numbers:
    requests = sum(report.requests for report in found.reports)
    client = sum(report.cpu_seconds for report in found.reports)
    return Numbers(
        requests / found.wall_seconds, 1e6 * found.cpu_seconds / max(requests, 1), client / found.wall_seconds
    )


def warm(targets: Sequence[Target], cases: Sequence[Case], seconds: float) -> None:
    """Each kind of work for as long as a JVM needs to compile most of it."""
    for target in targets:
        for case in {(one.work, one.is_large): one for one in cases}.values():
            for kind in (PLAIN, TLS):
                measured(target, case, kind, min(0.1, seconds), seconds)


def rows(case: Case, found: dict[tuple[str, str], list[Numbers]]) -> Iterator[str]:
    for name in sorted({name for name, _ in found}, reverse=True):
        middle = {
            kind: (median(one.rate for one in found[name, kind]), median(one.cpu_us for one in found[name, kind]))
            for kind in (PLAIN, TLS)
        }
        (plain, plain_cpu), (tls, tls_cpu) = middle[PLAIN], middle[TLS]
        added = tls_cpu - plain_cpu
        cores = median(one.client_cores for one in found[name, TLS])
        yield (
            f"| {case.name} | {name} | {plain:,.0f} | {tls:,.0f} | {tls / plain:.2f} | {plain_cpu:,.1f} | "
            f"{tls_cpu:,.1f} | {tls_cpu / max(plain_cpu, 0.1):.2f} | {added:,.1f} | {cores:.2f} |"
        )


HEAD = (
    "| | broker | plain, a second | TLS, a second | ratio "
    "| plain, CPU µs | TLS, CPU µs | ratio | added µs | client's cores |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=lambda text: text.split(","), default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--warm-up", type=float, default=FIRST_WARM_UP_SECONDS, help="seconds of each kind of work")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=("produce", "fetch", "handshakes"))
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    cases = [one for one in CASES if one.work in options.cases and options.only in one.name]
    folder = Path(tempfile.mkdtemp(prefix="odradek-tls-"))
    targets: list[Target] = []
    frames.batch(LARGE, 1)
    try:
        authority = Authority()
        for name in options.targets:
            targets += [started(name, folder, authority)]
        if options.warm_up:
            warm(targets, cases, options.warm_up)
        print(HEAD, flush=True)
        for case in cases:
            found: dict[tuple[str, str], list[Numbers]] = defaultdict(list)
            for _ in range(options.rounds):
                for kind in (PLAIN, TLS):
                    for target in targets:
                        found[target.broker.name, kind].append(measured(target, case, kind, options.seconds))
            print("\n".join(rows(case, found)), flush=True)
    finally:
        for target in targets:
            target.broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
