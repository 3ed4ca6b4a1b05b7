"""How throughput grows with the brokers of one machine: six producers and six consumers on `serve --brokers N`."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import clusters
import frames
import load
import load_consume
import load_produce
import measure
from brokers import new_topic
from confluent_kafka.admin import AdminClient, NewTopic
from replicas_topics import SECONDS_MAX

from support.serving_cluster import ServingCluster

Numbers = dict[str, float]

COUNTS = (1, 2, 3, 4)
CLIENTS = 6
IN_FLIGHT = 5
WARMUP_SECONDS = 1
FILLED_MAX = 1 << 30


def measured(seconds: float) -> dict[str, Numbers]:
    return {f"{count} brokers": _of(count, seconds) for count in COUNTS}


def _of(count: int, seconds: float) -> Numbers:
    folder = Path(tempfile.mkdtemp(prefix="odradek-growth-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = ServingCluster(folder, brokers=count)
        cluster.environment |= clusters.environment()
        stack.enter_context(cluster)
        topic = new_topic()
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        places = [[partition % count + 1] for partition in range(CLIENTS)]
        admin.create_topics([NewTopic(topic, CLIENTS, replica_assignment=places)])[topic].result(SECONDS_MAX)
        clusters.until(
            lambda: all(
                [one.leader] == places[index]
                for index, one in admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions.items()
            )
        )
        ports = [cluster.port + place[0] - 1 for place in places]
        batch = frames.batch(100, 16384)
        made = [_producer(topic, index, port, batch, seconds) for index, port in enumerate(ports)]
        numbers, requests = _load(cluster, [plan.work() for plan in made], "produced")
        read = [_consumer(topic, index, port, batch, min(requests)) for index, port in enumerate(ports)]
        for plan in read:
            plan.seconds = seconds
        return numbers | _load(cluster, [plan.work() for plan in read], "consumed")[0]


def _load(cluster: ServingCluster, works, what: str) -> tuple[Numbers, list[int]]:  # type: ignore[no-untyped-def]
    def cpu_seconds() -> float:
        return sum(measure.cpu_seconds(pid) for pid in cluster.pids().values())

    reports, cpu = load.measured(works, cpu_seconds)
    seconds = max(one.ended for one in reports) - min(one.begun for one in reports)
    rate = sum(one.records for one in reports) / seconds
    return {f"{what} k/s": rate / 1e3, f"{what} cores": cpu / seconds}, [one.requests for one in reports]


def _producer(topic: str, partition: int, port: int, batch: frames.Batches, seconds: float) -> load_produce.Plan:
    return load_produce.Plan(
        port=port,
        topic=topic,
        ring=load_produce.Ring([frames.produce(topic, partition, 1, batch.data)], IN_FLIGHT),
        records_per_request=batch.records,
        window=IN_FLIGHT,
        warmup_seconds=WARMUP_SECONDS,
        seconds=seconds,
        requests_max=FILLED_MAX // len(batch.data),
    )


def _consumer(topic: str, partition: int, port: int, batch: frames.Batches, units: int) -> load_consume.Plan:
    return load_consume.Plan(
        port=port,
        topic=topic,
        partition=partition,
        units=units,
        unit_bytes=len(batch.data),
        unit_records=batch.records,
        verifies=True,
        warmup_seconds=WARMUP_SECONDS,
        seconds=1,
    )
