"""Subscriptions by regular expression: RE2 syntax, matches of whole names, and malicious patterns."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.consumer.subscribed_topics import check_pattern, matching

TOPICS = ["news", "news.a", "news.b", "old-news", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("news", {"news"}),
        (r"news\..*", {"news.a", "news.b"}),
        ("news.?.?", {"news", "news.a", "news.b"}),
        (".*news", {"news", "old-news"}),
        (".*", set(TOPICS)),
        ("nothing", set()),
        ("", set()),
        (r"(?i)NEWS", {"news"}),
        (r"^news$", {"news"}),
        (r"\Qnews.a\E", {"news.a"}),
    ],
)
def test_pattern_matches_whole_topic_names(pattern: str, matched: set[str]) -> None:
    check_pattern(pattern)
    assert matching(pattern, TOPICS) == matched


@pytest.mark.parametrize("pattern", ["(a", "a)", "[a", "*", "a{2,1}", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "\\"])
def test_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        check_pattern(pattern)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert pattern in refused.value.detail
    assert matching(pattern, TOPICS) == frozenset()  # The pattern of another broker.


@pytest.mark.parametrize(
    "pattern", ["((a{100}){100}){100}", r"(\pL{1,100}){100}", "|".join(f"{n}.{{900}}" for n in range(99)), "(" * 30_000]
)
def test_pattern_with_a_large_program_is_refused(pattern: str) -> None:
    with pytest.raises(Refused):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(.*a){40}", ".*a.{20}", "(a|aa)+", "(" * 900 + "a*" + ")*" * 900])
def test_pathological_pattern_is_matched_in_linear_time(pattern: str) -> None:
    """A backtracking matcher would not finish these within the time of a test."""
    matching(pattern, ["a" * 249] * 1000)


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except Refused as refused:
        assert refused.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert matching(pattern, TOPICS) <= set(TOPICS)


def test_pattern_without_re2_is_refused_with_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)  # As if it were not installed: the import fails.
    with pytest.raises(Refused) as refused:
        check_pattern("news.*")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    detail = refused.value.detail
    assert detail.startswith("cannot evaluate regular expression `news.*`: the broker lacks the extra regex: ")
    assert f"re2 is not installed: {sys.executable} -m pip install" in detail
    assert matching("news.*", TOPICS) == frozenset()  # Pattern of an existing group.
