"""Start positions of a reader: the beginning, the end, an offset, a time, and an offset outside the log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Literal

import pytest
from clients.client import BEGINNING, END, ClientError, Start
from clients.fixtures import BROKERS, new_topic, opened
from clients.librdkafka import Librdkafka
from clients.records import NOW_MS, Read, Record
from clients.registry import CLIENTS, Opened, parameter

from odradek.base.errors import ErrorCode

COUNT = 10
STEP_MS = 1000
TIMES = [NOW_MS + STEP_MS * number for number in range(COUNT)]
RECORDS = [Record(b"%d" % number, b"value", (), at) for number, at in enumerate(TIMES)]
PAST_THE_END = 99
# The error of a consumer without a reset policy: Kafka's own, or librdkafka's _AUTO_OFFSET_RESET.
NO_RESET = {"confluent-kafka": -140}
# It requests the missing offset again.
WITHOUT_RESET = {"kafka-go"}
# It always has a reset policy.
ALWAYS_RESETS = {"kafkajs"}

CLIENT_PARAMETERS = [parameter(name) for name in CLIENTS]
RESETTING = [parameter(name) for name in CLIENTS if name not in WITHOUT_RESET]
COMPLAINING = [parameter(name) for name in CLIENTS if name not in ALWAYS_RESETS]


@pytest.fixture(scope="module", params=BROKERS)
def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(request.param, tmp_path_factory.mktemp("positions")) as those:
        yield those


@pytest.fixture(scope="module")
def topic(clients: Opened) -> str:
    """Create a topic of ten records, a second apart, in two batches."""
    name = new_topic(clients.address)
    for half in (RECORDS[:5], RECORDS[5:]):
        Librdkafka(clients.address).produce(name, "none", half)
    return name


@pytest.mark.parametrize(
    ("start", "first"),
    [
        pytest.param(BEGINNING, 0, id="beginning"),
        pytest.param(Start("offset", 0), 0, id="offset 0"),
        pytest.param(Start("offset", 3), 3, id="inside a batch"),
        pytest.param(Start("offset", 5), 5, id="start of a batch"),
        pytest.param(Start("offset", COUNT - 1), COUNT - 1, id="last"),
        pytest.param(Start("time", TIMES[0] - 1), 0, id="before all times"),
        pytest.param(Start("time", TIMES[3]), 3, id="a time"),
        pytest.param(Start("time", TIMES[3] + 1), 4, id="between times"),
        pytest.param(Start("time", TIMES[-1]), COUNT - 1, id="last time"),
    ],
)
@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_reading_starts_at_the_requested_position(
    clients: Opened, topic: str, name: str, start: Start, first: int
) -> None:
    found = clients[name].consume(topic, start, COUNT - first)
    assert [one.offset for one in found] == list(range(first, COUNT))
    assert [one.record for one in found] == RECORDS[first:]


@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_reading_from_the_end_returns_later_records_only(clients: Opened, name: str) -> None:
    check_only_later_records(clients, name, END)


@pytest.mark.parametrize("name", RESETTING)
def test_an_offset_outside_the_log_is_reset_to_the_latest(clients: Opened, name: str) -> None:
    check_only_later_records(clients, name, Start("offset", PAST_THE_END, "latest"))


@pytest.mark.parametrize("name", RESETTING)
def test_an_offset_outside_the_log_is_reset_to_the_earliest(clients: Opened, topic: str, name: str) -> None:
    found = clients[name].consume(topic, Start("offset", PAST_THE_END, "earliest"), COUNT)
    assert [one.record for one in found] == RECORDS


@pytest.mark.parametrize("name", COMPLAINING)
def test_an_offset_outside_the_log_fails_without_a_reset_policy(clients: Opened, topic: str, name: str) -> None:
    with pytest.raises(ClientError) as seen:
        clients[name].consume(topic, Start("offset", PAST_THE_END, "none"), 1)
    if seen.value.code is None:
        assert re.search("offset ?out ?of ?range", seen.value.text, re.IGNORECASE), seen.value
    else:
        assert seen.value.code == NO_RESET.get(name, ErrorCode.OFFSET_OUT_OF_RANGE), seen.value


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("name", CLIENT_PARAMETERS)
def test_a_reader_at_the_end_gets_new_records(clients: Opened, name: str, codec: Literal["none", "zstd"]) -> None:
    """The reader starts at the next offset to be written, so its fetch waits."""
    topic, writer = new_topic(clients.address), Librdkafka(clients.address)
    writer.produce(topic, codec, RECORDS[:2])
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(clients[name].consume, topic, Start("offset", 2), 2)
        wait([reading], 0.2)  # Most likely it waits by now; nothing depends on it.
        writer.produce(topic, codec, RECORDS[2:4])
        assert reading.result() == [Read(2, RECORDS[2]), Read(3, RECORDS[3])]


def check_only_later_records(clients: Opened, name: str, start: Start) -> None:
    """Check that the reader gets later records only; write until it reads, as its start is not known."""
    topic, writer = new_topic(clients.address), Librdkafka(clients.address)
    writer.produce(topic, "none", RECORDS)
    with ThreadPoolExecutor(1) as thread:
        reading: Future[list[Read]] = thread.submit(clients[name].consume, topic, start, 1)
        while not wait([reading], 0.1).done:
            writer.produce(topic, "none", [Record(b"later", b"value")])
        (found,) = reading.result()
    assert found.offset >= COUNT
    assert found.record.key == b"later"
