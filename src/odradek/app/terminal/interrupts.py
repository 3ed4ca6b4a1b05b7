"""Ctrl-C handling: commands end at once and quietly, unless a verb has to clean up.

Python's own handler raises KeyboardInterrupt wherever the program happens to be: during an import, interpreter shutdown
or a destructor. It is therefore installed only while a verb runs.
"""

from __future__ import annotations

import sys

# Not from signal, which imports enum: during that millisecond, Ctrl-C would still show a traceback.
from _signal import (  # type: ignore[import-not-found]
    SIG_DFL,
    SIGINT,
    default_int_handler,
    getsignal,
    raise_signal,
    signal,
)

TYPE_CHECKING = False  # Importing typing would take longer than everything else here.
if TYPE_CHECKING:
    from types import TracebackType


def end_quietly() -> None:
    """Let the system end the process on Ctrl-C (shells show 130), unless Ctrl-C is ignored (nohup)."""
    if getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, SIG_DFL)


class InterruptBlock:
    """Block in which Ctrl-C raises KeyboardInterrupt, so that its finally clauses run."""

    def __enter__(self) -> None:
        self._was_quiet = getsignal(SIGINT) is SIG_DFL
        if self._was_quiet:
            sys.unraisablehook = end_if_lost
            signal(SIGINT, default_int_handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._was_quiet:
            end_quietly()


def end_if_lost(lost: sys.UnraisableHookArgs) -> None:
    """End the process if KeyboardInterrupt was raised in a destructor, where it is lost."""
    if lost.exc_type is KeyboardInterrupt and getsignal(SIGINT) in (default_int_handler, SIG_DFL):
        signal(SIGINT, SIG_DFL)
        raise_signal(SIGINT)
    sys.__unraisablehook__(lost)
