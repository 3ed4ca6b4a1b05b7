"""Supervised broker: `python -m odradek.app.supervised FD serve ...` runs `odradek serve ...`.

FD is the read end of a pipe, the lifeline, whose write end only the first process has. Nothing is ever written to the
pipe. It closes when the first process ends for whatever reason, and the broker then stops. Linux could send a signal
instead (PR_SET_PDEATHSIG), but not if the first process ends before this process has requested the signal.
"""

from __future__ import annotations

import os
import sys
import time
from signal import SIG_IGN, SIGHUP, SIGKILL, SIGTERM, signal
from threading import Thread

from odradek.app.terminal.interrupts import end_quietly

ALONE_SECONDS_MAX = 30  # Time to stop without the first process; then the broker is killed.


def stop_at_end_of(lifeline: int, seconds_max: float = ALONE_SECONDS_MAX) -> None:
    """Stop this process when the lifeline closes. Wait in a thread and return at once."""
    os.set_inheritable(lifeline, False)
    Thread(target=_stop_at_end_of, args=(lifeline, seconds_max), name="odradek-lifeline", daemon=True).start()


def _stop_at_end_of(lifeline: int, seconds_max: float) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), SIGTERM)
    time.sleep(seconds_max)
    os.kill(os.getpid(), SIGKILL)


def main() -> int:
    """Run the odradek command with the arguments after FD. Return its exit status."""
    end_quietly()
    stop_at_end_of(int(sys.argv[1]))
    signal(SIGHUP, SIG_IGN)  # A closing terminal also signals the first process, which stops this one.
    sys.argv[:] = ["odradek", *sys.argv[2:]]
    from odradek.app.main import main as odradek

    return odradek()


if __name__ == "__main__":
    sys.exit(main())
