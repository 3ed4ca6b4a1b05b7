from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.terminal.time_arguments import duration_ms, moment_ms
from odradek.base.units import DAY_MS, HOUR_MS, MINUTE_MS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("10m", 10 * MINUTE_MS),
        ("2h", 2 * HOUR_MS),
        ("1d", DAY_MS),
        ("PT0S", 0),
        ("P1D", DAY_MS),
        ("P1DT2H30M", DAY_MS + 2 * HOUR_MS + 30 * MINUTE_MS),
        ("pt1.5s", 1_500),
        ("PT1.000999S", 1_000),
        ("P0DT0H5M0S", 5 * MINUTE_MS),
    ],
)
def test_duration_is_parsed(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "10", "10 m", "-5m", "P", "PT", "P1H", "P1DT", "PT5", "1.5h", "PT1H2", "P١D"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["9223372036854775808ms", "99999999999999999999d", "P99999999999999999999D"])
def test_duration_beyond_int64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is too long"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00Z", 0),
        ("2026-11-21T14:00Z", 1_795_269_600_000),
        ("2026-11-21T15:00:00.123+01:00", 1_795_269_600_123),
        ("1969-01-01T00:00Z", 0),
    ],
)
def test_moment_is_parsed(text: str, expected: int) -> None:
    assert moment_ms(text) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_moment_or_a_value_error(text: str) -> None:
    for read in (moment_ms, duration_ms):
        with suppress(ValueError):
            assert read(text) >= 0
