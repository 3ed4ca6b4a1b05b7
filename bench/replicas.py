"""What three replicas cost: three brokers of Odradek beside three of Apache Kafka, on one machine.

    python bench/replicas.py [--targets odradek,odradek-zookeeper,kafka,kafka-3.9] [--parts PART,...]
                             [--cases PATTERN] [--seconds 5] [--repeat 3] [--out FILE]

Odradek as `serve --brokers 3` and on a ZooKeeper, Kafka 4.4.0 as three combined KRaft processes, 3.9.1 on a ZooKeeper.
All run at a time; cases go in turn from one to the next, so that the machine's moods hit all of them, and those that
have nothing to do wait.  Settings are the defaults of each, session timeouts too, but for files that are deleted soon.

rates: the cases of LinkedIn's benchmark of 2014 (100-byte records; one producer without replicas, with three and
acks=1, with three and acks=all; three producers; consumers, beside the least that serves them: replicas_bound.py; both
at once, the consumer behind the producer or reading what is old), then acks=all with three replicas for records of
100 B and 1 KiB, 1 and 6 producers, sequence numbers and lz4.  Each producer has five requests in flight, of 16 KiB
before compression, to a partition of its own whose leader is one of the three in turn.
latency: a record every 2 ms with acks=all, until a consumer has it.
stored: one producer with acks=1, again and again, while its data piles up; the last of LinkedIn's.
away: see replicas_away.py.
growth: six producers, then six consumers on `serve --brokers N`.

CPU is of the three brokers together, and so is what is resident.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import frames
import load
import load_latency
import measure
import replicas_away
import replicas_growth
from clusters import BROKERS, CLUSTERS, Cluster
from kraft import Kraft
from load import Report
from replicas_bound import Bound
from replicas_cases import BATCH_BYTES, CASES, FILLED_BYTES, Case
from replicas_topics import Topic

Numbers = dict[str, float]
Rows = dict[str, dict[str, Numbers]]  # By case and target.
Compared = TypeVar("Compared", Cluster, Bound)

KINDS: Mapping[str, type[Cluster]] = {
    "odradek": CLUSTERS["odradek"],
    "odradek-zookeeper": CLUSTERS["odradek-zookeeper"],
    "kafka": Kraft,
    "kafka-3.9": CLUSTERS["kafka"],
}
SETTINGS = {"log.segment.delete.delay.ms": "100"}
SESSIONS = {"zookeeper.session.timeout.ms": "18000"}  # The default of those on a ZooKeeper.
PARTS = ("rates", "latency", "stored", "away", "growth")
RATE_PER_SECOND = 500
ROUNDS, ROUND_BYTES = 4, 512 << 20
WARMUP_SECONDS = 1.5
FIRST_SECONDS = 10  # Of load before anything is measured: a JVM that has just started is still interpreting.
FIRST = (Case("", producers=3, seconds=FIRST_SECONDS), Case("", producers=0, consumers=3, seconds=FIRST_SECONDS / 2))


def opened(stack: ExitStack, names: Sequence[str]) -> dict[str, Cluster]:
    clusters = dict[str, Cluster]()
    for name in names:
        settings = SETTINGS | (SESSIONS if name in {"odradek-zookeeper", "kafka-3.9"} else {})
        clusters[name] = started(stack, KINDS[name](new_folder(stack) / name, settings))
    return clusters


def new_folder(stack: ExitStack) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="odradek-replicas-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def started(stack: ExitStack, one: Compared) -> Compared:
    stack.callback(one.close)
    one.start()
    return one


def resident_mb(cluster: Cluster) -> float:
    return sum(measure.resident_mb(cluster.pid(broker)) for broker in BROKERS)


def rate(cluster: Cluster | Bound, case: Case, seconds: float) -> Numbers:
    """Loads the cluster as the case says, and checks that what was acknowledged is there."""
    if isinstance(cluster, Bound):
        return numbers(*cluster.rate(case, seconds, WARMUP_SECONDS))
    with Topic(cluster, case.partitions, case.replicas) as topic:
        filled = topic.fill(FILLED_BYTES, case.value_bytes) if case.consumers and not case.follows else None
        works = case.works(topic, filled, seconds, WARMUP_SECONDS)
        for broker in BROKERS:
            measure.forget_peak(cluster.pid(broker))
        reports, cpu = load.measured(works, cluster.cpu_seconds)
        if not case.consumers:
            topic.verify(sum(report.total_records for report in reports))
        found = numbers(reports[case.producers :] if case.follows else reports, cpu)
        if case.producers and case.consumers:
            found |= parts_of(case, reports)
        return found | {"peak_mb": sum(measure.peak_mb(cluster.pid(broker)) for broker in BROKERS)}


def numbers(reports: Sequence[Report], cpu_seconds: float) -> Numbers:
    seconds = seconds_of(reports)
    records = sum(one.records for one in reports)
    return {
        "k_records_per_s": k_per_s(reports),
        "mb_per_s": sum(one.wire_bytes for one in reports) / seconds / 1e6,
        "cpu_s_per_million": cpu_seconds / records * 1e6,
        "cores": cpu_seconds / seconds,
        **measure.quantiles([sample for one in reports for sample in one.latencies]),
    }


def seconds_of(reports: Sequence[Report]) -> float:
    return max(one.ended for one in reports) - min(one.begun for one in reports)


def k_per_s(reports: Sequence[Report]) -> float:
    return sum(one.records for one in reports) / seconds_of(reports) / 1e3


def parts_of(case: Case, reports: Sequence[Report]) -> Numbers:
    """Tells apart what came in and what went out: one record that comes in costs as much as many that go out."""
    return {
        "k_produced_per_s": k_per_s(reports[: case.producers]),
        "k_consumed_per_s": k_per_s(reports[case.producers :]),
    }


def latency(cluster: Cluster, seconds: float) -> Numbers:
    """Sends a record every so often with acks=all; returns how long it took until a consumer had it."""
    data, _ = frames.batch(100, 1)
    with Topic(cluster, 1, replicas=3) as topic:
        plan = load_latency.Plan(
            port=topic.port(0),
            topic=topic.name,
            frame=frames.produce(topic.name, 0, -1, data),
            unit_bytes=len(data),
            unit_records=1,
            rate_per_second=RATE_PER_SECOND,
            warmup_seconds=WARMUP_SECONDS,
            seconds=seconds,
        )
        (sent, received), cpu = load.measured(plan.works(), cluster.cpu_seconds)
        topic.verify(sent.total_records)
        return measure.quantiles(load_latency.delays(sent.marks, received.marks)) | {"cores": cpu / seconds}


def stored(cluster: Cluster) -> Numbers:
    """Fills one partition in rounds; returns the rate of each."""
    data, records = frames.batch(100, BATCH_BYTES)
    found = Numbers()
    with Topic(cluster, 1, replicas=3) as topic:
        for round_ in range(1, ROUNDS + 1):
            begun = time.monotonic()
            topic.fill(ROUND_BYTES, 100)
            seconds = time.monotonic() - begun
            found[f"round {round_} k/s"] = ROUND_BYTES // len(data) * records / seconds / 1e3
    return found


def repeated(rows: Rows, clusters: Mapping[str, Cluster], arguments: argparse.Namespace) -> None:
    """Measures rates and latencies; each figure is the median of its repetitions."""
    seconds = arguments.seconds
    cases = [case for case in CASES if fnmatch.fnmatch(case.name, arguments.cases)]
    if "rates" in arguments.parts:
        with ExitStack() as stack:
            bound = {} if all(case.producers for case in cases) else {"bound": started(stack, Bound(new_folder(stack)))}
            for case in cases:
                compared = clusters if case.producers else {**clusters, **bound}
                in_turn(rows, compared, case.name, arguments.repeat, lambda one, case=case: rate(one, case, seconds))
    if "latency" in arguments.parts:
        in_turn(rows, clusters, "latency", arguments.repeat, lambda one: latency(one, seconds))


def in_turn(rows, clusters, case, repeat, measured) -> None:  # type: ignore[no-untyped-def]
    found: dict[str, list[Numbers]] = {name: [] for name in clusters}
    for _ in range(repeat):
        for name, cluster in clusters.items():
            found[name].append(measured(cluster))
    rows[case] = {name: measure.medians(each) for name, each in found.items()}
    print_figures(case, rows[case]) if case else None


def print_figures(case: str, found: Mapping[str, Numbers]) -> None:
    for name, figures in found.items():
        text = ", ".join(f"{figure} {number:.4g}" for figure, number in figures.items())
        print(f"{case} | {name} | {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(KINDS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--cases", default="*", help="of rates, as a pattern of a shell")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    rows = Rows()
    try:
        with ExitStack() as stack:
            clusters = opened(stack, arguments.targets.split(","))
            if "rates" in arguments.parts:
                time.sleep(WARMUP_SECONDS)
                rows["idle"] = {name: {"resident_mb": resident_mb(cluster)} for name, cluster in clusters.items()}
                print_figures("idle", rows["idle"])
            for case in FIRST:
                in_turn({}, clusters, case.name, 1, lambda one, case=case: rate(one, case, 0))
            repeated(rows, clusters, arguments)
            if "stored" in arguments.parts:
                in_turn(rows, clusters, "stored", 1, stored)
            if "away" in arguments.parts:
                replicas_away.measured(rows, clusters, print_figures)
        if "growth" in arguments.parts:
            rows["growth"] = replicas_growth.measured(arguments.seconds)
            print_figures("growth", rows["growth"])
    finally:
        if arguments.out:
            arguments.out.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
