"""Transactions of every client that supports them: visible records, offsets in transactions, and fencing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import NamedTuple
from uuid import uuid4

import pytest
from clients.client import BEGINNING, ClientError
from clients.fixtures import BROKERS, new_topic, opened
from clients.groups import until
from clients.librdkafka import Librdkafka
from clients.records import Record
from clients.registry import CLIENTS, WITHOUT_TRANSACTIONS, Opened, lacks, parameter
from confluent_kafka import KafkaError

from odradek.base.errors import ErrorCode

# It returns markers as if they were records, and does not leave out aborted records.
SHOWS_MARKERS = {"kafka-go"}
# Kafka's errors by the version of the request, and librdkafka's own.
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, KafkaError._FENCED}
TRANSACTIONAL = [name for name in CLIENTS if name not in WITHOUT_TRANSACTIONS]


@pytest.fixture(scope="module", params=BROKERS)
def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(request.param, tmp_path_factory.mktemp("transactions")) as those:
        yield those


class Written(NamedTuple):
    topic: str
    committed: list[bytes]
    all: list[bytes]


@pytest.fixture(scope="module")
def written(clients: Opened) -> Written:
    """Write with every client two committed transactions and an aborted one between them."""
    found = Written(new_topic(clients.address), [], [])
    for name in TRANSACTIONAL:
        if lacks(name) is None:
            write(clients, name, found)
    return found


def write(clients: Opened, name: str, written: Written) -> None:
    with closing(clients.transactional(name).transactor(new_id())) as transactor:
        for number, is_kept in enumerate((True, False, True)):
            values = [f"{name} {number} {part}".encode() for part in range(3)]
            transactor.begin()
            transactor.send(written.topic, values)
            (transactor.commit if is_kept else transactor.abort)()
            written.all.extend(values)
            written.committed.extend(values if is_kept else [])


@pytest.mark.parametrize("reader", [parameter(name) for name in CLIENTS if name not in SHOWS_MARKERS])
def test_readers_see_committed_records(clients: Opened, written: Written, reader: str) -> None:
    found = clients[reader].consume(written.topic, BEGINNING, len(written.committed), committed=True)
    assert [one.record.value for one in found] == written.committed
    found = clients[reader].consume(written.topic, BEGINNING, len(written.all))
    assert [one.record.value for one in found] == written.all


def test_open_transactions_are_invisible_to_read_committed(clients: Opened) -> None:
    topic, names = new_topic(clients.address), [name for name in CLIENTS if lacks(name) is None]
    writer = Librdkafka(clients.address)
    writer.produce(topic, "none", [Record(None, b"before")])
    with closing(writer.transactor(new_id())) as transactor, ThreadPoolExecutor(len(names)) as threads:
        transactor.begin()
        transactor.send(topic, [b"open"])
        reading = [threads.submit(clients[name].consume, topic, BEGINNING, 2, committed=True) for name in names]
        assert not wait(reading, 1).done
        transactor.commit()
        for name, one in zip(names, reading, strict=True):
            assert [found.record.value for found in one.result()] == [b"before", b"open"], name


@pytest.mark.parametrize("name", [parameter(name) for name in TRANSACTIONAL])
def test_offsets_are_part_of_the_transaction(clients: Opened, name: str) -> None:
    client, teller = clients.transactional(name), clients.administrator(name)
    source, sink, group = new_topic(clients.address), new_topic(clients.address), f"group-{uuid4().hex[:12]}"
    Librdkafka(clients.address).produce(source, "none", [Record(None, b"%d" % number) for number in range(6)])

    def committed() -> int | None:
        one = teller.committed(group, source).get(0)
        return None if one is None else one.offset

    with closing(client.transactor(new_id(), group=group, source=source)) as transactor:
        transactor.begin()
        transactor.send(sink, [b"one"])
        transactor.send_offset(2)
        transactor.commit()
        until(lambda: committed() == 2 or None, lambda: f"{committed()} is committed")
        transactor.begin()
        transactor.send(sink, [b"two"])
        transactor.send_offset(4)
        transactor.abort()
        transactor.begin()
        transactor.send(sink, [b"three"])
        assert committed() == 2
        transactor.send_offset(6)
        transactor.commit()
    until(lambda: committed() == 6 or None, lambda: f"{committed()} is committed")
    found = Librdkafka(clients.address).consume(sink, BEGINNING, 2, committed=True)
    assert [one.record.value for one in found] == [b"one", b"three"]


@pytest.mark.parametrize("name", [parameter(name) for name in TRANSACTIONAL])
def test_a_newer_producer_fences_the_older(clients: Opened, name: str) -> None:
    topic, client, transactional_id = new_topic(clients.address), clients.transactional(name), new_id()
    with closing(client.transactor(transactional_id)) as first:
        first.begin()
        first.send(topic, [b"of the first"])
        with closing(client.transactor(transactional_id)) as second:
            second.begin()
            second.send(topic, [b"of the second"])
            with pytest.raises(ClientError) as fenced:
                first.commit()
            assert fenced.value.code in FENCED or "newer producer" in fenced.value.text, fenced.value
            second.commit()
    found = Librdkafka(clients.address).consume(topic, BEGINNING, 1, committed=True)
    assert [one.record.value for one in found] == [b"of the second"]


def new_id() -> str:
    return f"transactional-{uuid4().hex[:12]}"
