"""Isolation of a test file from the effects of earlier files in its process: logging threads, and garbage.

A test may assert that nothing else was logged: records of threads that earlier files left, such as one of a client
whose broker is gone, do not reach its `caplog`; those of its own file and fixtures do. A test that collects garbage
does not examine that of thousands of earlier tests.
"""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path
from weakref import WeakSet

import pytest
from _pytest.logging import LoggingPlugin


class EarlierFiles(logging.Filter):
    """The pytest plugin, and the filter of the handler that `caplog` reads."""

    def __init__(self) -> None:
        super().__init__()
        self._file: Path | None = None
        self._left: WeakSet[threading.Thread] = WeakSet()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        plugin = session.config.pluginmanager.get_plugin("logging-plugin")
        assert isinstance(plugin, LoggingPlugin)
        plugin.caplog_handler.addFilter(self)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.path != self._file:
            self._file = item.path
            self._left = WeakSet(threading.enumerate())
            self._left.discard(threading.current_thread())
            gc.collect()
            gc.freeze()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the thread that logs belongs to the file of the current test."""
        return threading.current_thread() not in self._left
