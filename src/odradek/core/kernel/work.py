"""Work: computation that a request hands to a thread."""

from __future__ import annotations

from collections.abc import Callable


class Work:
    """Computation off the loop that a request needs to continue: checking records, parsing a huge body.

    `run` may be called in any thread and never raises; `on_finished` is called on the loop afterwards.
    """

    __slots__ = ("_run", "error", "then", "value")

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self.value: object = None
        self.error: Exception | None = None
        self.then: Callable[[], None] | None = None  # Called at the end; None once no request waits.

    def run(self) -> None:
        try:
            self.value = self._run()
        except Exception as error:
            self.error = error

    def on_finished(self) -> None:
        if self.then is not None:
            self.then()
