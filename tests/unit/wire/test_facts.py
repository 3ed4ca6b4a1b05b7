"""Every field of every message class against the protocol's facts: nothing is left out, nothing is made up."""

from __future__ import annotations

import pytest
from wire_support import (
    FOREVER,
    PRIMITIVES,
    FieldFact,
    common,
    default_value,
    element_type,
    interval,
    message_facts,
    snake_case,
    table,
)

from odradek.wire.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.wire.catalog import APIS, HEADERS
from odradek.wire.primitives import Primitive
from odradek.wire.schema import Field, default_instance, schema_of

CLASSES = [cls for pair in (*APIS.values(), HEADERS) for cls in pair]
FACT_OF = {fact["name"]: fact for fact in message_facts() if fact.get("era") != "pre-4.0"}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_message_is_as_the_facts_say(cls: type) -> None:
    schema, fact = schema_of(cls), FACT_OF[cls.__name__]
    flexible = interval(fact["flexibleVersions"])
    assert schema.kind == fact["type"]
    assert schema.api_key == fact.get("apiKey")
    assert schema.versions == interval(fact["validVersions"])
    assert schema.flexible_from == (flexible.start if flexible else None)
    check_struct(cls, fact["fields"], schema.versions)


def check_struct(cls: type, facts: list[FieldFact], versions: range) -> None:
    fields = schema_of(cls).fields
    assert [field.name for field in fields] == [snake_case(fact["name"]) for fact in facts]
    for field, fact in zip(fields, facts, strict=True):
        check_field(field, fact, versions)


def check_field(field: Field, fact: FieldFact, versions: range) -> None:
    """`versions` are those in which the struct around it exists: what is said beyond them means nothing."""
    kind, is_array = element_type(fact)
    here = common(interval(fact["versions"]), versions)
    assert field.is_array == is_array
    assert [v for v in versions if field.exists_in(v)] == list(here)
    assert [v for v in here if field.is_nullable_in(v)] == list(common(interval(fact.get("nullableVersions")), here))
    assert [v for v in here if field.is_tagged_in(v)] == list(common(interval(fact.get("taggedVersions")), here))
    assert field.life.tag == fact.get("tag")
    assert field.life.flexible == (fact.get("flexibleVersions") != "none")
    if here != versions:
        assert field.life.ignorable == fact.get("ignorable", False)
        assert not field.is_required, "a field that may be absent needs no value"
    if kind in PRIMITIVES:
        assert field.type is PRIMITIVES[kind]
        check_default(field, default_value(fact))
        return
    assert not isinstance(field.type, Primitive)
    assert field.type.__name__ == kind
    check_default(field, None if fact.get("default") == "null" else [] if is_array else default_instance(field.type))
    check_struct(field.type, fact["fields"], here)


def check_default(field: Field, default: object) -> None:
    assert field.default == default
    assert type(field.default) is type(default)


def test_api_keys_are_those_of_the_table() -> None:
    rows = list(table("api_keys.tsv"))
    assert {key.title: key.value for key in ApiKey} == {row["name"]: int(row["key"]) for row in rows}
    expected = {row["name"]: None if row["flexible_from"] == "-" else int(row["flexible_from"]) for row in rows}
    assert {key.title: version for key, version in FLEXIBLE_FROM.items()} == expected


def test_api_keys_and_messages_agree_on_flexible_versions() -> None:
    for fact in FACT_OF.values():
        if "apiKey" in fact:
            flexible = interval(fact["flexibleVersions"])
            assert FLEXIBLE_FROM[ApiKey(fact["apiKey"])] == (flexible.start if flexible else None), fact["name"]


def test_every_api_here_has_its_request_and_its_response() -> None:
    for key, (request, response) in APIS.items():
        assert request.__name__ == f"{key.title}Request"
        assert response.__name__ == f"{key.title}Response"


def test_forever_is_long_enough() -> None:
    assert all(len(schema_of(cls).versions) < FOREVER for cls in CLASSES)
