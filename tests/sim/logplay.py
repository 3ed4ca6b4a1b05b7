"""`python -m sim.logplay SEED`, with PYTHONPATH=tests: play the history of one log, and print it.

A log in its data directory is appended to, flushed, truncated and compacted, with other events between two steps of a
pass in its thread. Disk calls fail, processes are killed, and the power fails at any call. After each restart and each
step of compaction, the log is compared with a list of all appended batches (logmodel).
"""

from __future__ import annotations

import errno
import sys
import traceback
from contextlib import suppress

from odradek.base.errors import Refused
from odradek.base.units import TimestampMs
from odradek.log.compaction import cleaned_segments
from odradek.log.files.disk import DiskFailed
from sim.logcompaction import CompactedLog
from sim.logstate import DAY_MS
from sim.simdisk import Stopped

STEPS = 70
ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)
STEPS_OF = {
    "append": 40.0,
    "end_transaction": 8,
    "new_epoch": 1,
    "roll": 3,
    "begin_flush": 2,
    "end_flush": 3,
    "flush": 3,
    "retention": 1,
    "delete_records": 1,
    "truncate": 1.5,
    "start_over": 0.2,
    "delete": 0.5,
    "begin_reap": 1,
    "end_reap": 3,
    "checkpoint": 2,
    "clean": 8,
    "clean_all": 3,
    "fail": 1,
    "mend": 1,
    "doom": 1,
    "doomed_pass": 1,
    "stop_and_start": 1,
}


class LogPlay(CompactedLog):
    """A log and its events."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.start(clean=False)

    def play(self) -> str | None:
        """Play the history, and return the broken invariants, if any."""
        limit = cleaned_segments.INT32_MAX
        try:
            cleaned_segments.INT32_MAX = self.random.choice([limit, 900])  # type: ignore[misc]
            for _ in range(STEPS):
                self.step()
            self.settle_down()
            self.check_rebuilt()
        except (AssertionError, Refused) as broken:
            self.trace = traceback.format_exc()
            return str(broken) or repr(broken)
        finally:
            cleaned_segments.INT32_MAX = limit  # type: ignore[misc]
        return None

    def step(self) -> None:
        self.now = TimestampMs(self.now + self.random.choice([0, 1, 1, 2, 10, 10, 100, DAY_MS // 4]))
        names = list(STEPS_OF)
        name = self.random.choices(names, [STEPS_OF[name] for name in names])[0]
        try:
            self.do(name)
        except Stopped:
            self.die()

    def settle_down(self) -> None:
        """End all faults, compact the log once more, and check that all consumers see all records."""
        self.disk.mend()
        self.disk.stop_at(None)
        with suppress(DiskFailed):
            self.log.settle()
        if self.log.has_pending_work or any(flush.has_failed for flush in self.log.durability.under_way):
            self.offline()
        for _ in range(4):
            self.now = TimestampMs(self.now + 10 * DAY_MS)
            self.end_reap()
            self.log.roll(self.now)
            self.flush()
            self.clean_all()
        self.check_log()

    # ------------------------------------------------------------------ the disk

    def fail(self) -> None:
        if not self.has_faults:
            return
        disk, kind = self.disk, self.random.choice(("once", "once", "on", "sync", "full"))
        error, before = self.random.choice(ERRORS), self.random.randrange(60)
        disk.mend()
        disk.reads_fail = self.random.random() < 0.5
        if kind == "once":
            disk.fail_call(before, error)
        elif kind == "on":
            disk.fail_from(before, error)
        elif kind == "sync":
            disk.fails_to_sync = True
        else:
            disk.room = self.random.randrange(3_000)
        self.add_event("disk", f"{kind} {errno.errorcode[error]} after {before}")

    def mend(self) -> None:
        self.disk.mend()

    def doom(self) -> None:
        """Let the process die at one of the next disk calls."""
        self.disk.stop_at(self.random.randrange(120))


def failure(play: LogPlay, found: str) -> str:
    """Return the text of a failed assertion: the seed first, and how to see the history."""
    return f"seed {play.seed}: {found}\nThe history: PYTHONPATH=tests .venv/bin/python -m sim.logplay {play.seed}"


def main(seeds: list[int]) -> None:
    for seed in seeds:
        play = LogPlay(seed)
        found = play.play()
        if len(seeds) == 1:
            print(play, play.trace, sep="\n")
        if found:
            print(failure(play, found))


if __name__ == "__main__":
    first, *last = [int(text) for text in sys.argv[1:]]
    main(list(range(first, last[0])) if last else [first])
