"""Promises and instructions of docs/CLUSTER.md for three replicas, carried out as a user does at a terminal."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from test_replication import BROKERS, PARTITIONS, TOPIC, consumed, logs, produced

from odradek.app.commands.cluster_command import DEGRADED
from odradek.app.main import main
from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

COUNT = 300
CREATED = ("--partitions", str(PARTITIONS), "--replication-factor", "3", "--config", "min.insync.replicas=2")


class Case:
    """A cluster with a topic, and the number of acknowledged records."""

    def __init__(self, cluster: ServingCluster) -> None:
        self.cluster = cluster
        self.count = 0
        assert main(["topic", "create", TOPIC, *CREATED, "-b", cluster.address]) == 0
        self.write()

    def write(self) -> None:
        produced(self.cluster, self.count, COUNT)
        self.count += COUNT

    def status(self) -> int:
        return main(["cluster", "status", "-b", self.cluster.address])

    def check(self) -> None:
        """Check that all replicas are in sync again, and have every acknowledged record, equal everywhere."""
        until(lambda: self.status() == 0)
        assert sorted(consumed(self.cluster, self.count)) == list(range(self.count))
        data = [logs(self.folder(broker)) for broker in BROKERS]
        assert data[0] == data[1] == data[2]

    def folder(self, broker: int) -> Path:
        return self.cluster.directory / "data" / f"broker{broker}"

    @contextmanager
    def killed(self, broker: int) -> Iterator[None]:
        """Kill a broker, and start it again at the end."""
        pid, ready = self.cluster.pids()[broker], len(self.cluster.lines)
        self.cluster.signal_first(signal.SIGSTOP)  # The caller starts it again.
        try:
            os.kill(pid, signal.SIGKILL)
            yield
        finally:
            self.cluster.signal_first(signal.SIGCONT)
        until(lambda: len(self.cluster.lines) > ready)

    def controller(self) -> int:
        return AdminClient({"bootstrap.servers": self.cluster.address}).list_topics(timeout=SECONDS_MAX).controller_id

    def replace_unnoticed(self, broker: int, lost: list[Path]) -> None:
        """Kill a broker and remove folders, while the others are paused until it is starting again."""
        message = f"unclean shutdown: broker {broker} waits"
        before = self.cluster.errors().count(message)
        pid, ready = self.cluster.pids()[broker], len(self.cluster.lines)
        others = [one for one in BROKERS if one != broker]
        for one in others:
            self.cluster.signal(one, signal.SIGSTOP)
        self.cluster.signal_first(signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        for folder in lost:
            shutil.rmtree(folder)
        self.cluster.signal_first(signal.SIGCONT)
        until(lambda: self.cluster.errors().count(message) > before)
        for one in others:
            self.cluster.signal(one, signal.SIGCONT)
        until(lambda: len(self.cluster.lines) > ready)


@pytest.mark.timeout(600)
def test_acks_all_records_survive_failures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ServingCluster(tmp_path) as cluster:
        case = Case(cluster)
        # All are killed at once: their writes are in the page cache.
        cluster.kill_all()
        cluster.start()
        case.check()
        # One lost the ends of its logs, as in a power failure; it leads one of them.
        with case.killed(1):
            for log in case.folder(1).glob(f"{TOPIC}-*/*.log"):
                os.truncate(log, log.stat().st_size // 2)
            case.write()
        case.check()
        # One lost its disk, and starts with an empty one.
        with case.killed(2):
            case.write()
            capfd.readouterr()
            until(lambda: case.status() == DEGRADED and "broker 2 is down" in capfd.readouterr().out)
            shutil.rmtree(case.folder(2))
        case.check()
        # The controller lost its disk and restarts before any broker noticed: it waits until they have.
        # The same with some of its logs: the others know as little of those as of a disk.
        controller = case.controller()
        case.replace_unnoticed(controller, [case.folder(controller)])
        case.check()
        controller = case.controller()
        case.replace_unnoticed(controller, [*case.folder(controller).glob(f"{TOPIC}-*")])
        case.check()
        assert "Traceback" not in cluster.errors()


@pytest.mark.timeout(600)
def test_a_rolling_restart_is_invisible_to_producers(tmp_path: Path) -> None:
    """Each broker restarts once all replicas are in sync."""
    with ServingCluster(tmp_path) as cluster:
        case = Case(cluster)
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": cluster.address, "enable.idempotence": True, "log_level": 0})
        for broker in BROKERS:
            until(lambda: case.status() == 0)
            ready = len(cluster.lines)
            cluster.signal(broker, signal.SIGTERM)
            while len(cluster.lines) == ready:
                producer.produce(
                    TOPIC,
                    b"%d" % case.count,
                    partition=case.count % PARTITIONS,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                case.count += 1
                producer.poll(0.01)
        assert producer.flush(SECONDS_MAX) == 0
        assert not failures
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        assert len(admin.list_topics(timeout=SECONDS_MAX).brokers) == len(BROKERS)
        case.check()
