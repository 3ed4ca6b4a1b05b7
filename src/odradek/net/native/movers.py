"""Large transfers outside the loop, in threads that move bytes without the interpreter's lock.

Large transfers take long in the kernel, and the loop serves other connections during that time. Threads start with the
first transfer. `num.network.threads` threads receive, and at most as many send, each for some of the processors.
Separate threads send bytes that are not in the page cache; only they wait for the disk. If the package was built
without a compiler, there is no mover. Every request for a transfer is then declined, and the loop moves everything
itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.net.native import processors

if TYPE_CHECKING:
    from odradek.net.native.mover import Transfer
try:
    from odradek.net.native.mover import Mover
except ImportError:  # pragma: no cover
    HAS_MOVER = False
else:
    HAS_MOVER = True

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
THREADS_MAX = 32  # The mover has slots for twice as many.
COLD_THREADS = 4  # Number of concurrent disk reads, each of which has also started read-ahead.


class File(Protocol):
    """File that stays open as long as it is referenced."""

    def fileno(self) -> int: ...


class Movers:
    """Transfers in threads; `done` is called on the loop. A socket has at most one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._threads_max = min(threads, THREADS_MAX) if HAS_MOVER else 0
        self._threads: list[threading.Thread] = []
        self._mover: Mover | None = None
        self._retired: list[Mover] = []  # Movers with earlier thread counts, whose last transfers are under way.
        self._poll_timer: asyncio.TimerHandle | None = None

    @property
    def can_store(self) -> bool:
        return self._threads_max > 0 and Mover.can_store

    def resize(self, threads: int) -> None:
        """Use `threads` threads (as in `num.network.threads`) for transfers that start from now on."""
        threads = min(threads, THREADS_MAX)
        if not self._threads_max or threads == self._threads_max:
            return
        self._threads_max = threads
        if self._mover is not None:
            self._retired.append(self._mover)
            self._mover, self._threads = None, []
            self._stop_retired()
            self._poll_soon()

    def send(
        self,
        socket: int,
        head: bytes,
        file: File,
        position: int,
        size: int,
        *,
        after: bytes = b"",
        is_quiet: bool,
        done: Callable[[Transfer], None],
    ) -> Transfer | None:
        """Send `head`, `size` bytes of a file, and `after`; return None if no mover can do it now.

        A quiet transfer wakes no one when it succeeds. Its owner is notified within a second, or calls `check_ended`.
        """
        mover = self._mover or self._begin()
        if mover is None:
            return None
        if is_quiet:
            self._poll_soon()
        return mover.send(socket, head, file, position, size, after, is_quiet, done)

    def store(
        self,
        socket: int,
        file: File,
        position: int,
        size: int,
        *,
        crc: int,
        tail_bytes: int,
        done: Callable[[Transfer], None],
    ) -> Transfer | None:
        """Write `size` received bytes to a file as they arrive; up to 16 more become the transfer's `tail`.

        `crc` is the checksum (CRC-32C) of the preceding bytes; the finished transfer has the checksum of all bytes.
        """
        mover = self._mover or self._begin()
        return None if mover is None else mover.store(socket, file, position, size, crc, tail_bytes, done)

    def moved(self, transfer: Transfer) -> int:
        """Return how many bytes of the file were moved so far."""
        return max((mover.moved(transfer) for mover in self._movers()), default=transfer.moved)

    def check_ended(self, transfer: Transfer) -> bool:
        """Return whether the transfer has ended, without calling `done`; if not, `done` is called at its end."""
        return any(mover.check_ended(transfer) for mover in self._movers())

    def cancel(self, transfer: Transfer) -> int:
        """Cancel the transfer and return how many bytes of the file were moved.

        Afterwards its descriptors are free, and `done` is not called.
        """
        for mover in self._movers():
            mover.cancel(transfer)  # Movers without this transfer do nothing.
        return transfer.moved

    def stop(self) -> None:
        """Stop all transfers and threads."""
        self._threads_max = 0
        movers = self._movers()
        self._mover, self._retired = None, []
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        for mover in movers:
            self._end(mover)
        for thread in self._threads:
            thread.join()

    def _begin(self) -> Mover | None:
        if not self._threads_max:
            return None
        groups = processors.groups(self._threads_max)
        try:
            mover = Mover(self._threads_max, groups)
            for number, affinity in enumerate([processors.usable()] * self._threads_max + groups):
                self._start(f"{number}", partial(mover.run, number), affinity)
            for number in range(COLD_THREADS):
                self._start(f"cold-{number}", mover.run_cold, processors.usable())
        except (OSError, RuntimeError) as error:  # No descriptors or no threads are left.
            log.warning("failed to start transfer threads; large transfers use the event loop: %s", error)
            self._threads_max = 0
            if self._threads:
                mover.stop()
            return None
        self._loop.add_reader(mover.fileno(), self._on_ended)
        self._mover = mover
        return mover

    def _start(self, name: str, run: Callable[[], None], affinity: set[int]) -> None:
        thread = threading.Thread(target=_run, args=(run, affinity), name=f"odradek-mover-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _movers(self) -> list[Mover]:
        return self._retired if self._mover is None else [self._mover, *self._retired]

    def _stop_retired(self) -> None:
        """Stop the threads of retired movers without transfers."""
        for mover in [mover for mover in self._retired if not mover.is_busy]:
            self._retired.remove(mover)
            self._end(mover)

    def _end(self, mover: Mover) -> None:
        self._loop.remove_reader(mover.fileno())
        mover.stop()

    def _poll_soon(self) -> None:
        if self._poll_timer is None:
            self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll_quiet_transfers)

    def _poll_quiet_transfers(self) -> None:
        self._poll_timer = None
        self._on_ended()
        self._stop_retired()
        if any(mover.is_busy for mover in self._movers()):
            self._poll_soon()

    def _on_ended(self) -> None:
        for transfer in [transfer for mover in self._movers() for transfer in mover.finished()]:
            try:
                if transfer.done is not None:
                    transfer.done(transfer)
            except Exception:
                log.exception("unexpected error at the end of a transfer")


def _run(run: Callable[[], None], affinity: set[int]) -> None:
    processors.bind_thread(affinity)
    run()
