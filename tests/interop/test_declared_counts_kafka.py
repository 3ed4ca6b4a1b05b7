"""Requests with false counts of elements and tagged fields, to Odradek and to Apache Kafka 4.4, which limits them.

CVE-2026-111108 and CVE-2026-111115: until 4.3.1, Kafka allocated what a request declared. Kafka limits each array to
1,000,000 elements and each tagged section to 10,000 fields. Odradek limits the sections alike, and all elements and
fields of a request together to 100,000. Beyond its limit each closes the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

import pytest
from kafka_peer import REAL_KAFKA, KafkaBroker

from odradek.base.limits import DECODED_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from odradek.testing import Broker
from odradek.wire.schema.varint import uvarint
from support.raw_client import RawClient, raw_frame

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

METADATA, API_VERSIONS = 3, 18
NO_TAGS = b"\0"
SOFTWARE = uvarint(2) + b"a" + uvarint(2) + b"1"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.port


@pytest.fixture(scope="module")
def ours() -> Iterator[int]:
    with Broker() as broker:
        yield broker.port


def fields(count: int) -> bytes:
    """Return a section of unknown, empty fields."""
    return uvarint(count) + b"".join(uvarint(1_000 + tag) + b"\0" for tag in range(count))


def topics(count: int) -> bytes:
    """Return a Metadata request for so many topics, which both brokers parse alike."""
    return raw_frame(METADATA, 4, pack(">i", count) + b"\0\1x" * count + b"\0")


def header(tags: bytes) -> bytes:
    """Return a Metadata request for no topic: ApiVersions is answered whatever its header is (docs/DIFFERENCES.md)."""
    return raw_frame(METADATA, 9, uvarint(1) + bytes(3) + NO_TAGS, tags=tags)


def body(tags: bytes) -> bytes:
    return raw_frame(API_VERSIONS, 3, SOFTWARE + tags, tags=NO_TAGS)


def is_closed(port: int, request: bytes) -> bool:
    with RawClient(port) as client:
        client.send(request)
        return client.is_closed()


@pytest.mark.parametrize(
    "request_",
    [
        header(fields(TAGGED_FIELDS_MAX)),
        body(fields(TAGGED_FIELDS_MAX)),
        topics(REQUEST_ELEMENTS_MAX),
    ],
    ids=["header", "body", "elements"],
)
def test_counts_at_the_bound_are_answered(kafka: int, ours: int, request_: bytes) -> None:
    assert not is_closed(kafka, request_)
    assert not is_closed(ours, request_)


@pytest.mark.parametrize(
    "request_",
    [
        header(fields(TAGGED_FIELDS_MAX + 1)),
        body(fields(TAGGED_FIELDS_MAX + 1)),
        header(uvarint(20_000_000)),
        body(uvarint(20_000_000)),
        topics(DECODED_ELEMENTS_MAX + 1),
        raw_frame(METADATA, 4, pack(">i", 2**31 - 1) + b"\0"),
    ],
    ids=["header", "body", "header without bytes", "body without bytes", "elements", "elements without bytes"],
)
def test_counts_beyond_the_bound_close_the_connection(kafka: int, ours: int, request_: bytes) -> None:
    assert is_closed(kafka, request_)
    assert is_closed(ours, request_)


def test_kafka_answers_more_elements_than_odradek(kafka: int, ours: int) -> None:
    assert not is_closed(kafka, topics(REQUEST_ELEMENTS_MAX + 1))
    assert is_closed(ours, topics(REQUEST_ELEMENTS_MAX + 1))
