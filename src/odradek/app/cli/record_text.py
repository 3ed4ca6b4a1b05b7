"""Records as text lines, written by `odradek consume` and readable by `odradek produce`.

A JSON line is {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}. Keys and values that are not
UTF-8 become key_base64 and value_base64. Headers that are not UTF-8 or share a name become headers_base64, a list of
[name, base64 or null]. The round trip is lossless.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.base.units import INT32_MAX, INT64_MAX, TopicPartition
from odradek.record.columns import columns_of
from odradek.record.record_batch import Batch
from odradek.record.records import Record, iter_records

Headers = Sequence[tuple[str, bytes | None]]
Formatter = Callable[[TopicPartition, Batch, int, int], list[bytes]]

NULL = b"null"  # Kafka's console consumer prints this for a missing key or value.
JSON_FIELDS = frozenset(
    {
        "topic",
        "offset",
        "partition",
        "timestamp",
        "key",
        "key_base64",
        "value",
        "value_base64",
        "headers",
        "headers_base64",
    }
)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps would create one each time.


class NotARecord(ValueError):
    """Error for a line that is not a record; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class LineRecord:
    """Record parsed from a line; None where the producer decides."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


# Records to lines: the records of a batch from `start` to `stop` - 1.


def value_lines(partition: TopicPartition, batch: Batch, start: int, stop: int) -> list[bytes]:
    return [
        (NULL if value is None else value) + b"\n" for value in columns_of(batch, start, stop, with_keys=False).values
    ]


def raw_values(partition: TopicPartition, batch: Batch, start: int, stop: int) -> list[bytes]:
    return [value or b"" for value in columns_of(batch, start, stop, with_keys=False).values]


def key_value_lines(separator: bytes) -> Formatter:
    def lines(partition: TopicPartition, batch: Batch, start: int, stop: int) -> list[bytes]:
        keys, values = columns_of(batch, start, stop, with_keys=True)
        return [
            b"%b%b%b\n" % (NULL if key is None else key, separator, NULL if value is None else value)
            for key, value in zip(keys, values, strict=True)
        ]

    return lines


def json_lines(partition: TopicPartition, batch: Batch, start: int, stop: int) -> list[bytes]:
    return [json_line(partition, record) for record in iter_records(batch) if start <= record.offset < stop]


def json_line(partition: TopicPartition, record: Record) -> bytes:
    shown: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **readable("key", record.key),
        **readable("value", record.value),
        **readable_headers(record.headers),
    }
    return _encode(shown).encode() + b"\n"


def readable(name: str, content: bytes | None) -> dict[str, object]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(content).decode()}


def readable_headers(headers: Headers) -> dict[str, object]:
    if not headers:
        return {}
    try:
        plain = {name: None if content is None else content.decode() for name, content in headers}
    except UnicodeDecodeError:
        plain = {}
    if len(plain) == len(headers):
        return {"headers": plain}
    pairs = [[name, None if content is None else b64encode(content).decode()] for name, content in headers]
    return {"headers_base64": pairs}


# Lines to records.


def parse_plain(line: bytes, separator: bytes | None, has_headers: bool) -> LineRecord:
    """Parse [name:value,name:value TAB][key separator]value, the format of Kafka's console producer."""
    headers: Headers = ()
    if has_headers:
        before, tab, line = line.partition(b"\t")
        if not tab:
            raise NotARecord("has no TAB after the headers")
        headers = [parse_header(text) for text in before.split(b",") if text]
    if separator is None:
        return LineRecord(line, headers=headers)
    key, found, value = line.partition(separator)
    if not found:
        raise NotARecord(f"has no key separator {separator.decode(errors='replace')!r}")
    return LineRecord(value, key, headers)


def parse_header(text: bytes) -> tuple[str, bytes | None]:
    name, colon, content = text.partition(b":")
    if not colon:
        raise NotARecord(f"has a header without a colon: {text.decode(errors='replace')!r}")
    return name.decode(errors="replace"), content


def parse_json(line: bytes) -> LineRecord:
    """Parse a JSON line as described above.

    A value that is not text is encoded as JSON. A missing value is null.
    """
    try:
        given = json.loads(line)
    except UnicodeDecodeError as error:
        raise NotARecord(f"is not valid JSON: byte {error.start} is not valid UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise NotARecord(f"is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise NotARecord("is not a JSON object")
    unknown = sorted(given.keys() - JSON_FIELDS)
    if unknown:
        raise NotARecord(f"has an unknown field {unknown[0]!r}")
    return LineRecord(
        content_of(given, "value"),
        content_of(given, "key"),
        headers_of(given),
        whole_number(given, "timestamp", INT64_MAX),
        whole_number(given, "partition", INT32_MAX),
    )


def content_of(given: dict[str, object], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        return from_base64(encoded, f"{name}_base64")
    return bytes_of(given.get(name))


def bytes_of(value: object) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else _encode(value)
    # A lone surrogate (from "\\ud800") cannot be encoded as UTF-8.
    return text.encode(errors="replace")


def headers_of(given: dict[str, object]) -> Headers:
    encoded = given.get("headers_base64")
    if isinstance(encoded, list):
        return [header_of(pair) for pair in encoded]
    plain = given.get("headers") or {}
    if not isinstance(plain, dict):
        raise NotARecord("has headers that are not a JSON object")
    return [(name, bytes_of(value)) for name, value in plain.items()]


def header_of(pair: object) -> tuple[str, bytes | None]:
    match pair:
        case [str() as name, None]:
            return name, None
        case [str() as name, content]:
            return name, from_base64(content, "headers_base64")
    raise NotARecord("has headers_base64 that is not a list of [name, base64]")


def from_base64(text: object, name: str) -> bytes:
    if not isinstance(text, str):
        raise NotARecord(f"has a {name} that is not a string")
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise NotARecord(f"has a {name} that is not valid base64") from None


def whole_number(given: dict[str, object], name: str, highest: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise NotARecord(f"has a {name} that is not an integer from 0 to {highest}")
    return value
