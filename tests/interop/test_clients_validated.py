"""Every client with a broker that validates records: valid ones are accepted, and missing keys are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest
from clients.client import BEGINNING, ClientError, as_shown
from clients.fixtures import new_topic
from clients.records import RECORDS, Record
from clients.registry import CLIENTS, WITHOUT_TRANSACTIONS, Opened, parameter

from odradek.base.errors import ErrorCode
from odradek.testing import Broker

CLIENT_PARAMETERS = [parameter(name) for name in CLIENTS]
UNTOLD = {None, -1}  # Some report no number, and aiokafka does not know this one.
VALUES = [b"%d" % number for number in range(50)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"odradek.record.validation": "records"}) as running:
        yield running


@pytest.fixture(scope="module")
def clients(broker: Broker) -> Iterator[Opened]:
    with closing(Opened(broker.address)) as those:
        yield those


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_valid_records_are_accepted(clients: Opened, name: str) -> None:
    topic, client = new_topic(clients.address), clients[name]
    records = [record for record in RECORDS if client.writes(record)]
    for codec in client.codecs:
        client.produce(topic, codec, records)
    found = client.consume(topic, BEGINNING, len(records) * len(client.codecs))
    for one, sent in zip(found, records * len(client.codecs), strict=True):
        assert one.record[:3] == as_shown(client, sent)[:3]


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_a_compacted_topic_rejects_records_without_a_key(clients: Opened, name: str) -> None:
    topic, client = new_topic(clients.address, configs={"cleanup.policy": "compact"}), clients[name]
    with pytest.raises(ClientError) as refused:
        client.produce(topic, "none", [Record(None, b"without")])
    assert refused.value.code in {ErrorCode.INVALID_RECORD, *UNTOLD}, refused.value
    client.produce(topic, "none", [Record(b"key", b"with")])
    (found,) = client.consume(topic, BEGINNING, 1)
    assert (found.offset, found.record.value) == (0, b"with")


@pytest.mark.parametrize("name", [parameter(name) for name in ("confluent-kafka", "kafka-python", "java-4.4.0")])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_retried_batch_is_written_once(broker: Broker, clients: Opened, name: str, codec: str) -> None:
    topic = f"again-{uuid4().hex[:12]}"
    broker.create_topic(topic, partitions=1)
    with broker.faults.drop("Produce", times=2, after=True, topic=topic) as fault:
        clients[name].produce(topic, codec, [Record(b"key", value) for value in VALUES], idempotent=True)
        assert fault.count == 2
    found = clients[name].consume(topic, BEGINNING, len(VALUES))
    assert [one.record.value for one in found] == VALUES


@pytest.mark.parametrize("name", [parameter(name) for name in CLIENTS if name not in WITHOUT_TRANSACTIONS])
def test_committed_records_are_readable(clients: Opened, name: str) -> None:
    topic = new_topic(clients.address)
    with closing(clients.transactional(name).transactor(f"validated-{uuid4().hex[:12]}")) as transactor:
        for values, is_kept in ((VALUES[:5], True), (VALUES[5:9], False), (VALUES[9:12], True)):
            transactor.begin()
            transactor.send(topic, values)
            (transactor.commit if is_kept else transactor.abort)()
    found = clients["confluent-kafka"].consume(topic, BEGINNING, 8, committed=True)
    assert [one.record.value for one in found] == VALUES[:5] + VALUES[9:12]
