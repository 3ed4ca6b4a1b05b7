"""Which changes reach a test: only a test that none reaches may be run again."""

from __future__ import annotations

import pytest

from support.flakes import is_reached

ONE = "tests/unit/test_flakes.py"
IN_MEMORY = "tests/unit/record/test_record_batch.py"


@pytest.mark.parametrize(
    "changed", [ONE, "tests/support/flakes.py", "tests/conftest.py", "pyproject.toml", "scripts/venv"]
)
def test_what_it_imports_and_the_set_up_reach_it(changed: str) -> None:
    assert is_reached(ONE, [changed])


def test_others_do_not() -> None:
    assert not is_reached(
        IN_MEMORY, ["src/odradek/core/broker/broker.py", "docs/CLUSTER.md", "tests/support/durations.py"]
    )


def test_imports_are_followed() -> None:
    assert is_reached(IN_MEMORY, ["src/odradek/record/record_batch.py"])
    assert is_reached(IN_MEMORY, ["src/odradek/record/__init__.py"])
    assert not is_reached(IN_MEMORY, ["src/odradek/app/main.py"])


@pytest.mark.slow
def test_a_test_that_starts_processes_is_reached_by_all_sources() -> None:
    assert is_reached("tests/interop/test_broker_start.py", ["src/odradek/spark/place.py"])
    assert not is_reached("tests/interop/test_broker_start.py", ["docs/SPARK.md"])


def test_documents_reach_those_who_read_them() -> None:
    assert is_reached("tests/unit/test_docs.py", ["docs/SPARK.md"])


def test_stories_reach_the_tests_beside_them() -> None:
    assert is_reached("tests/scenario/test_scenarios.py", ["tests/scenario/groups_life.txt"])
