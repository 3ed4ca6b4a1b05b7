"""The liveness of sessions: a small file for each session of an embedded tree, next to the tree.

│ i64 │ the last heartbeat, ms of the machine's monotonic clock │

The process of a session holds a lock on its file. The kernel releases the lock when the process ends in any way. So a
killed broker is detected at once, and a restarting broker need not wait for the timeout of its old session. The
heartbeat detects a process that hangs. Neither needs a write to the tree.

The monotonic clock is shared by all processes of a machine and starts with it. A session of an earlier boot is dead.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_BEAT = struct.Struct("<q")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@cache  # Another read without a free descriptor would make the machine seem rebooted.
def boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # Not Linux: sessions from before a reboot end because their locks are released.
        return ""


def _file_of(tree: Path, session_id: int) -> Path:
    return tree.with_name(f"{tree.name}.session-{session_id:016x}")


class SessionFile:
    """The file of this process's session, created before the tree contains the session.

    Otherwise another process could consider the session dead.
    """

    def __init__(self, tree: Path) -> None:
        while True:
            self.session_id = int.from_bytes(os.urandom(8)) >> 2 | 1
            self._path = _file_of(tree, self.session_id)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if self._is_in_place():
                break
            os.close(self._descriptor)
        self._beat_at = monotonic_ms()
        self.beat()

    def beat(self) -> int:
        """Write a heartbeat and return the ms since the previous one."""
        before, self._beat_at = self._beat_at, monotonic_ms()
        os.pwrite(self._descriptor, _BEAT.pack(self._beat_at), 0)
        return self._beat_at - before

    def close(self, *, is_over: bool = True) -> None:
        """Remove the file; unless the session is over, only unlock it, as when the process ends."""
        if is_over:
            self._path.unlink(missing_ok=True)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # A process forked since then holds the lock, too.
        os.close(self._descriptor)

    def _is_in_place(self) -> bool:
        # Between creation and lock, another process may have removed the file as a dead session's.
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False


def is_dead(tree: Path, session_id: int, boot: str, timeout_ms: int, awake_since_ms: int = 0) -> bool:
    """Return whether the session's process ended, or sent no heartbeat for the timeout.

    After a stall of the checking process, silence counts from `awake_since_ms`. The whole machine may have been
    stopped, and some processes continue later than others.
    """
    if boot != boot_id():
        return True
    try:
        descriptor = os.open(_file_of(tree, session_id), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        beat = os.pread(descriptor, _BEAT.size, 0)
        if len(beat) < _BEAT.size:
            return False
        beat_at: int = _BEAT.unpack(beat)[0]
        return monotonic_ms() - max(beat_at, awake_since_ms) > timeout_ms
    else:
        return True
    finally:
        os.close(descriptor)


def forget(tree: Path, session_id: int) -> None:
    with suppress(OSError):
        _file_of(tree, session_id).unlink(missing_ok=True)


def remove_strays(tree: Path, known: set[int]) -> None:
    """Remove the files of sessions missing from the tree, whose processes ended between two steps."""
    for path in tree.parent.glob(f"{tree.name}.session-*"):
        with suppress(OSError, ValueError):
            if int(path.suffix.partition("-")[2], 16) in known:
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)
