"""History of a group's latest rebalances, each with a reason of one line."""

from __future__ import annotations

import logging

import pytest

from odradek.base.units import TimestampMs
from odradek.core.groups.shard.history import REBALANCES_KEPT, Rebalance, Rebalances, because, listed


def test_latest_rebalances_are_kept_and_all_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rebalances = Rebalances()
    for number in range(REBALANCES_KEPT + 3):
        rebalances.add("g", Rebalance(TimestampMs(number), number, f"reason {number}"))
    assert [one.generation for one in rebalances] == list(range(3, REBALANCES_KEPT + 3))
    assert len(caplog.messages) == REBALANCES_KEPT + 3
    assert caplog.messages[-1] == "preparing to rebalance group 'g' with old generation 18 (reason: reason 18)"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("", "left"), ("closed", "left (closed)"), ("a\nb\x1b[31m", "left (a b [31m)"), ("\n", "left")],
)
def test_client_reason_stays_on_one_line(reason: str, expected: str) -> None:
    assert because("left", reason) == expected


def test_client_reason_is_shortened() -> None:
    assert because("left", "x" * 10_000) == f"left ({'x' * 255})"


def test_long_list_is_shortened_with_a_count() -> None:
    assert listed([]) == ""
    assert listed(list("abcde")) == "a, b, c, d, e"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
