"""Retention of topics with cleanup.policy=compact,delete by the log cleaner; with --soak also on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from clients.fixtures import BROKERS, broker
from test_retention import ANY_TIME, MIB, OLD, alter, start_of, starts_of, write

from odradek.client.admin import admin
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from support.waiting import until

SELDOM, OFTEN = "3600000", "200"
BOTH = {"cleanup.policy": "compact,delete"}
DELETE = {"cleanup.policy": "delete"}


@contextmanager
def running(kind: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Cluster]:
    settings = {"log.initial.task.delay.ms": "0", **settings}
    with broker(kind, folder, settings) as address, Cluster(ClientConfig(address)) as cluster:
        yield cluster


def expired(cluster: Cluster, name: str, policy: Mapping[str, str], partitions: int = 1) -> str:
    """Create a topic of two segments per partition, of which all but the active one are expired."""
    configs = {"segment.bytes": str(MIB), "retention.ms": "-1"} | ANY_TIME | dict(policy)
    admin.create_topics(cluster, [admin.NewTopic(name, partitions, 1, configs)])
    cluster.topic(name)
    write(cluster, name, [OLD] * 20, partitions)
    alter(cluster, name, {"retention.ms": "3600000"})
    return name


@pytest.mark.parametrize("kind", BROKERS)
def test_the_cleaner_deletes_at_its_own_interval(kind: str, tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": SELDOM, "log.cleaner.backoff.ms": OFTEN}
    with running(kind, tmp_path, settings) as cluster:
        plain, both = expired(cluster, "plain", DELETE), expired(cluster, "both", BOTH)
        until(lambda: start_of(cluster, both) == 20)
        assert start_of(cluster, plain) == 0, "nobody looks at it for an hour"


@pytest.mark.parametrize("kind", BROKERS)
def test_a_disabled_cleaner_deletes_nothing(kind: str, tmp_path: Path) -> None:
    settings = {
        "log.retention.check.interval.ms": OFTEN,
        "log.cleaner.backoff.ms": OFTEN,
        "log.cleaner.enable": "false",
    }
    with running(kind, tmp_path, settings) as cluster:
        both = expired(cluster, "both", BOTH)
        # Records written later are deleted later on the same broker, so that what is there then stays.
        for number in range(2):
            later = expired(cluster, f"plain-{number}", DELETE, partitions := len(cluster.metadata.brokers))
            until(lambda later=later: starts_of(cluster, later, partitions) == {20})  # type: ignore[misc]
        assert start_of(cluster, both) == 0
        alter(cluster, both, DELETE)
        until(lambda: start_of(cluster, both) == 20)
