"""How long new connections wait for their first answer, at a broker that is busy.

    python bench/door.py [--targets odradek,kafka] [--connections 100,500,2000] [--rounds 3] [--full]

N connections open at once, each asks one small produce after the other, and later others come one by one.  With --full
the limit of connections is reached by then, and the later ones are timed until they are told.  Apache Kafka has such a
limit for one address only: at max.connections it does not answer until somebody leaves.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import frames
import load_door
from brokers import BROKERS, Broker, new_topic
from load import loaded

NAMES = ("odradek", "kafka")
LIMITS = {"odradek": "max.connections", "odradek-interpreted": "max.connections", "kafka": "max.connections.per.ip"}
WARM_UP = 50
REST_SECONDS = 10  # A JVM that has just started takes the processor from whoever is beside it.
CONTROLS = 1  # Connections of the measurement itself.
COLUMNS = (
    "opening_ms",
    "lost",
    "first_p50_ms",
    "first_p99_ms",
    "first_max_ms",
    "late",
    "later_p50_ms",
    "later_max_ms",
    "busy_per_s",
    "own_turn_max_ms",
)


def started(name: str, folder: Path, limit: int | None) -> Broker:
    kind = BROKERS[name]
    if limit is not None:
        settings = {LIMITS[name]: str(limit + CONTROLS)}
        kind = type(f"Full{kind.__name__}", (kind,), {"settings": settings})
    broker = kind(folder / f"{name}-{limit}")
    broker.start()
    return broker


def measured(broker: Broker, connections: int, *, is_full: bool) -> dict[str, float]:
    topic = new_topic()
    broker.create(topic, 1, {})
    try:
        frame = frames.produce(topic, 0, 1, frames.batch(100, 1).data)
        plan = load_door.Plan(broker.port, topic, frame, connections, is_full)
        (report,) = loaded([plan.work()])
        return report.numbers
    finally:
        broker.delete(topic)


def compared(options: argparse.Namespace, connections: int, folder: Path) -> None:
    brokers: list[Broker] = []
    try:
        for name in options.targets:
            brokers.append(started(name, folder, connections if options.full else None))
            measured(brokers[-1], WARM_UP, is_full=False)
        time.sleep(REST_SECONDS)
        for _ in range(options.rounds):
            for broker in brokers:
                found = measured(broker, connections, is_full=options.full)
                row = " ".join(f"{found[name]:13.1f}" for name in COLUMNS)
                print(f"{broker.name:19} {connections:5} {row}", flush=True)
    finally:
        for broker in brokers:
            broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=lambda text: text.split(","), default=NAMES)
    parser.add_argument("--connections", type=lambda text: [int(n) for n in text.split(",")], default=[100, 500, 2000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="odradek-door-"))
    try:
        print(f"{'':19} {'N':>5} " + " ".join(f"{name:>13}" for name in COLUMNS), flush=True)
        for connections in options.connections:
            compared(options, connections, folder / str(connections))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
