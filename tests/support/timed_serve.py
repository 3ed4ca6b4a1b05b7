"""`odradek serve` with a measured loop: `python timed_serve.py serve ...` is `python -m odradek serve ...`.

On SIGUSR1 it writes the longest callbacks since the last time, and their number, to the file named by
ODRADEK_LOOP_TIME.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from odradek.app.main import main
from support.loop_time import Hold, LoopTime, timed
from support.serving import READY_SECONDS_MAX, Serving

VARIABLE = "ODRADEK_LOOP_TIME"


class TimedServing(Serving):
    """One broker process with a measured loop."""

    def __init__(self, directory: Path, *options: str, **overrides: str) -> None:
        super().__init__(directory, *options, **overrides)
        self.program = (__file__,)
        self._report = directory / "loop-time.json"
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {VARIABLE: str(self._report), "PYTHONPATH": os.pathsep.join(paths)}

    def begin(self) -> None:
        """Forget all callbacks until now."""
        self._take()

    def holds(self) -> list[Hold]:
        """Return the longest callbacks since `begin`, longest first."""
        counted, holds = self._take()
        assert counted, "a loop without callbacks was not timed"
        return [Hold(*hold) for hold in holds]

    def _take(self) -> tuple[int, list[list[Any]]]:
        self._report.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._report.exists():
            assert not self.has_ended, self.errors()
            assert time.monotonic() < deadline, "the loop does not answer"
            time.sleep(0.01)
        counted, holds = json.loads(self._report.read_text())
        return counted, holds


def _write(timing: LoopTime, report: Path) -> None:
    unfinished = report.with_suffix(".new")
    unfinished.write_text(json.dumps([timing.counted, timing.holds()]))
    unfinished.rename(report)
    timing.begin()


def _serve() -> None:
    timing, report = LoopTime(), Path(os.environ[VARIABLE])

    def make() -> Any:
        loop = timed(uvloop.Loop, timing)
        loop.add_signal_handler(signal.SIGUSR1, _write, timing, report)
        return loop

    uvloop.run = partial(uvloop.run, loop_factory=make)
    main()


if __name__ == "__main__":
    sys.argv[0] = "odradek"
    _serve()
