"""Completeness of the compiler: every message of the protocol, encoded and decoded in each of its versions."""

from __future__ import annotations

import pytest
from wire_support import Maker, MessageFact, build, dumb_encode, interval, message_facts

from odradek.wire.schema.compile import Reader, decode, encode, reader
from odradek.wire.schema.malformed import Malformed

pytestmark = pytest.mark.slow

FACTS = message_facts()


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact['name']} {fact.get('era', '')}".strip())
def test_every_message_round_trips_in_every_version(fact: MessageFact) -> None:
    """The encoding matches the reference encoder, and is decoded unchanged to the last byte."""
    cls = build(fact)
    for version in interval(fact["validVersions"]):
        maker = Maker(f"{fact['name']} {version}")
        read: Reader[object] = reader(cls, version)
        for _ in range(3):
            message = maker.message(cls, version)
            data = encode(message, version)
            assert data == dumb_encode(fact, message, version), version
            assert read(data, 0) == (message, len(data)), version


def test_all_messages_are_defined() -> None:
    assert len(FACTS) == 204


@pytest.mark.parametrize("fact", FACTS[:40], ids=lambda fact: fact["name"])
def test_truncated_message_is_malformed(fact: MessageFact) -> None:
    cls, version = build(fact), interval(fact["validVersions"])[-1]
    data = encode(Maker(fact["name"]).message(cls, version), version)
    for size in {*range(min(len(data), 150)), *range(max(0, len(data) - 20), len(data))}:
        with pytest.raises(Malformed):
            decode(cls, version, data[:size])
