"""Syncs of files outside the loop, in threads without the interpreter's lock where possible.

An ordinary thread runs syncs that need more than the fdatasync of open files (new files, directories). Without a
compiler at build time, it runs every sync. Threads start as needed, and none starts without a sync.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.core.disks.flushes import Sync, Synced

if TYPE_CHECKING:
    from odradek.net.native.syncer import Syncer
try:
    from odradek.net.native import syncer as native
except ImportError:  # pragma: no cover
    HAS_SYNCER = False
else:
    HAS_SYNCER = True

log = logging.getLogger(__name__)

THREADS_MAX = 4  # As many as the broker starts at a time; more wait in a queue.


class Syncs:
    """Execution of syncs; `ended` is called on the loop with a sync's result and the disk time in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[Synced, float], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._is_stopped = False
        self._syncer: Syncer | None = None
        self._threads: list[threading.Thread] = []
        self._under_way: dict[int, Sync] = {}  # Keeps the files open.
        self._started_count = 0

    def start_sync(self, sync: Sync) -> bool:
        """Start the sync; return False if only `sync.run` in a thread can do it."""
        if sync.is_instant:
            self._loop.call_soon(self._end_instantly, sync)
            return True
        descriptors = sync.descriptors()
        if descriptors is None or not self._ensure_thread():
            return False
        assert self._syncer is not None
        self._started_count += 1
        self._under_way[self._started_count] = sync
        self._syncer.sync(self._started_count, descriptors)
        return True

    def stop(self) -> None:
        """Wait for started syncs without reporting their results."""
        self._is_stopped = True
        syncer, self._syncer = self._syncer, None
        if syncer is None:
            return
        self._loop.remove_reader(syncer.fileno())
        syncer.stop()
        for thread in self._threads:
            thread.join()
        self._under_way.clear()

    def _ensure_thread(self) -> bool:
        """Start a thread unless one is free or THREADS_MAX run; return False if no thread exists."""
        if not HAS_SYNCER or self._is_stopped:
            return False
        if len(self._under_way) < len(self._threads) or len(self._threads) == THREADS_MAX:
            return True
        try:
            if self._syncer is None:
                self._syncer = native.Syncer()
                self._loop.add_reader(self._syncer.fileno(), self._on_finished)
            name = f"odradek-sync-{len(self._threads)}"
            thread = threading.Thread(target=self._syncer.run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        except (OSError, RuntimeError) as error:  # No descriptors or no threads are left.
            if not self._threads:
                log.warning("failed to start sync threads; files are synced by the thread pool: %s", error)
            return bool(self._threads)
        return True

    def _end_instantly(self, sync: Sync) -> None:
        if not self._is_stopped:
            self._ended(sync.run(), 0.0)

    def _on_finished(self) -> None:
        for number, seconds, errors in self._syncer.finished() if self._syncer else ():
            try:
                self._ended(self._under_way.pop(number).on_synced(errors), seconds)
            except Exception:
                log.exception("unexpected error at the end of a file sync")
