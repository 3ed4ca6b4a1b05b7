"""The table of durations, which detects slower test files, but not a slower machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.durations import FILES_MIN, Seconds, grown, read_table

TABLE = {f"tests/test_{number}.py": Seconds(10.0, 20.0) for number in range(FILES_MIN)}
ONE = "tests/test_7.py"


def test_file_that_takes_half_as_long_again_is_reported() -> None:
    assert grown(TABLE, TABLE | {ONE: Seconds(21.0, 20.0)}) == {ONE: 20.0}
    assert not grown(TABLE, TABLE | {ONE: Seconds(19.0, 20.0)})


def test_file_whose_tests_vary_may_grow_more() -> None:
    assert not grown(TABLE, TABLE | {ONE: Seconds(44.0, 20.0)}, {ONE})
    assert grown(TABLE, TABLE | {ONE: Seconds(46.0, 20.0)}, {ONE}) == {ONE: 45.0}


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_slower_machine_is_not_reported(factor: float) -> None:
    assert not grown(TABLE, {file: Seconds(one.processor * factor, one.wall) for file, one in TABLE.items()})


def test_new_file_is_reported_if_it_takes_long() -> None:
    assert len(grown(TABLE, TABLE | {"tests/test_new.py": Seconds(6.0, 6.0)})) == 1
    assert not grown(TABLE, TABLE | {"tests/test_new.py": Seconds(4.0, 40.0)})


def test_partial_test_run_is_not_checked() -> None:
    assert not grown(TABLE, {ONE: Seconds(100.0, 100.0)})


def test_table_of_durations_is_read(tmp_path: Path) -> None:
    path = tmp_path / "durations.tsv"
    assert read_table(path) == {}
    path.write_text("file\tprocessor_s\twall_s\ntests/test_7.py\t1.5\t2.0\n")
    assert read_table(path) == {ONE: Seconds(1.5, 2.0)}
