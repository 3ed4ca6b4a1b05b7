"""DescribeConfigs, DescribeCluster, DescribeTopicPartitions and ApiVersions."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import BASE, configs, partitions, software, topic
from differential.steps import BORDERLINE, CLUSTER, VALID, WRONG, Scenario, Step, request_step
from odradek.base.units import INT32_MAX
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest

NAME = "configured"
TOPIC, BROKER = 2, 4
NAMES = ["", " ", "a b", "-a", "a-", ".a", "a.", "a.b-c", "a_b", "\u00e9", "a" * 3000]


def scenarios() -> list[Scenario]:
    own = topic(NAME, 1, 1, retention_ms="5000", cleanup_policy="compact", compression_type="zstd")
    return [
        Scenario("describe prepared", [], [own, topic("pages-a", 3), topic("pages-b", 2), topic("pages-c", 1)]),
        *(Scenario(f"DescribeConfigs v{version} asked", list(_configs(version))) for version in range(1, 5)),
        *(Scenario(f"DescribeCluster v{version} asked", list(_cluster(version))) for version in range(3)),
        Scenario("DescribeTopicPartitions v0 asked", list(_partitions())),
        *(Scenario(f"ApiVersions v{version} asked", list(_software(version))) for version in range(6)),
    ]


def _configs(version: int) -> Iterator[Step]:
    resources: dict[str, tuple[int, str, list[str] | None]] = {
        "a topic": (TOPIC, NAME, None),
        "a topic's keys": (TOPIC, NAME, ["retention.ms", "no.such", "segment.bytes", "retention.ms"]),
        "no keys": (TOPIC, BASE, []),
        "a topic that is not there": (TOPIC, "nowhere", None),
        "a bad name": (TOPIC, "a/b", None),
        "an empty name": (TOPIC, "", None),
        "the broker": (BROKER, "1", None),
        "the broker's keys": (BROKER, "1", ["num.io.threads", "log.retention.hours", "no.such"]),
        "all brokers": (BROKER, "", None),
        "all brokers' keys": (BROKER, "", ["num.io.threads"]),
        "another broker": (BROKER, "2", None),
        "no broker's number": (BROKER, "x", None),
    }
    wrong = ("nowhere", "a/b", "2", "x")
    for text, resource in resources.items():
        form = WRONG if resource[1] in wrong else VALID
        yield request_step(text, form, configs(version, resource), version)
    for kind in (-1, 0, 1, 3, 5, 8, 16, 32, 127):
        yield request_step(f"resource type {kind}", WRONG, configs(version, (kind, "x", None)), version)
    yield request_step("no resources", BORDERLINE, configs(version), version)
    yield request_step(
        "several", VALID, configs(version, (TOPIC, BASE, ["retention.ms"]), (BROKER, "9", None)), version
    )
    plain = DescribeConfigsRequest(resources=configs(version, (TOPIC, NAME, ["retention.ms"])).resources)
    yield request_step("without synonyms", VALID, plain, version)
    often = [(TOPIC, BASE, ["retention.ms"])] * 18
    yield request_step("18 times the same", BORDERLINE, configs(version, *often), version)


def _cluster(version: int) -> Iterator[Step]:
    for operations in (False, True):
        request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
        yield request_step(f"operations {operations}", VALID, request, version)
    if version >= 1:
        for kind in (0, 2, 3, -1, 127):
            request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind)
            yield request_step(f"endpoint type {kind}", WRONG, request, version)
    if version >= 2:
        fenced = DescribeClusterRequest(include_cluster_authorized_operations=True, include_fenced_brokers=True)
        yield request_step("fenced brokers", BORDERLINE, fenced, version)


def _partitions() -> Iterator[Step]:
    pages = ["pages-c", "pages-a", "pages-b"]
    requests: dict[str, tuple[str, list[str], int, tuple[str, int] | None]] = {
        "three": (VALID, pages, 2000, None),
        "one twice": (BORDERLINE, ["pages-a", "pages-b", "pages-a"], 2000, None),
        "not there": (WRONG, ["nowhere", "pages-a"], 2000, None),
        "bad names": (WRONG, ["", "a/b", ".", "x" * 250], 2000, None),
        **{f"limit {limit}": (BORDERLINE, pages, limit, None) for limit in (1, 2, 3, 4, 5, 6, 0, -1, -9, INT32_MAX)},
        "from a partition": (VALID, pages, 2000, ("pages-a", 1)),
        "from the last": (BORDERLINE, pages, 2000, ("pages-b", 1)),
        "from behind the last": (BORDERLINE, pages, 2000, ("pages-b", 2)),
        "from far behind": (BORDERLINE, pages, 2000, ("pages-b", 7)),
        "from a topic not asked for": (WRONG, pages, 2000, ("pages", 0)),
        "from an empty name": (WRONG, pages, 2000, ("", 0)),
        "from below 0": (WRONG, pages, 2000, ("pages-a", -1)),
        "a page from a partition": (VALID, pages, 2, ("pages-a", 1)),
        "a page from behind": (BORDERLINE, pages, 1, ("pages-a", 3)),
        "not there, and a small page": (WRONG, ["nowhere", "pages-a", "pages-b"], 3, None),
    }
    for text, (form, names, limit, cursor) in requests.items():
        yield request_step(text, form, partitions(names, limit, cursor), 0)


def _software(version: int) -> Iterator[Step]:
    yield request_step("plain", VALID, software(), version)
    if version >= 3:
        for name in NAMES:
            yield request_step(f"name {name[:20]!r}", WRONG, software(name), version)
            yield request_step(f"version {name[:20]!r}", WRONG, software(version=name), version)
    if version >= 5:
        yield request_step("right cluster", VALID, software(cluster_id=CLUSTER, node_id=1), version)
        yield request_step("wrong cluster", WRONG, software(cluster_id="x" * 22), version)
        yield request_step("wrong broker", WRONG, software(node_id=2), version)
