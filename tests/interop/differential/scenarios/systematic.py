"""For every API and version: one field at a time with extreme values, one byte at a time changed, and odd headers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from differential.base import BASE, PLAIN, TRIMMED_BASE, topic
from differential.base_groups import PLAIN_OF_GROUPS
from differential.base_transactions import PLAIN_OF_TRANSACTIONS
from differential.batches import THEN_MS, batch
from differential.steps import (
    ANSWERS,
    BORDERLINE,
    CLIENT_ID,
    KAFKAS,
    NO_SUCH_ID,
    VALID,
    WRONG,
    Scenario,
    Step,
    request_step,
)
from odradek.api.table import Api
from odradek.base.units import INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX
from odradek.base.uuids import ZERO_UUID
from odradek.wire.schema.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.wire.schema.compile import decode, encode
from odradek.wire.schema.layout import FieldLayout, StructLayout, layout
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID
from odradek.wire.schema.schema import schema_of

# Waits, and changes that may or may not complete in time, are in other scenarios.
LEFT_ALONE = {"max_wait_ms", "timeout_ms", "validate_only", "allow_auto_topic_creation"}
NAMES_CREATE_BEFORE = 4
UNASKED = {
    (ApiKey.ALTER_CONFIGS, "resources twice"),  # Kafka does not answer.
    (ApiKey.LIST_CONFIG_RESOURCES, "resource_types empty"),  # All topics there are.
}
NEVER_ANSWERED = ("transactions", "empty")  # By Kafka.
COORDINATED = PLAIN_OF_GROUPS.keys() | PLAIN_OF_TRANSACTIONS.keys()
HIGHEST = {INT8: INT8_MAX, INT16: INT16_MAX, INT32: INT32_MAX, INT64: INT64_MAX}
LONG_ID = "c" * 3000


def scenarios() -> list[Scenario]:
    made = [
        Scenario(
            "base",
            [],
            topics=[topic(BASE, 2), topic(TRIMMED_BASE)],
            records=[(BASE, 0, batch(THEN_MS + 10 * number)) for number in range(10)],
        )
    ]
    for key, api in sorted(KAFKAS.items()):
        for version in api.versions:
            name = f"{ApiKey(key).title} v{version}"
            made.append(Scenario(f"{name} headers", list(_headers(api, version))))
            if _is_tested(api, version):
                made.append(Scenario(f"{name} fields", list(_fields(api, version))))
                made.append(Scenario(f"{name} bytes", list(_bytes(api, version))))
    return made


def _is_tested(api: Api, version: int) -> bool:
    """Return whether to test the version: for groups and transactions, first, last and first flexible one suffice."""
    first, last = api.versions.start, api.versions.stop - 1
    return api.key not in COORDINATED or version in (first, FLEXIBLE_FROM[api.key], last)


def _headers(api: Api, version: int) -> Iterator[Step]:
    message = PLAIN[int(api.key)](version)
    good = request_step("plain", VALID, message, version)
    yield good
    yield request_step("client id null", BORDERLINE, message, version, client_id=None)
    yield request_step("client id empty", BORDERLINE, message, version, client_id="")
    yield request_step("client id long", BORDERLINE, message, version, client_id=LONG_ID)
    yield _framed(good, "bytes behind the body", BORDERLINE, good.frame[4:] + b"\0\1\2")
    for cut in (1, 2, 5):
        yield _framed(good, f"{cut} bytes short", WRONG, good.frame[4:-cut])
    front = 4 + 8 + 2 + len(CLIENT_ID)
    yield _framed(good, "client id too long for the frame", WRONG, good.frame[4:12] + b"\x7f\xff" + good.frame[14:])
    yield _framed(good, "client id of length -2", WRONG, good.frame[4:12] + b"\xff\xfe" + good.frame[14:])
    flexible = FLEXIBLE_FROM[api.key]
    if flexible is not None and version >= flexible:
        header, body = good.frame[4:front], good.frame[front + 1 :]
        yield _framed(good, "unknown tag in the header", BORDERLINE, header + b"\1\x63\2ab" + body)
        yield _framed(good, "unknown tags, one twice", WRONG, header + b"\2\x63\2ab\x63\2ab" + body)
        yield _framed(good, "tag longer than the frame", WRONG, header + b"\1\x63\xff\x7fab" + body)
        yield _framed(good, "unknown tag in the body", BORDERLINE, good.frame[4:-1] + b"\1\xc8\1\3abc")


def _framed(like: Step, name: str, form: str, data: bytes) -> Step:
    return like._replace(name=name, form=form, frame=len(data).to_bytes(4) + data)


def _fields(api: Api, version: int) -> Iterator[Step]:
    message = PLAIN[int(api.key)](version)
    for name, varied in _varied(layout(api.request, version), message):
        if api.key is ApiKey.METADATA and version < NAMES_CREATE_BEFORE and not name.endswith("''"):
            continue  # Any other name would create a topic.
        if (api.key, name) in UNASKED:
            continue
        try:
            yield request_step(name, BORDERLINE, varied, version)
        except ValueError:
            continue  # This version cannot represent it.


def _varied(struct: StructLayout, message: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield copies of the message, each with one field at an extreme."""
    for field in (*struct.fields, *struct.tagged):
        if field.name in LEFT_ALONE:
            continue
        value = getattr(message, field.name)
        place = f"{path}{field.name}"
        for text, edge in _edges(field, value):
            if (place, text) == NEVER_ANSWERED:
                continue
            yield f"{place} {text}", _with(struct.cls, message, field.name, edge)
        yield from _inside(struct.cls, field, message, value, place)


def _with(cls: type, message: Any, name: str, value: Any) -> Any:
    """Return the message with another value in one field; default parts are shared, and must not be changed."""
    fields = {field.name: getattr(message, field.name) for field in schema_of(cls).fields}
    return cls(**(fields | {name: value}))


def _inside(cls: type, field: FieldLayout, message: Any, value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(field.type, StructLayout) or not value:
        return
    inner = value[0] if field.is_array else value
    for text, varied in _varied(field.type, inner, f"{place}."):
        yield text, _with(cls, message, field.name, [varied, *value[1:]] if field.is_array else varied)


def _edges(field: FieldLayout, value: Any) -> Iterator[tuple[str, Any]]:
    if field.is_nullable:
        yield "null", None
    if field.is_array:
        yield "empty", []
        if value:
            yield "twice", [*value, *value]
    elif field.type in HIGHEST:
        highest = HIGHEST[field.type]
        edges = dict.fromkeys((-highest - 1, -2, -1, 0, 1, 2, 99, highest))
        yield from ((str(number), number) for number in edges if number != value)
    elif field.type is BOOL:
        yield "the other", not value
    elif field.type is STRING:
        yield from ((repr(text), text) for text in ("", "-", "never-there", "\u00e9"))
    elif field.type is UUID:
        yield from (("zero", ZERO_UUID), ("unknown", NO_SUCH_ID))
    elif field.type is RECORDS:
        yield "empty", b""


def _bytes(api: Api, version: int) -> Iterator[Step]:
    """Set one byte of the body at a time to 0xFF: negative lengths, any numbers, invalid text, tags."""
    message = PLAIN[int(api.key)](version)
    good = request_step("plain", VALID, message, version)
    body = encode(message, version)
    header = good.frame[4 : -len(body)] if body else good.frame[4:]
    for at in range(len(body)):
        changed = body[:at] + b"\xff" + body[at + 1 :]
        if changed != body and not _is_left_alone(api, version, body, changed):
            yield _framed(good, f"byte {at} is 255", WRONG, header + changed)


def _is_left_alone(api: Api, version: int, body: bytes, data: bytes) -> bool:
    """Return True if the changed body would cause a wait or an actual change, or if the byte is in records."""
    if api.key is ApiKey.PRODUCE and batch() not in data:
        return True
    message: object = decode(api.request, version, body)
    try:
        changed: object = decode(api.request, version, data)
    except Malformed:
        return False
    if api.key is ApiKey.METADATA and version < NAMES_CREATE_BEFORE:
        return True
    return any(getattr(message, name, None) != getattr(changed, name, None) for name in LEFT_ALONE)


assert set(PLAIN) == set(KAFKAS), "every API that is answered has a plain request"
assert all(api.request in ANSWERS for api in KAFKAS.values())
