"""How soon a cluster of three is whole again: a follower that was away, a leader that was stopped, killed or paused.

A follower is killed and started when its leader has `AWAY_BYTES` more: the seconds are from the start of its process
until it is in sync, and the processor time of all three.  A leader goes while a librdkafka producer sends a record of
its partition every few ms with acks=all: the seconds are the longest without an acknowledgement.  The producer gives up
a request after REQUEST_MS, as by default it would wait for a paused broker for a minute; all else is its default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import measure
from clusters import BROKERS, Cluster, until
from confluent_kafka import Producer
from replicas_topics import Topic

Numbers = dict[str, float]

AWAY_BYTES = 1 << 30
REQUEST_MS = 2000
EVERY_SECONDS = 0.005
BEFORE_SECONDS = 3
AFTER_SECONDS = 3
LEADER, FOLLOWER = BROKERS[0], BROKERS[2]

Rows = dict[str, dict[str, Numbers]]
PrintFigures = Callable[[str, Mapping[str, Numbers]], None]


def measured(rows: Rows, clusters: Mapping[str, Cluster], print_figures: PrintFigures) -> None:
    parts: dict[str, Callable[[Cluster], Numbers]] = {
        "a follower was away": follower_away,
        "a leader is stopped": lambda cluster: leader_away(cluster, cluster.stop_one, cluster.start_again),
        "a leader is killed": lambda cluster: leader_away(cluster, cluster.kill, cluster.start_again),
        "a leader is paused": lambda cluster: leader_away(cluster, cluster.pause, cluster.resume),
    }
    for part, play in parts.items():
        rows[part] = {name: play(cluster) for name, cluster in clusters.items()}
        print_figures(part, rows[part])


def follower_away(cluster: Cluster) -> Numbers:
    with Topic(cluster, 1, replicas=3) as topic:
        cluster.kill(FOLLOWER)
        until(lambda: FOLLOWER not in topic.in_sync()[0])
        topic.fill(AWAY_BYTES, 1024)
        cpu = sum_without(cluster, FOLLOWER)
        begun = time.monotonic()
        cluster.start_again(FOLLOWER)
        ready = time.monotonic() - begun
        until(lambda: FOLLOWER in topic.in_sync()[0])
        seconds = time.monotonic() - begun
        return {"s": seconds, "ready_s": ready, "cpu_s": cluster.cpu_seconds() - cpu}


def sum_without(cluster: Cluster, broker: int) -> float:
    return sum(measure.cpu_seconds(cluster.pid(other)) for other in BROKERS if other != broker)


def leader_away(cluster: Cluster, away: Callable[[int], None], back: Callable[[int], None]) -> Numbers:
    with Topic(cluster, 1, replicas=3) as topic:
        sending = _Sending(topic)
        sending.send_for(BEFORE_SECONDS)
        away(LEADER)
        lost_at = time.monotonic()
        while not sending.has_answer_since(lost_at + REQUEST_MS / 1000) or time.monotonic() < lost_at + AFTER_SECONDS:
            sending.send_for(EVERY_SECONDS)
        longest = sending.longest()
        sending.end()
        back(LEADER)
        until(lambda: set(BROKERS) == topic.in_sync()[0])
        return {"s": longest, "failures": sending.failures}


class _Sending:
    """Sends records and remembers when they were acknowledged."""

    def __init__(self, topic: Topic) -> None:
        settings = {
            "bootstrap.servers": topic.address,
            "acks": "all",
            "enable.idempotence": True,
            "socket.timeout.ms": REQUEST_MS,
            "request.timeout.ms": REQUEST_MS,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._topic = topic.name
        self._answered: list[float] = []
        self.failures = 0

    def send_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._delivered)
            self._producer.poll(EVERY_SECONDS)

    def _delivered(self, error: object, _message: object) -> None:
        self.failures += error is not None
        self._answered.append(time.monotonic())

    def has_answer_since(self, moment: float) -> bool:
        return bool(self._answered) and self._answered[-1] >= moment

    def longest(self) -> float:
        """Returns the longest time between two acknowledgements."""
        return max(later - sooner for sooner, later in zip(self._answered, self._answered[1:], strict=False))

    def end(self) -> None:
        if self._producer.flush(60):
            raise RuntimeError("records were not delivered")
