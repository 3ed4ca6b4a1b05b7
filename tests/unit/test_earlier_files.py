"""Filtering of log records by threads that an earlier test file started."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.earlier_files import EarlierFiles

RECORD = logging.LogRecord("a", logging.WARNING, "a.py", 1, "a line", None, None)


def starting(file: str) -> Any:
    """Return the parts of a test that the plugin uses."""
    return SimpleNamespace(path=Path(file))


def test_log_records_belong_to_the_file_that_started_the_thread() -> None:
    left = EarlierFiles()
    left.pytest_runtest_setup(starting("test_a.py"))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(left.filter, RECORD).result()
        left.pytest_runtest_setup(starting("test_a.py"))
        assert thread.submit(left.filter, RECORD).result(), "a fixture of the file may have started it"
        left.pytest_runtest_setup(starting("test_b.py"))
        assert not thread.submit(left.filter, RECORD).result()
        with ThreadPoolExecutor(1) as own:
            assert own.submit(left.filter, RECORD).result()
        assert left.filter(RECORD), "this thread runs every test"


def test_caplog_is_filtered(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> None:
    assert any(isinstance(one, EarlierFiles) for one in caplog.handler.filters)
