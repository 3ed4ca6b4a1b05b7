"""Topics, their configuration, the cluster and offsets in the administration APIs of every client, and in kcat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

import pytest
from clients.client import SECONDS_MAX, Administrator, ClientError
from clients.fixtures import BROKERS, new_topic, opened
from clients.kcat import Kcat
from clients.librdkafka import Librdkafka
from clients.records import NOW_MS, Record
from clients.registry import ADMINISTRATORS, Opened, parameter

from odradek.base.errors import ErrorCode

# The second is the newest; the third and the last are older than the ones before them.
TIMES = [NOW_MS + seconds * 1000 for seconds in (0, 50, 30, 40, 20)]

# These clients return the end offset if no record is that late.
NOTHING_SO_LATE = {"franz-go": len(TIMES), "kafkajs": len(TIMES)}


@pytest.fixture(scope="module", params=BROKERS)
def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(request.param, tmp_path_factory.mktemp("admin")) as those:
        yield those


@pytest.fixture(params=[parameter(name) for name in ADMINISTRATORS])
def admin(request: pytest.FixtureRequest, clients: Opened) -> Administrator:
    return clients.administrator(request.param)


@pytest.fixture(scope="module")
def timed(clients: Opened) -> str:
    topic = new_topic(clients.address)
    records = [Record(b"%d" % number, b"value", (), at) for number, at in enumerate(TIMES)]
    Librdkafka(clients.address).produce(topic, "none", records)
    return topic


def test_a_topic_is_created_altered_and_deleted(admin: Administrator) -> None:
    topic, cluster = f"admin-{uuid4().hex[:12]}", admin.describe_cluster()
    admin.create_topic(topic, 2, {"retention.ms": "123456", "cleanup.policy": "compact,delete"})
    made = _settled(admin, topic, 2)
    assert made.keys() == {0, 1}
    assert set(made.values()) <= cluster.brokers.keys()
    configs = admin.describe_configs(topic)
    assert configs["retention.ms"] == "123456"
    assert configs["cleanup.policy"] == "compact,delete"
    assert configs["segment.bytes"] == str(1 << 30)
    admin.create_partitions(topic, 5)
    grown = _settled(admin, topic, 5)
    assert grown.keys() == set(range(5))
    assert set(grown.values()) == set(cluster.brokers)
    admin.delete_topic(topic)
    with pytest.raises(ClientError) as missing:
        admin.delete_topic(topic)
    assert missing.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _settled(admin: Administrator, topic: str, partitions: int) -> Mapping[int, int]:
    """Wait for the change: Apache Kafka answers it before its metadata shows it."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        with suppress(ClientError):
            leaders = admin.describe_topic(topic).leaders
            if len(leaders) == partitions and -1 not in leaders.values():
                return leaders
        time.sleep(0.05)
    raise AssertionError(f"{topic} has not {partitions} partitions with a leader each")


def test_the_cluster_is_described(clients: Opened, admin: Administrator) -> None:
    cluster = admin.describe_cluster()
    assert clients.address in cluster.brokers.values()
    assert cluster.controller in cluster.brokers
    described = Librdkafka(clients.address).describe_cluster()
    assert cluster.brokers == described.brokers
    assert described.id and cluster.id in (described.id, None if admin.name in WITHOUT_CLUSTER_ID else described.id)


# These are gaps of the clients with any broker: the same tests find them with Apache Kafka.
WITHOUT_CLUSTER_ID = {"sarama"}
RETURNS_END_FOR_LATER_TIMES = {"franz-go"}
GAPS = {
    ("aiokafka", "describe what is unknown"): "its description creates the topic",
    ("kafka-python", "configs of what is unknown"): "it does not look at the error",
    ("kafkajs", "create what exists"): "it takes that for done",
}


class Names(NamedTuple):
    existing: str  # With three partitions.
    unknown: str


WRONG: dict[str, tuple[Callable[[Administrator, Names], object], ErrorCode]] = {
    "create what exists": (
        lambda admin, names: admin.create_topic(names.existing, 1, {}),
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ),
    "create with a bad name": (
        lambda admin, names: admin.create_topic(f"{names.unknown}/slash", 1, {}),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "create with a bad config": (
        lambda admin, names: admin.create_topic(names.unknown, 1, {"retention.ms": "soon"}),
        ErrorCode.INVALID_CONFIG,
    ),
    "create with an unknown config": (
        lambda admin, names: admin.create_topic(names.unknown, 1, {"no.such.key": "1"}),
        ErrorCode.INVALID_CONFIG,
    ),
    "fewer partitions": (
        lambda admin, names: admin.create_partitions(names.existing, 1),
        ErrorCode.INVALID_PARTITIONS,
    ),
    "as many partitions": (
        lambda admin, names: admin.create_partitions(names.existing, 3),
        ErrorCode.INVALID_PARTITIONS,
    ),
    "partitions of what is unknown": (
        lambda admin, names: admin.create_partitions(names.unknown, 3),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "describe what is unknown": (
        lambda admin, names: admin.describe_topic(names.unknown),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "configs of what is unknown": (
        lambda admin, names: admin.describe_configs(names.unknown),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "delete what is unknown": (
        lambda admin, names: admin.delete_topic(names.unknown),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
}


@pytest.fixture(scope="module")
def existing(clients: Opened) -> str:
    return new_topic(clients.address, 3)


@pytest.mark.parametrize("wrong", WRONG)
def test_refused_requests_return_kafkas_error(admin: Administrator, existing: str, wrong: str) -> None:
    if reason := GAPS.get((admin.name, wrong)):
        pytest.skip(reason)
    action, code = WRONG[wrong]
    with pytest.raises(ClientError) as refused:
        action(admin, Names(existing, f"unknown-{uuid4().hex[:12]}"))
    assert refused.value.code == code, refused.value
    assert set(admin.describe_topic(existing).leaders) == {0, 1, 2}


def test_offsets_are_listed_by_time(admin: Administrator, timed: str) -> None:
    assert admin.list_offsets(timed, "earliest") == 0
    assert admin.list_offsets(timed, "latest") == len(TIMES)
    if "max timestamp" in admin.answers:
        assert admin.list_offsets(timed, "max timestamp") == 1
    assert admin.list_offsets(timed, TIMES[0]) == 0
    assert admin.list_offsets(timed, TIMES[0] + 1) == 1
    assert admin.list_offsets(timed, TIMES[1]) == 1
    assert admin.list_offsets(timed, TIMES[1] + 1) == NOTHING_SO_LATE.get(admin.name, -1)


@pytest.fixture
def kcat(clients: Opened) -> Kcat:
    client = clients["kcat"]
    assert isinstance(client, Kcat)
    return client


@pytest.mark.parametrize("name", [parameter("kcat")])
def test_kcat_lists_topics_and_offsets(clients: Opened, kcat: Kcat, existing: str, timed: str, name: str) -> None:
    listed = kcat.list_topic(existing)
    brokers = {broker["id"]: broker["name"] for broker in listed["brokers"]}
    assert clients.address in brokers.values()
    assert listed["controllerid"] in brokers
    (topic,) = listed["topics"]
    assert topic["topic"] == existing
    assert [(one["partition"], one["isrs"]) for one in topic["partitions"]] == [
        (index, [{"id": one["leader"]}]) for index, one in enumerate(topic["partitions"])
    ]
    assert {one["leader"] for one in topic["partitions"]} == brokers.keys()  # It has three partitions.
    assert [kcat.list_offsets(timed, "earliest"), kcat.list_offsets(timed, "latest")] == [0, len(TIMES)]
    assert [kcat.list_offsets(timed, at) for at in (TIMES[0] + 1, TIMES[1] + 1)] == [1, -1]
