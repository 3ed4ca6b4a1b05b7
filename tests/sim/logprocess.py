"""The process that owns the log: its loop and thread, its periodic work, and its end and restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.base.units import BrokerId, Offset
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from sim.logfound import FoundLog
from sim.logmodel import Broken, Model
from sim.logstate import NAME, ROOT
from sim.simdisk import SimDisk, Stopped

T = TypeVar("T")
# Events that may happen between two steps of a thread, and their frequency.
BETWEEN = {
    "append": 6.0,
    "end_transaction": 2,
    "roll": 2,
    "begin_flush": 1,
    "retention": 1,
    "delete_records": 1,
    "truncate": 1,
    "start_over": 0.2,
    "delete": 0.5,
    "checkpoint": 1,
}


class Turns:
    """A substitute for the lock around renames: a thread that takes it lets other events happen first."""

    def __init__(self, play: LogProcess) -> None:
        self._play = play

    def __enter__(self) -> None:
        self._play.interleave(0.1)

    def __exit__(self, *_: object) -> None:
        pass


class LogProcess(FoundLog):
    """The process of a log. A step is a method without arguments, called by its name."""

    def do(self, name: str) -> None:
        disk, failures = self.disk, self.disk.failures
        try:
            getattr(self, name)()
        except DiskFailed as failed:
            self.add_event("failed", f"{name}: {failed}")
            if self.disk is disk and self.log.segments[-1].sync_failed:  # The broker takes it offline.
                self.offline()
            elif self.disk is disk and self.disk.failures == failures:
                raise AssertionError(f"{name}: the disk has refused nothing: {failed}") from failed
        if not self._is_in_thread:
            self.check_bounds()

    def interleave(self, share: float) -> None:
        """Let another event happen on the loop, if called in a thread."""
        if self._is_in_thread and self.random.random() < share:
            self._is_in_thread = False
            names = list(BETWEEN)
            name = self.random.choices(names, [BETWEEN[name] for name in names])[0]
            self.add_event("meanwhile", name)
            try:
                self.do(name)
            finally:
                self._is_in_thread = True

    def in_thread(self, work: Callable[[], T]) -> T:
        self._is_in_thread = True
        try:
            return work()
        finally:
            self._is_in_thread = False

    def throttle(self, _: int) -> None:
        self.interleave(0.15)

    # ------------------------------------------------------------------ ends

    def die(self) -> None:
        """Kill the process, or cut the power; the next start may end the same way."""
        disk = self.disk
        while True:
            is_kill = self.random.random() < 0.3
            self.add_event("kill" if is_kill else "power")
            disk = self.killed_disk(disk) if is_kill else self.crashed_disk(disk)
            if self.random.random() < 0.15:
                disk.stop_at(self.random.randrange(60))
            try:
                self.restart(disk, is_whole=False)
                return
            except Stopped:
                disk = self.disk

    def killed_disk(self, disk: SimDisk) -> SimDisk:
        """Return the disk after a kill: all writes are present, but a later power failure may revert them."""
        self.killed += [*self.versions, self.model.batches]
        self.was_killed_cutting |= self.is_cutting
        self.unsynced += disk.pending_names(f"{ROOT}/{NAME}")
        return disk.kill()

    def crashed_disk(self, disk: SimDisk) -> SimDisk:
        pending = {id(change) for change in disk.pending_names(f"{ROOT}/{NAME}")}
        if not any(id(change) in pending for change in self.unsynced):
            self.killed, self.was_killed_cutting = [], False
        self.versions += self.killed
        self.is_cutting |= self.was_killed_cutting
        self.killed, self.unsynced, self.was_killed_cutting = [], [], False
        return disk.crash(self.random)

    def offline(self) -> None:
        """Take the log offline after a failed sync, and restart it to find its contents."""
        self.add_event("offline")
        self.restart(self.killed_disk(self.disk), is_whole=False)

    def stop_and_start(self) -> None:
        """Stop the process cleanly, and start it again."""
        if self.reap is not None:
            self.end_reap()
        self.add_event("stop")
        start, self.is_stopping = self.log.start_offset, True
        problems = self.directory.close(self.now, {NAME: Offset(self.high_watermark)})
        if problems:
            assert self.disk.failures, problems
            self.add_event("unclean", problems)
            self.restart(self.killed_disk(self.disk), is_whole=False)
            return
        self.safe = self.stopped_at = self.log.end_offset
        self.noted_start = max(self.noted_start, start)
        self.restart(self.disk.kill(), is_whole=True)

    def restart(self, disk: SimDisk, *, is_whole: bool) -> None:
        calls = disk._stops_at
        disk.calls, self.disk = self.disk.calls, disk
        if calls is not None:
            disk.stop_at(calls)
        self.flushes.clear()
        self.reap = self.cleaning = None
        self._is_in_thread = False
        self.start(clean=is_whole)

    # ------------------------------------------------------------------ starts

    def start(self, *, clean: bool) -> None:
        self.directory = open_log_directory(
            self.disk,
            ROOT,
            self.now,
            broker_id=BrokerId(1),
            cluster_id=None,
            config_of=lambda _: self.config,
            turns=Turns(self),  # type: ignore[arg-type]
        )
        if self.directory.offline:
            raise Broken(f"does not open: {self.directory.offline}")
        log = self.directory.logs.get(NAME)
        if log is None:
            if self.safe:
                raise Broken("the log is gone")
            self.make()
            return
        self.log = log
        self.add_event("start", f"{log.start_offset} to {log.end_offset}, cleaned to {log.compaction.cleaned_to}")
        if self.directory.clean_shutdown != clean and not self.is_stopping:
            raise Broken("a clean stop was not seen" if clean else "taken for a clean stop")
        self.is_stopping = False
        self.restarted(clean=clean)

    def make(self) -> None:
        self.log = self.directory.create(NAME, None, self.config, self.now)
        self.recreate(0)
        self.noted_start = self.cleaned_end = 0
        self.add_event("made")

    def recreate(self, start: int) -> None:
        self.model, self.versions = Model(start=start), []
        self.safe, self.high_watermark = 0, start
        self.noted_start = min(self.noted_start, start)
        self.was_cut = self.is_shortening = False
        self.leader_epoch += 1
        self.relearn()

    # ------------------------------------------------------------------ the reaper

    def begin_reap(self) -> None:
        if self.reap is None:
            self.reap = self.directory.begin_reap(self.now)

    def end_reap(self) -> None:
        if self.reap is None:
            self.begin_reap()
        if self.reap is not None:
            reap, self.reap = self.reap, None
            self.in_thread(reap.run)
            self.is_cutting &= self.directory.reaper.is_retiring(self.log.directory)
            self.add_event("reaped", [type(one).__name__ for one in reap.done])
