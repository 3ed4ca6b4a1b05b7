"""Comparison of every field of every message class with the protocol definition: none is missing, none is invented."""

from __future__ import annotations

import pytest
from wire_support import FOREVER, check_message, interval, message_facts, table

from odradek.wire.catalog import APIS, HEADERS
from odradek.wire.schema.api_keys import FLEXIBLE_FROM, OWN_KEYS_FROM, ApiKey
from odradek.wire.schema.schema import schema_of

KAFKAS = {key: pair for key, pair in APIS.items() if key < OWN_KEYS_FROM}
CLASSES = [cls for pair in (*KAFKAS.values(), HEADERS) for cls in pair]
# Definitions from before 4.0 come first, so that a later one of the same name replaces them.
FACT_OF = {fact["name"]: fact for fact in sorted(message_facts(), key=lambda fact: fact.get("era") != "pre-4.0")}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_message_matches_kafkas_definition(cls: type) -> None:
    check_message(cls, FACT_OF[cls.__name__])


def test_api_keys_match_the_table() -> None:
    rows = list(table("api_keys.tsv"))
    ours = [key for key in ApiKey if key < OWN_KEYS_FROM]
    assert {key.title: key.value for key in ours} == {row["name"]: int(row["key"]) for row in rows}
    expected = {row["name"]: None if row["flexible_from"] == "-" else int(row["flexible_from"]) for row in rows}
    assert {key.title: FLEXIBLE_FROM[key] for key in ours} == expected
    assert FLEXIBLE_FROM.keys() == set(ApiKey)


def test_api_keys_and_messages_agree_on_flexible_versions() -> None:
    for fact in FACT_OF.values():
        if "apiKey" in fact:
            flexible = interval(fact["flexibleVersions"])
            assert FLEXIBLE_FROM[ApiKey(fact["apiKey"])] == (flexible.start if flexible else None), fact["name"]


def test_every_api_has_a_request_and_a_response() -> None:
    for key, (request, response) in APIS.items():
        assert request.__name__ == f"{key.title}Request"
        assert response.__name__ == f"{key.title}Response"


def test_forever_exceeds_all_version_counts() -> None:
    assert all(len(schema_of(cls).versions) < FOREVER for cls in CLASSES)
