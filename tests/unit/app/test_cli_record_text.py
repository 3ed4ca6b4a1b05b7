from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary, integers, lists, none, text, tuples

from odradek.app.cli.record_text import (
    LineRecord,
    NotARecord,
    json_line,
    json_lines,
    key_value_lines,
    parse_json,
    parse_plain,
    raw_values,
    value_lines,
)
from odradek.base.errors import Refused
from odradek.base.units import INT64_MAX, Offset, TimestampMs, TopicName, TopicPartition
from odradek.record.builder import encode_batch
from odradek.record.columns import columns_of
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.record.records import Record

AT = TopicPartition(TopicName("t"), 3)
names = text(max_size=5).filter(lambda name: name.encode("utf-8", "ignore").decode() == name)


def record(key: bytes | None = b"k", value: bytes | None = b"v", *headers: tuple[str, bytes | None]) -> Record:
    return Record(Offset(7), TimestampMs(1_000), key, value, headers)


@settings(deadline=None)  # Time is not tested, and the machine may be busy.
@given(
    none() | binary(max_size=20),
    none() | binary(max_size=20),
    lists(tuples(names, none() | binary(max_size=5)), max_size=4),
    integers(0, INT64_MAX),
)
def test_json_round_trip(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = json_line(AT, Record(Offset(7), TimestampMs(timestamp), key, value, tuple(headers)))
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    back = parse_json(line)
    assert (back.key, back.value, list(back.headers), back.timestamp) == (key, value, headers, timestamp)


def test_json_shows_text_as_text_and_bytes_as_base64() -> None:
    line = json_line(AT, record(b"k\xc3\xa4", b"\xff", ("h", b"x"), ("n", None)))
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1000,
        "key": "kä",
        "value_base64": "/w==",
        "headers": {"h": "x", "n": None},
    }


CONTENTS: list[tuple[bytes | None, bytes | None]] = [
    (b"k", b"v"),
    (None, b""),
    (b"", None),
    (b"x", b"a\nb"),
    (None, None),
]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batch_is_printed_as_lines(codec: Codec) -> None:
    records = [(key, value, (("h", b"1"),), 1_000) for key, value in CONTENTS]
    batch = Batch.trusted(encode_batch(records, codec, base_offset=Offset(10)))
    assert value_lines(AT, batch, 0, 99) == [b"v\n", b"\n", b"null\n", b"a\nb\n", b"null\n"]
    assert raw_values(AT, batch, 0, 99) == [b"v", b"", b"", b"a\nb", b""]
    assert key_value_lines(b"::")(AT, batch, 11, 14) == [b"null::\n", b"::null\n", b"x::a\nb\n"]
    assert [json.loads(line)["offset"] for line in json_lines(AT, batch, 11, 13)] == [11, 12]
    assert value_lines(AT, batch, 15, 99) == value_lines(AT, batch, 0, 10) == []


@settings(deadline=None)
@given(
    lists(tuples(none() | binary(max_size=9), none() | binary(max_size=9)), min_size=1, max_size=20), integers(0, 22)
)
def test_columns_agree_with_records(contents: list[tuple[bytes | None, bytes | None]], start: int) -> None:
    batch = Batch.trusted(encode_batch([(key, value, (), 0) for key, value in contents]))
    keys, values = columns_of(batch, start, start + 10, with_keys=True)
    assert list(zip(keys, values, strict=True)) == contents[start : start + 10]


def test_malformed_batch_is_refused() -> None:
    batch = encode_batch([(None, b"value", (), 0)])
    batch[61] += 2  # The length of the first record.
    with pytest.raises(Refused, match="record 0 of the batch at offset 0 is malformed"):
        value_lines(AT, Batch.trusted(batch), 0, 99)


def test_plain_lines_are_parsed_to_records() -> None:
    assert parse_plain(b"a:b", None, False) == LineRecord(b"a:b")
    assert parse_plain(b"a:b:c", b":", False) == LineRecord(b"b:c", b"a")
    assert parse_plain(b"h:1,g:x:y\ta:b", b":", True) == LineRecord(b"b", b"a", [("h", b"1"), ("g", b"x:y")])
    assert parse_plain(b"\tv", None, True) == LineRecord(b"v", headers=[])


@pytest.mark.parametrize(
    ("line", "separator", "has_headers", "words"),
    [
        (b"abc", b":", False, "no key separator ':'"),
        (b"abc", None, True, "no TAB"),
        (b"h\tabc", None, True, "without a colon"),
    ],
)
def test_invalid_plain_lines_are_refused(line: bytes, separator: bytes | None, has_headers: bool, words: str) -> None:
    with pytest.raises(NotARecord, match=words):
        parse_plain(line, separator, has_headers)


def test_non_text_json_values_are_kept_as_json() -> None:
    assert parse_json(b'{"value":{"a":[1,"\xc3\xa4"]},"key":5}') == LineRecord('{"a":[1,"ä"]}'.encode(), b"5", [])
    assert parse_json(b"{}") == LineRecord(None, None, [])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff", "not valid JSON"),
        (b'{"valeu":1}', "field 'valeu'"),
        (b'{"value_base64":"!"}', "value_base64 that is not valid base64"),
        (b'{"key_base64":5}', "key_base64 that is not a string"),
        (b'{"headers":[1]}', "headers that are not a JSON object"),
        (b'{"headers_base64":[1]}', "headers_base64"),
        (b'{"headers_base64":[["a","!"]]}', "not valid base64"),
        (b'{"timestamp":"now"}', "timestamp that is not an integer"),
        (b'{"timestamp":true}', "timestamp that is not an integer"),
        (b'{"partition":-1}', "partition that is not an integer"),
        (b'{"partition":2147483648}', "from 0 to 2147483647"),
    ],
)
def test_invalid_json_lines_are_refused(line: bytes, words: str) -> None:
    with pytest.raises(NotARecord, match=words):
        parse_json(line)


@settings(deadline=None)
@given(binary(max_size=60))
def test_any_line_is_parsed_or_refused(line: bytes) -> None:
    """Parsing gives a record or the one exception."""
    for parse in (parse_json, lambda each: parse_plain(each, b":", True)):
        with suppress(NotARecord):
            assert isinstance(parse(line), LineRecord)


def test_deeply_nested_line_is_refused() -> None:
    with pytest.raises(NotARecord):
        parse_json(b'{"value":' + b"[" * 200_000)
