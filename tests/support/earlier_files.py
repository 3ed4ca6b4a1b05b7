"""Keeps the log lines of threads that earlier test files left behind out of `caplog`.

A test may then assert that nothing else was logged.  Threads that live on by design, such as the one of a client whose
broker is gone, are none of its business; those of its own file, of its fixtures too, are.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from weakref import WeakSet

import pytest
from _pytest.logging import LoggingPlugin


class LeftThreads(logging.Filter):
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

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the thread that logs belongs to the file of the current test."""
        return threading.current_thread() not in self._left
