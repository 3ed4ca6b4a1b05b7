"""The protocol definition (messages.json) for tests: message classes, random messages, and a reference encoder."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated, TypedDict

from odradek.wire.schema.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Primitive,
)
from odradek.wire.schema.schema import OWN_TAGS_FROM, Field, Marker, default_instance, message, schema_of
from odradek.wire.schema.schema import struct as struct_class

FACTS = Path(__file__).parents[2] / "protocol"
FOREVER = 1 << 15

PRIMITIVES: dict[str, Primitive] = {
    each.name: each for each in (INT8, INT16, INT32, INT64, UINT16, UINT32, FLOAT64, BOOL, UUID, STRING, BYTES, RECORDS)
}
PYTHON_TYPES: dict[str, type] = {"float64": float, "bool": bool, "string": str, "uuid": bytes, "bytes": bytes}


class FieldFact(TypedDict, total=False):
    name: str
    type: str
    versions: str
    nullableVersions: str
    taggedVersions: str
    tag: int
    default: str
    ignorable: bool
    flexibleVersions: str
    fields: list[FieldFact]


class MessageFact(TypedDict, total=False):
    name: str
    type: str
    apiKey: int
    validVersions: str
    flexibleVersions: str
    era: str
    fields: list[FieldFact]
    commonStructs: list[FieldFact]


def message_facts() -> list[MessageFact]:
    facts: list[MessageFact] = json.loads((FACTS / "messages.json").read_text())
    return facts


def record_facts() -> dict[str, MessageFact]:
    """Return the records of Kafka 4's internal topics by name.

    Kafka's definitions give two fields no default because they contain null without quotes. This code follows the
    evident intention, as Kafka's code does.
    """
    facts: list[MessageFact] = json.loads((FACTS / "records.json").read_text())
    found = {fact["name"]: fact for fact in facts if fact.get("era") == "trunk"}
    del field_fact(found["ConsumerGroupMemberMetadataValue"]["fields"], "ClassicMemberMetadata")["default"]
    shared = found["ConsumerGroupCurrentMemberAssignmentValue"]["commonStructs"]
    del field_fact(field_fact(shared, "TopicPartitions")["fields"], "AssignmentEpochs")["default"]
    return found


def field_fact(facts: list[FieldFact], name: str) -> FieldFact:
    return next(fact for fact in facts if fact["name"] == name)


def table(name: str) -> Iterator[dict[str, str]]:
    lines = [line for line in (FACTS / name).read_text().splitlines() if not line.startswith("#")]
    head = lines[0].split("\t")
    for line in lines[1:]:
        yield dict(zip(head, line.split("\t"), strict=True))


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def interval(text: str | None) -> range:
    """Convert "3+", "3", "3-5", "none" or nothing to a range."""
    if text is None or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), FOREVER)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def common(*ranges: range) -> range:
    start, stop = max(each.start for each in ranges), min(each.stop for each in ranges)
    return range(start, stop) if start < stop else range(0)


def element_type(fact: FieldFact) -> tuple[str, bool]:
    """Return the name of the type, and whether the field is an array of it."""
    return fact["type"].removeprefix("[]"), fact["type"].startswith("[]")


def default_value(fact: FieldFact) -> object:
    """Return the default of a field that is not a struct; without one in the schema, Kafka's implicit default."""
    kind, is_array = element_type(fact)
    text = fact.get("default")
    if text == "null":
        return None
    if is_array:
        return []
    if kind == "bool":
        return text == "true"
    if kind == "string":
        return text or ""
    if kind in ("int8", "int16", "int32", "int64", "uint16", "uint32"):
        return int(text or "0", 0)
    return PRIMITIVES[kind].zero


def existence(fact: FieldFact) -> range:
    """Return the versions of a field. If it is tagged only in some of them, Kafka has the field only in those."""
    versions, tagged = interval(fact["versions"]), interval(fact.get("taggedVersions"))
    return common(versions, tagged) if tagged else versions


# Classes held against the facts.


def check_message(cls: type, fact: MessageFact) -> None:
    schema, flexible = schema_of(cls), interval(fact["flexibleVersions"])
    assert schema.name == fact["name"]
    assert schema.kind == fact["type"]
    assert schema.api_key == fact.get("apiKey")
    assert schema.versions == interval(fact["validVersions"])
    assert schema.flexible_from == (flexible.start if flexible else None)
    shared = {part["name"]: part["fields"] for part in fact.get("commonStructs", ())}
    check_struct(cls, fact["fields"], schema.versions, shared)


def check_struct(cls: type, facts: list[FieldFact], versions: range, shared: dict[str, list[FieldFact]]) -> None:
    fields = [field for field in schema_of(cls).fields if not is_our_own(field)]
    assert [field.name for field in fields] == [snake_case(fact["name"]) for fact in facts]
    for field, fact in zip(fields, facts, strict=True):
        check_field(field, fact, versions, shared)


def kafkas_name(cls: type) -> str:
    """Return a struct's name in Kafka, without the prefix that distinguishes structs of request and response."""
    return re.sub("^(Request|Response)(?=[A-Z])", "", cls.__name__)


def is_our_own(field: Field) -> bool:
    return field.life.tag is not None and field.life.tag >= OWN_TAGS_FROM


def check_field(field: Field, fact: FieldFact, versions: range, shared: dict[str, list[FieldFact]]) -> None:
    """Check a field against the schema, in the versions in which its struct exists."""
    kind, is_array = element_type(fact)
    here = common(existence(fact), versions)
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
    assert kafkas_name(field.type) == kind
    check_default(field, None if fact.get("default") == "null" else [] if is_array else default_instance(field.type))
    check_struct(field.type, fact["fields"] if "fields" in fact else shared[kind], here, shared)


def check_default(field: Field, default: object) -> None:
    assert field.default == default
    assert type(field.default) is type(default)


# Classes made from the facts.


def build(fact: MessageFact) -> type:
    """Return the message class that a developer would write for this definition."""
    structs: dict[str, type] = {}
    waiting = list(fact.get("commonStructs", ()))
    while waiting:  # They refer to each other in any order.
        part = waiting.pop(0)
        if all(name in structs for name in _struct_names(part["fields"]) - {part["name"]}):
            structs[part["name"]] = struct_class(_body(part["name"], part["fields"], structs))
        else:
            waiting.append(part)
    versions = interval(fact["validVersions"])
    flexible = interval(fact["flexibleVersions"])
    kind = fact["type"]
    assert kind in ("request", "response", "header", "data", "coordinator-key", "coordinator-value")
    return message(
        kind=kind,  # type: ignore[arg-type]  # It is one of them.
        versions=(versions[0], versions[-1]),
        flexible_from=flexible.start if flexible else None,
        api_key=fact.get("apiKey"),
    )(_body(fact["name"], fact["fields"], structs))


def _struct_names(facts: list[FieldFact]) -> set[str]:
    names = set[str]()
    for fact in facts:
        kind, _ = element_type(fact)
        if "fields" in fact:
            names |= _struct_names(fact["fields"])
        elif kind not in PRIMITIVES:
            names.add(kind)
    return names


def _body(name: str, facts: list[FieldFact], structs: dict[str, type]) -> type:
    annotations: dict[str, object] = {}
    body: dict[str, object] = {"__annotations__": annotations}
    for fact in facts:
        attribute = snake_case(fact["name"])
        annotations[attribute] = _annotation(fact, structs)
        body[attribute] = _marker(fact)
    return type(name, (), body)


def _annotation(fact: FieldFact, structs: dict[str, type]) -> object:
    kind, is_array = element_type(fact)
    if "fields" in fact:
        structs[kind] = struct_class(_body(kind, fact["fields"], structs))
    python_type = PYTHON_TYPES.get(kind, int)
    annotation: object = Annotated[python_type, PRIMITIVES[kind]] if kind in PRIMITIVES else structs[kind]
    if is_array:
        annotation = list[annotation]  # type: ignore[valid-type]  # Made at run time.
    return annotation | None if "nullableVersions" in fact else annotation  # type: ignore[operator]


def _marker(fact: FieldFact) -> Marker:
    versions, nullable = existence(fact), interval(fact.get("nullableVersions"))
    kind, is_array = element_type(fact)
    has_value = "default" in fact or (kind in PRIMITIVES and not is_array)
    values: dict[str, object] = {"default": default_value(fact)} if has_value else {}
    return Marker(
        **values,  # type: ignore[arg-type]
        since=versions.start,
        until=None if versions.stop == FOREVER else versions.stop - 1,
        nullable_since=nullable.start if nullable else None,
        nullable_until=nullable.stop - 1 if nullable and nullable.stop != FOREVER else None,
        tag=fact.get("tag"),
        tag_since=interval(fact["taggedVersions"]).start if "taggedVersions" in fact else None,
        ignorable=fact.get("ignorable", False),
        flexible=fact.get("flexibleVersions") != "none",
    )


# Random messages.

NUMBERS: dict[str, tuple[int, int]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
TEXTS = ("", "a", "topic-1", "żółć", "日本", "x" * 126, "y" * 127, "z" * 300)


class Maker:
    """Random messages that a version can represent.

    is_tame: error codes and times stay in the range that other codecs accept. has_own_tags: tagged fields specific
    to Odradek may be set, too.
    """

    def __init__(
        self, seed: object, is_tame: bool = False, has_tagged_structs: bool = True, has_own_tags: bool = True
    ) -> None:
        self._random = Random(str(seed))
        self._is_tame = is_tame
        self._has_tagged_structs = has_tagged_structs
        self._has_own_tags = has_own_tags

    def message(self, cls: type, version: int) -> object:
        fields = schema_of(cls).fields
        values = {each.name: self._value(each, version) for each in fields if self._is_set(each, version)}
        return cls(**{each.name: each.default for each in fields} | values)

    def _is_set(self, field: Field, version: int) -> bool:
        if field.life.tag is None:
            return field.exists_in(version)
        if not self._has_own_tags and is_our_own(field):
            return False
        is_left_out = not self._has_tagged_structs and not isinstance(field.type, Primitive)
        return field.exists_in(version) and not is_left_out and self._random.random() < 0.6

    def _value(self, field: Field, version: int) -> object:
        if field.is_nullable_in(version) and self._random.random() < 0.3:
            return None
        if not field.is_array:
            return self._one(field, version)
        few = not isinstance(field.type, Primitive) or self._random.random() < 0.9
        return [self._one(field, version) for _ in range(self._random.choice((0, 1, 2, 3) if few else (126, 127, 200)))]

    def _one(self, field: Field, version: int) -> object:
        if not isinstance(field.type, Primitive):
            return self.message(field.type, version)
        name = field.type.name
        if name in NUMBERS:
            return self._number(field.name, *NUMBERS[name])
        if name == "string":
            return self._random.choice(TEXTS)
        if name == "bool":
            return self._random.random() < 0.5
        if name == "float64":
            return self._random.uniform(-1e9, 1e9)
        size = 16 if name == "uuid" else self._random.choice((0, 1, 61, 126, 127, 400))
        return self._random.randbytes(size)

    def _number(self, name: str, first: int, last: int) -> int:
        if self._is_tame and name.endswith("error_code"):
            return self._random.randint(-1, 119)
        if self._is_tame and (name.endswith("_ms") or "timestamp" in name):
            first, last = 0, min(last, 1 << 40)
        if self._random.random() < 0.3:
            return self._random.choice((max(first, -1), 0, 1, last, first))
        return self._random.randint(first, last)


# The dumb encoder: nothing compiled, nothing shared with the code under test but the class of the message.


def dumb_encode(fact: MessageFact, value: object, version: int) -> bytes:
    return _DumbEncoder(fact, version).struct(fact["fields"], value)


class _DumbEncoder:
    def __init__(self, fact: MessageFact, version: int) -> None:
        self.version = version
        self.is_flexible = version in interval(fact["flexibleVersions"])
        self.structs = {part["name"]: part["fields"] for part in fact.get("commonStructs", ())}

    def fields_of(self, fact: FieldFact) -> list[FieldFact]:
        return fact["fields"] if "fields" in fact else self.structs[element_type(fact)[0]]

    def struct(self, facts: list[FieldFact], value: object) -> bytes:
        out, tags = b"", dict[int, bytes]()
        for fact in facts:
            if self.version not in existence(fact):
                continue
            item = getattr(value, snake_case(fact["name"]))
            if self.version not in interval(fact.get("taggedVersions")):
                out += self.field(fact, item)
            elif not self.is_default(fact, item):
                tags[fact["tag"]] = self.field(fact, item)
        if self.is_flexible:
            out += varint(len(tags))
            for tag, encoded in sorted(tags.items()):
                out += varint(tag) + varint(len(encoded)) + encoded
        return out

    def is_default(self, fact: FieldFact, value: object) -> bool:
        kind, is_array = element_type(fact)
        if kind in PRIMITIVES or is_array or fact.get("default") == "null":
            return value == default_value(fact)
        if value is None:
            return False
        return all(self.is_default(each, getattr(value, snake_case(each["name"]))) for each in self.fields_of(fact))

    def field(self, fact: FieldFact, value: object) -> bytes:
        compact = self.is_flexible and fact.get("flexibleVersions") != "none"
        kind, is_array = element_type(fact)
        if is_array:
            if value is None:
                return length(None, compact, ">i")
            assert isinstance(value, list)
            return length(len(value), compact, ">i") + b"".join(self.one(fact, item, compact) for item in value)
        if kind not in PRIMITIVES and "nullableVersions" in fact:
            null = b"\x00" if "tag" in fact else b"\xff"
            return null if value is None else b"\x01" + self.one(fact, value, compact)
        return self.one(fact, value, compact)

    def one(self, fact: FieldFact, value: object, compact: bool) -> bytes:
        kind, _ = element_type(fact)
        if kind not in PRIMITIVES:
            return self.struct(self.fields_of(fact), value)
        if kind == "uuid":
            assert isinstance(value, bytes)
            return value
        if kind not in ("string", "bytes", "records"):
            return struct.pack(">" + PRIMITIVES[kind].code, value)
        width = ">h" if kind == "string" else ">i"
        if value is None:
            return length(None, compact, width)
        raw = value.encode() if isinstance(value, str) else value
        assert isinstance(raw, bytes)
        return length(len(raw), compact, width) + raw


def length(size: int | None, compact: bool, width: str) -> bytes:
    if compact:
        return varint(0 if size is None else size + 1)
    return struct.pack(width, -1 if size is None else size)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)
