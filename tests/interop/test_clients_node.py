"""Special behaviour of kafkajs; the other modules on clients test the behaviour that all share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from clients import javascript
from clients.client import BEGINNING, ClientError
from clients.fixtures import BROKERS, broker, new_topic
from clients.javascript import KafkaJs
from clients.librdkafka import Librdkafka
from clients.records import Record

pytestmark = pytest.mark.skipif(javascript.missing is not None, reason=javascript.missing or "")

CLIENTS = 200


@pytest.fixture(scope="module", params=BROKERS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(request.param, tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def kafkajs(address: str) -> Iterator[KafkaJs]:
    with closing(KafkaJs(address)) as client:
        yield client


def test_many_kafkajs_producers_are_served(address: str, kafkajs: KafkaJs) -> None:
    topic = new_topic(address)
    kafkajs.hold(topic, CLIENTS)
    found = Librdkafka(address).consume(topic, BEGINNING, CLIENTS)
    assert {one.record.value for one in found} == {b"%d" % number for number in range(CLIENTS)}
    kafkajs.release()


def test_kafkajs_cannot_write_a_null_header(address: str, kafkajs: KafkaJs) -> None:
    """So no test has it write one."""
    with pytest.raises(ClientError, match="Received null"):
        kafkajs.produce(new_topic(address), "none", [Record(b"k", b"v", (("null", None),))])
