"""A broker whose first process watches over it: `python -m odradek.app.supervised FD serve ...` is `odradek serve ...`.

FD is the read end of a pipe, the lifeline, whose write end only the first process has.  Nothing is ever written to it:
it ends when the first process does, in whatever way, and the broker then stops.  Linux could send a signal instead
(PR_SET_PDEATHSIG), but not if the first process ends before this one has asked for it.
"""

from __future__ import annotations

import os
import sys
import time
from signal import SIG_IGN, SIGHUP, SIGKILL, SIGTERM, signal
from threading import Thread

from odradek.app.terminal.interrupts import end_quietly

ALONE_SECONDS_MAX = 30  # Without the first process; a broker that can't stop in that time is killed.


def stop_at_end_of(lifeline: int, seconds_max: float = ALONE_SECONDS_MAX) -> None:
    """Stops this process when the lifeline ends; returns at once, since a thread waits for that."""
    os.set_inheritable(lifeline, False)
    Thread(target=_stop_at_end_of, args=(lifeline, seconds_max), name="odradek-lifeline", daemon=True).start()


def _stop_at_end_of(lifeline: int, seconds_max: float) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), SIGTERM)
    time.sleep(seconds_max)
    os.kill(os.getpid(), SIGKILL)


def main() -> int:
    """Runs the odradek command with the arguments after FD; returns its exit status."""
    end_quietly()
    stop_at_end_of(int(sys.argv[1]))
    signal(SIGHUP, SIG_IGN)  # A terminal that is closed tells the first process as well, which stops this one.
    sys.argv[:] = ["odradek", *sys.argv[2:]]
    from odradek.app.main import main as odradek

    return odradek()


if __name__ == "__main__":
    sys.exit(main())
