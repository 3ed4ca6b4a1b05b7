"""What is particular to kafkajs; what every client can is in the other modules on clients.

Its consumer is always a member of a group, so it waits for groups.  What the other modules read with it comes through
the call below that consumer, with its decoding of answers and its codecs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from clients import javascript
from clients.client import BEGINNING, ClientError
from clients.fixtures import BROKERS, broker, new_topic
from clients.javascript import KafkaJs
from clients.librdkafka import Librdkafka
from clients.records import RECORDS, Record
from clients.spoken import watched

pytestmark = pytest.mark.skipif(javascript.missing is not None, reason=javascript.missing or "")

CLIENTS = 200
SPOKEN = {
    "Produce": [7],
    "Fetch": [11],
    "ListOffsets": [3],
    "Metadata": [6],
    "ApiVersions": [2],
    "CreateTopics": [3],
    "DeleteTopics": [1],
    "CreatePartitions": [1],
    "DescribeConfigs": [2],
}


@pytest.fixture(scope="module", params=BROKERS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(request.param, tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def kafkajs(address: str) -> Iterator[KafkaJs]:
    with closing(KafkaJs(address)) as client:
        yield client


def test_the_versions_it_speaks(tmp_path: Path) -> None:
    with watched(tmp_path) as seen, closing(KafkaJs(seen.address)) as client:
        client.create_topic("t", 1, {})
        client.create_partitions("t", 2)
        client.describe_configs("t")
        client.produce("t", "snappy", RECORDS[:3])
        assert len(client.consume("t", BEGINNING, 3)) == 3
        client.delete_topic("t")
        assert seen.spoken() == SPOKEN


def test_many_producers_at_once(address: str, kafkajs: KafkaJs) -> None:
    topic = new_topic(address)
    kafkajs.hold(topic, CLIENTS)
    found = Librdkafka(address).consume(topic, BEGINNING, CLIENTS)
    assert {one.record.value for one in found} == {b"%d" % number for number in range(CLIENTS)}
    kafkajs.release()


def test_a_null_header_is_beyond_it(address: str, kafkajs: KafkaJs) -> None:
    """So no test that it writes one."""
    with pytest.raises(ClientError, match="Received null"):
        kafkajs.produce(new_topic(address), "none", [Record(b"k", b"v", (("null", None),))])


@pytest.mark.xfail(reason="needs InitProducerId", raises=ClientError, strict=True)
def test_an_idempotent_producer(tmp_path: Path) -> None:
    with broker("odradek", tmp_path) as running, closing(KafkaJs(running)) as client:
        client.produce_idempotently(new_topic(running), RECORDS[:1])


@pytest.mark.xfail(reason="needs consumer groups", raises=ClientError, strict=True)
def test_its_own_consumer(tmp_path: Path) -> None:
    with broker("odradek", tmp_path) as running, closing(KafkaJs(running)) as client:
        topic = new_topic(running)
        client.produce(topic, "none", RECORDS[:1])
        client.consume_as_member(topic)
