"""Offsets as JSON: Spark's format, one canonical order, and one-sentence errors for any other input."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import INT64_MAX, TopicName, TopicPartition
from odradek.spark.checkpoint_offsets import (
    EARLIEST,
    BadOffsets,
    assignment_from_text,
    from_json,
    from_text,
    to_json,
    to_text,
)

pytestmark = pytest.mark.slow

PARTITIONS = st.builds(TopicPartition, st.text("abz.-_09", min_size=1, max_size=5).map(TopicName), st.integers(0, 12))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, INT64_MAX), max_size=30)


@given(OFFSETS, st.randoms(use_true_random=False))
def test_text_does_not_depend_on_insertion_order(offsets, random):
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    assert to_text(dict(shuffled)) == to_text(offsets)
    assert json.dumps(to_json(dict(shuffled))) == json.dumps(to_json(offsets))


@given(OFFSETS)
def test_offsets_round_trip(offsets):
    assert from_text(to_text(offsets)) == offsets


def test_partitions_are_sorted_numerically():
    offsets = {TopicPartition(TopicName("t"), n): n for n in (10, 9, 2, 0)}
    assert to_text(offsets) == '{"t":{"0":0,"2":2,"9":9,"10":10}}'


def test_special_offsets_are_accepted_only_on_request():
    assert from_text('{"t":{"0":-2,"1":-1}}', EARLIEST) == {
        TopicPartition(TopicName("t"), 0): -2,
        TopicPartition(TopicName("t"), 1): -1,
    }
    with pytest.raises(BadOffsets, match="invalid offset or timestamp -1"):
        from_text('{"t":{"1":-1}}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("latests", "not JSON"),
        ("[1]", "must be an object"),
        ('{"t":5}', "topic 't' must be an object"),
        ('{"t":{"x":5}}', "invalid partition number"),
        ('{"t":{"-1":5}}', "invalid partition number"),
        ('{"t":{"99999999999":5}}', "invalid partition number"),
        ('{"t":{"0":"5"}}', "invalid offset"),
        ('{"t":{"0":true}}', "invalid offset"),
        ('{"t":{"0":1.5}}', "invalid offset"),
        ('{"t":{"0":9223372036854775808}}', "invalid offset"),
    ],
)
def test_invalid_text_is_refused_with_one_sentence(text, message):
    with pytest.raises(BadOffsets, match=message):
        from_text(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_json_is_parsed_or_refused(tree):
    with suppress(BadOffsets):
        from_json(tree)


def test_assignment_is_parsed():
    assert assignment_from_text('{"b":[1,0,1],"a":[3]}') == [("a", 3), ("b", 0), ("b", 1)]
    for text, message in (
        ("{}", "no partition"),
        ('{"a":1}', "list of partition numbers"),
        ('{"a":[-1]}', "invalid partition number"),
    ):
        with pytest.raises(BadOffsets, match=message):
            assignment_from_text(text)
