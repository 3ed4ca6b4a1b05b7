"""Five hundred clients on one broker at the same time, all of them served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]  # Has no types.
from clients.client import BEGINNING
from clients.fixtures import BROKERS, new_topic, opened
from clients.librdkafka import Librdkafka
from clients.registry import Opened

COUNT = 500
CALM = {"metadata_max_age_ms": 600_000, "request_timeout_ms": 300_000}
SECONDS_MAX = 600


@pytest.fixture(scope="module", params=BROKERS)
def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(request.param, tmp_path_factory.mktemp("many")) as those:
        yield those


async def started(stack: AsyncExitStack, make: type, **settings: object) -> list[AIOKafkaProducer]:
    made = [make(**settings, **CALM) for _ in range(COUNT)]
    await asyncio.gather(*(one.start() for one in made))
    for one in made:
        stack.push_async_callback(one.stop)
    return made


def test_five_hundred_producers_are_served(clients: Opened) -> None:
    topic = new_topic(clients.address)

    async def run() -> list[int]:
        async with AsyncExitStack() as stack:
            # A producer has at least one connection from its start to its stop, so there are COUNT at once.
            producers = await started(stack, AIOKafkaProducer, bootstrap_servers=clients.address, acks="all")
            sending = (one.send_and_wait(topic, b"%d" % number, partition=0) for number, one in enumerate(producers))
            return [sent.offset for sent in await asyncio.gather(*sending)]

    offsets = asyncio.run(asyncio.wait_for(run(), SECONDS_MAX))
    assert sorted(offsets) == list(range(COUNT))
    found = Librdkafka(clients.address).consume(topic, BEGINNING, COUNT)
    values = {one.offset: one.record.value for one in found}
    assert [values[offset] for offset in offsets] == [b"%d" % number for number in range(COUNT)]


def test_five_hundred_consumers_are_served(clients: Opened) -> None:
    """All of them wait at the end of the log, and one record wakes them all."""
    topic = new_topic(clients.address)

    async def run() -> list[bytes | None]:
        async with AsyncExitStack() as stack:
            settings = {"bootstrap_servers": clients.address, "group_id": None, "fetch_max_wait_ms": 5000}
            consumers = await started(stack, AIOKafkaConsumer, **settings)
            partition = TopicPartition(topic, 0)
            for one in consumers:
                one.assign([partition])
                one.seek(partition, 0)
            waiting = asyncio.gather(*(one.getone() for one in consumers))
            async with AIOKafkaProducer(bootstrap_servers=clients.address) as producer:
                await producer.send_and_wait(topic, b"for all", partition=0)
            return [one.value for one in await waiting]

    assert asyncio.run(asyncio.wait_for(run(), SECONDS_MAX)) == [b"for all"] * COUNT
