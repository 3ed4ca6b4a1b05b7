"""Signals as readable events: a pollable descriptor, and the numbers of the signals received."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

SIGNALS_READ_MAX = 4_096


class Wakeups:
    """Block in which these signals only make `fileno` readable. Main thread only.

    An ignored SIGHUP stays ignored (nohup). An ignored SIGINT is handled, because it is one of the ways to stop, as for
    `odradek serve`. Shells ignore SIGINT for background processes.
    """

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self._numbers = [one for one in numbers if one != signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Wakeups:
        self._reading, self._writing = os.pipe()
        for descriptor in (self._reading, self._writing):
            os.set_blocking(descriptor, False)
        self._descriptor_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _do_nothing) for number in self._numbers}
        return self

    def fileno(self) -> int:
        return self._reading

    def read_signals(self) -> bytes:
        """Return the numbers of the signals received since the last call, in order."""
        with suppress(BlockingIOError):
            return os.read(self._reading, SIGNALS_READ_MAX)
        return b""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._descriptor_before)
        os.close(self._reading)
        os.close(self._writing)


def _do_nothing(number: int, frame: object) -> None:
    """Ignore the signal. Python writes its number to the pipe only if a handler is set."""
