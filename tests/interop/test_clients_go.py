"""Special behaviour of the Go clients; the other modules on clients test the behaviour that all share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from clients import golang
from clients.client import BEGINNING, ClientError, Start
from clients.fixtures import BROKERS, broker, new_topic
from clients.golang import FranzGo, Sarama
from clients.librdkafka import Librdkafka
from clients.records import RECORDS, Record
from clients.used_versions import watched

from support.serving import serving

pytestmark = pytest.mark.skipif(golang.missing is not None, reason=golang.missing or "")

CLIENTS = 500
# The versions of Produce and Fetch that sarama derives from a broker's version.
SARAMA_VERSIONS = {
    "0.11.0.0": (3, 5),
    "1.0.0": (5, 6),
    "1.1.0": (5, 7),
    "2.0.0": (6, 8),
    "2.1.0": (7, 10),
    "2.4.0": (8, 11),
    "2.8.0": (9, 12),
    "4.3.0": (10, 12),
}


@pytest.fixture(scope="module", params=BROKERS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(request.param, tmp_path_factory.mktemp("go")) as running:
        yield running


@pytest.mark.parametrize("version", SARAMA_VERSIONS)
def test_sarama_works_with_settings_for_older_brokers(tmp_path: Path, version: str) -> None:
    codec = "snappy" if version < "2.1" else "zstd"  # It supports zstd from that version on.
    with watched(tmp_path) as seen, closing(Sarama(seen.address, version)) as client:
        topic = new_topic(seen.address)
        client.produce(topic, codec, RECORDS)
        found = client.consume(topic, BEGINNING, len(RECORDS))
        assert [one.record for one in found] == list(RECORDS)
        versions = seen.used_versions()
        assert (*versions["Produce"], *versions["Fetch"]) == SARAMA_VERSIONS[version]


def test_five_hundred_franz_go_clients_are_served(tmp_path: Path) -> None:
    with serving(tmp_path) as running, closing(FranzGo(running.address)) as client:
        topic = new_topic(running.address)
        before = _sockets(running.pid)
        client.hold(topic, CLIENTS)
        assert _sockets(running.pid) - before >= CLIENTS
        found = Librdkafka(running.address).consume(topic, BEGINNING, CLIENTS)
        assert {one.record.value for one in found} == {b"%d" % number for number in range(CLIENTS)}
        client.release()
        assert "Traceback" not in running.errors()


def test_many_sarama_producers_are_served(address: str) -> None:
    topic = new_topic(address)
    with closing(Sarama(address)) as client:
        client.hold(topic, 100)
        found = client.consume(topic, BEGINNING, 100)
        assert {one.record.value for one in found} == {b"%d" % number for number in range(100)}
        client.release()


def test_franz_go_refuses_oversized_records_before_sending(address: str) -> None:
    """Its own limit, by default the broker's, gives the broker's words and code."""
    topic = new_topic(address)
    larger = [Record(b"k", b"x" * 1_100_000)]
    with closing(FranzGo(address)) as client:
        with pytest.raises(ClientError, match=r"MESSAGE_TOO_LARGE.*\(uncompressed_bytes=1100001\)"):
            client.produce(topic, "none", larger)
        with pytest.raises(ClientError, match=r"MESSAGE_TOO_LARGE.*compressed_bytes="):
            client.produce(topic, "none", larger, record_bytes_max=2_000_000)
        assert client.list_offsets(topic, "latest") == 0


def test_franz_go_handles_a_recreated_topic(address: str) -> None:
    """Its requests name topics by id, and a recreated topic has a new one."""
    with closing(FranzGo(address)) as client:
        for value in (b"first", b"second"):
            client.create_topic("again", 1, {})
            client.produce("again", "none", [Record(None, value)])
            (found,) = client.consume("again", Start("offset", 0), 1)
            assert (found.offset, found.record.value) == (0, value)
            client.delete_topic("again")


def _sockets(pid: int) -> int:
    count = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed after it was listed.
            count += str(one.readlink()).startswith("socket:")
    return count
