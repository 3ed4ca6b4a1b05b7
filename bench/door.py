"""How long new connections wait for their first answer, at a broker that is busy.

    python bench/door.py [--targets odradek,kafka,bound] [--connections 100,500,2000] [--rounds 3]

N connections open at once, each asks one small produce after the other, and later others come one by one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import frames
import load_door
from brokers import BROKERS, Broker, new_topic
from load import Crowd

SECONDS = 2.0
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


def measured(broker: Broker, connections: int) -> dict[str, float]:
    topic = new_topic()
    data, _ = frames.batch(100, 1)
    broker.create(topic, 1, {})
    try:
        frame = frames.produce(topic, 0, 1, data)
        plan = load_door.Plan(broker.port, topic, frame, connections, SECONDS)
        with Crowd([plan.work()]) as crowd:
            crowd.ready()
            (report,) = crowd.go()
        return report.numbers
    finally:
        broker.delete(topic)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=lambda text: text.split(","), default=["odradek", "kafka", "bound"])
    parser.add_argument("--connections", type=lambda text: [int(n) for n in text.split(",")], default=[100, 500, 2000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="odradek-door-"))
    brokers = [BROKERS[name](folder / name) for name in options.targets]
    try:
        for broker in brokers:
            broker.start()
            measured(broker, 50)
        print(f"{'':10} {'N':>5} " + " ".join(f"{name:>13}" for name in COLUMNS), flush=True)
        for connections in options.connections:
            for _ in range(options.rounds):
                for broker in brokers:
                    found = measured(broker, connections)
                    row = " ".join(f"{found[name]:13.1f}" for name in COLUMNS)
                    print(f"{broker.name:10} {connections:5} {row}", flush=True)
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
