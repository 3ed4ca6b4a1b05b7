"""Ctrl-C: ends the command at once and quietly, but for where a verb has something to put in order.

Python's own handler raises KeyboardInterrupt wherever the program happens to be: in the middle of an import, of its own
end, of a destructor.  So it is there only while a verb is at work.
"""

from __future__ import annotations

import sys

# Not from signal, which imports enum: a millisecond in which Ctrl-C would still show a traceback.
from _signal import (  # type: ignore[import-not-found]
    SIG_DFL,
    SIGINT,
    default_int_handler,
    getsignal,
    raise_signal,
    signal,
)

TYPE_CHECKING = False  # Importing typing would take longer than all of this.
if TYPE_CHECKING:
    from types import TracebackType


def end_quietly() -> None:
    """Lets the system end the process at Ctrl-C, which shells show as 130; not where Ctrl-C is ignored (nohup)."""
    if getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, SIG_DFL)


class Heard:
    """A block in which Ctrl-C raises KeyboardInterrupt, so that its finally clauses run."""

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
    """Ends the process where a KeyboardInterrupt met a destructor, from which nobody gets it."""
    if lost.exc_type is KeyboardInterrupt and getsignal(SIGINT) in (default_int_handler, SIG_DFL):
        signal(SIGINT, SIG_DFL)
        raise_signal(SIGINT)
    sys.__unraisablehook__(lost)
