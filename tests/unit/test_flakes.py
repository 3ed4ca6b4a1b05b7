"""Changes that reach a test: a failed test may be rerun only if no change reaches it."""

from __future__ import annotations

import pytest

from support.flakes import is_reached

ONE = "tests/unit/test_flakes.py"
IN_MEMORY = "tests/unit/record/test_record_batch.py"


@pytest.mark.parametrize(
    "changed", [ONE, "tests/support/flakes.py", "tests/conftest.py", "pyproject.toml", "scripts/venv"]
)
def test_imported_modules_and_build_files_reach_a_test(changed: str) -> None:
    assert is_reached(ONE, [changed])


def test_unrelated_changes_do_not_reach_a_test() -> None:
    assert not is_reached(
        IN_MEMORY, ["src/odradek/core/broker/broker.py", "docs/CLUSTER.md", "tests/support/durations.py"]
    )


def test_indirect_imports_reach_a_test() -> None:
    assert is_reached(IN_MEMORY, ["src/odradek/record/record_batch.py"])
    assert is_reached(IN_MEMORY, ["src/odradek/record/__init__.py"])
    assert not is_reached(IN_MEMORY, ["src/odradek/app/main.py"])


@pytest.mark.slow
def test_all_sources_reach_a_test_that_starts_processes() -> None:
    assert is_reached("tests/interop/test_broker_start.py", ["src/odradek/spark/place.py"])
    assert not is_reached("tests/interop/test_broker_start.py", ["docs/SPARK.md"])


def test_documents_reach_the_tests_that_read_them() -> None:
    assert is_reached("tests/unit/test_docs.py", ["docs/SPARK.md"])


def test_scenario_files_reach_the_tests_of_their_folder() -> None:
    assert is_reached("tests/scenario/test_scenarios.py", ["tests/scenario/groups_life.txt"])
