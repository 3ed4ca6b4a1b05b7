"""The embedded tree: one SQLite file shared by the broker processes of one machine.

Every operation is one transaction. It first checks the zxid. If other processes made changes, the affected watches
are queued before the operation reads anything, so no client sees a change before its event. A background thread does
the same every few milliseconds while watches are set (asking SQLite for changes of the file takes some microseconds).
It also keeps the session alive and ends the sessions of dead processes.

Surprising: a killed process's session ends at once, not after its timeout (see sqlite_session.py). A process stopped
inside a transaction blocks the others until it continues or is killed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.coordination.sqlite_file import failures, open_database
from odradek.coordination.sqlite_nodes import Change, Writer, read_children, read_data, read_stat
from odradek.coordination.sqlite_room import is_short, open_reserve, replenish, restart_log
from odradek.coordination.sqlite_session import SessionFile, boot_id, forget, is_dead, monotonic_ms, remove_strays
from odradek.coordination.tree import (
    ANY_VERSION,
    Create,
    DiskBroken,
    EventKind,
    MultiFailed,
    NoRoom,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    TreeFailed,
    Unavailable,
    Watch,
    WatchEvent,
    check_path,
    get_each,
)
from odradek.coordination.watches import CallbackThread, Watches, WatchKind

_LOG = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"  # In metadata.log.dir.
SESSION_TIMEOUT_MS = 18_000  # zookeeper.session.timeout.ms
POLL_MS = 50
MAINTENANCE_MS_MAX = 1_000
# The maximum lag at which a process still receives every change; beyond it, the process compares watched nodes.
JOURNAL_ZXIDS = 10_000
_PRUNE_EVERY = 256


class SqliteTree:
    """A Tree; opening it creates a missing file, begins a session, and ends sessions of dead processes.

    With `durable` False, no operation waits for the disk; for a tree that is deleted with its folder anyway.
    """

    def __init__(
        self,
        path: Path,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        poll_ms: int = POLL_MS,
        durable: bool = True,
    ) -> None:
        self._path = path
        self._durable = durable
        self._poll_s = poll_ms / 1000
        self._maintenance_s = min(session_timeout_ms / 3, MAINTENANCE_MS_MAX) / 1000
        self._stall_ms = self._maintenance_s * 1000 + session_timeout_ms / 2  # A later check means a stalled process.
        self._awake_since_ms = 0
        self._lock = threading.RLock()
        self._caller = CallbackThread(f"watches of {path.name}")
        self._watches = Watches(self._caller)
        self._listeners: list[SessionListener] = []
        self._is_closed = self._is_expired = False
        self._broken: DiskBroken | None = None
        open_reserve(path)
        self._database = open_database(path, durable=durable)
        try:
            self._session = SessionFile(path)
        except OSError as error:
            self._database.close()
            raise Unavailable(
                detail=f"Failed to create a session next to {path}: {error.strerror or error}."
            ) from error
        try:
            self._seen = self._begin_session(session_timeout_ms)
        except BaseException:
            self._session.close()
            self._database.close()
            raise
        self._data_version = self._read_data_version()
        self._wake = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"session of {path.name}", daemon=True)
        self._keeper.start()

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        with self._write() as writer:
            return writer.create(Create(path, data, ephemeral, sequential))

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        with self._read() as database:
            found = read_data(database, path)
            self._watch(WatchKind.DATA, path, watch)
            return found

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        return get_each(self, paths, watch)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        with self._write() as writer:
            return writer.set(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        with self._write() as writer:
            writer.delete(path, version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        with self._read() as database:
            stat = read_stat(database, path)
            self._watch(WatchKind.ABSENT if stat is None else WatchKind.DATA, path, watch)
            return stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        with self._read() as database:
            names = read_children(database, path)
            self._watch(WatchKind.CHILD, path, watch)
            return names

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        try:
            return self._multi(operations)
        except NoRoom:
            with self._lock, failures(self._path):
                restart_log(self._database)
            return self._multi(operations)

    def check_room(self) -> None:
        """Raise NoRoom if the disk is full; the reserved room is for deletions, not for new nodes."""
        with suppress(OSError):
            if is_short(self._path):
                raise NoRoom(detail=f"The disk is full: failed to write to the metadata file {self._path}.")

    def _multi(self, operations: Sequence[Operation]) -> list[Result]:
        results: list[Result] = []
        with self._write() as writer:
            for index, operation in enumerate(operations):
                try:
                    results.append(writer.apply(operation))
                except TreeFailed as error:
                    raise MultiFailed(index, error) from error
        return results

    def on_session(self, listener: SessionListener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def close(self) -> None:
        self._close(ends_session=True)

    def abandon(self) -> None:
        """End like a killed process: the session remains, and the next process finds it dead."""
        self._close(ends_session=False)

    def _close(self, *, ends_session: bool) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._watches.clear()  # A closing tree does not fire watches for its own changes.
            if ends_session and not self._is_expired:
                # If the session can't be ended now, another process ends it after finding its file unlocked.
                with suppress(TreeFailed), self._write() as writer:
                    writer.end_session(self.session_id)
            self._is_closed = True
            with suppress(sqlite3.Error):
                self._database.close()
            self._session.close(is_over=ends_session)
        self._wake.set()
        self._caller.close()
        if threading.current_thread() is not self._keeper:
            self._keeper.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Transactions.

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("BEGIN"):
            self._catch_up(self._current_zxid())
            yield self._database

    @contextmanager
    def _write(self) -> Iterator[Writer]:
        with self._lock, self._refusing_after_failure():
            with self._transaction("BEGIN IMMEDIATE"):
                zxid = self._current_zxid()
                self._catch_up(zxid)
                writer = Writer(self._database, zxid + 1, time.time_ns() // 1_000_000, self.session_id)
                yield writer
                self._record(zxid + 1, writer.changes)
            self._announce(zxid + 1, writer.changes)

    @contextmanager
    def _refusing_after_failure(self) -> Iterator[None]:
        """Refuse all later changes after a disk failure, because the result of the failed one is unknown."""
        if self._broken is not None:
            raise DiskBroken(detail=str(self._broken))
        try:
            yield
        except DiskBroken as broken:
            self._broken = broken
            _LOG.error("%s", broken)
            raise

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._lock, failures(self._path):
            if self._is_expired:
                raise SessionExpired(detail="The metadata tree session expired.")
            if self._is_closed:
                raise Unavailable(detail=f"The metadata tree {self._path} is closed.")
            self._database.execute(begin)
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def _current_zxid(self) -> int:
        zxid, alive = self._database.execute(
            "SELECT zxid, EXISTS (SELECT 1 FROM session WHERE id = ?) FROM state", (self.session_id,)
        ).fetchone()
        if not alive:
            self._expire()
        assert isinstance(zxid, int)
        return zxid

    def _record(self, zxid: int, changes: list[Change]) -> None:
        if not changes:
            return
        self._database.execute("UPDATE state SET zxid = ?", (zxid,))
        self._database.executemany(
            "INSERT INTO journal VALUES (?, ?, ?, ?)",
            ((zxid, position, change.kind.value, change.path) for position, change in enumerate(changes)),
        )
        if zxid % _PRUNE_EVERY == 0:
            self._database.execute("DELETE FROM journal WHERE zxid <= ?", (zxid - JOURNAL_ZXIDS,))

    # Watches.

    def _watch(self, kind: WatchKind, path: str, watch: Watch | None) -> None:
        if watch is None:
            return
        if not self._watches:
            self._wake.set()  # The keeper polls more often now.
        self._watches.add(kind, path, watch)

    def _announce(self, zxid: int, changes: list[Change]) -> None:
        """Fire the watches for our own change that was just committed."""
        if changes:
            for kind, path in changes:
                self._watches.changed(kind, path)
            self._seen = zxid

    def _catch_up(self, zxid: int) -> None:
        """Fire the watches for changes by other processes up to this zxid."""
        if zxid == self._seen:
            return
        if self._watches:
            (oldest,) = self._database.execute("SELECT min(zxid) FROM journal").fetchone()
            if oldest is None or oldest > self._seen + 1:
                self._compare()
            else:
                query = "SELECT kind, path FROM journal WHERE zxid > ? ORDER BY zxid, position"
                for kind, path in self._database.execute(query, (self._seen,)).fetchall():
                    self._watches.changed(EventKind(kind), path)
        self._seen = zxid

    def _compare(self) -> None:
        """Find the due watches by comparing nodes, because the journal no longer covers the last seen zxid."""
        for kind, path in self._watches.set_on():
            stat = read_stat(self._database, path)
            if kind is WatchKind.ABSENT:
                event = None if stat is None else EventKind.CREATED
            elif stat is None:
                event = EventKind.DELETED
            elif kind is WatchKind.DATA:
                event = EventKind.DATA_CHANGED if stat.mzxid > self._seen else None
            else:
                event = EventKind.CHILDREN_CHANGED if stat.pzxid > self._seen else None
            if event is not None:
                self._watches.fire(WatchEvent(event, path))

    # Sessions.

    def _begin_session(self, timeout_ms: int) -> int:
        """Begin the session and return its first zxid."""
        # Without waiting for the disk: after a power failure all sessions are dead anyway, and any later sync
        # includes this write.
        if self._durable:
            self._database.execute("PRAGMA synchronous = NORMAL")
        with failures(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                zxid = self._end_dead_sessions()
                self._database.execute("INSERT INTO session VALUES (?, ?, ?)", (self.session_id, boot_id(), timeout_ms))
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise
            if self._durable:
                self._database.execute("PRAGMA synchronous = FULL")
        return zxid

    def _end_dead_sessions(self) -> int:
        """End the sessions of dead processes in a write transaction, and return the resulting zxid."""
        (zxid,) = self._database.execute("SELECT zxid FROM state").fetchone()
        assert isinstance(zxid, int)
        writer = Writer(self._database, zxid + 1, time.time_ns() // 1_000_000, self.session_id)
        for session_id in self._dead_sessions():
            writer.end_session(session_id)
            forget(self._path, session_id)
        known = {row[0] for row in self._database.execute("SELECT id FROM session")}
        remove_strays(self._path, known | {self.session_id})
        self._record(zxid + 1, writer.changes)
        return zxid + 1 if writer.changes else zxid

    def _dead_sessions(self) -> list[int]:
        rows = self._database.execute("SELECT id, boot, timeout_ms FROM session WHERE id != ?", (self.session_id,))
        since = self._awake_since_ms
        return [session_id for session_id, boot, ms in rows if is_dead(self._path, session_id, boot, ms, since)]

    def _expire(self) -> None:
        self._is_expired = True
        self._watches.clear()
        for listener in self._listeners:
            self._caller.call(lambda listener=listener: listener(SessionState.EXPIRED))  # type: ignore[misc]
        raise SessionExpired(detail="The metadata tree session expired.")

    def _keep(self) -> None:
        """Run the background thread."""
        maintained = time.monotonic()
        while True:
            self._wake.wait(self._poll_s if self._watches else self._maintenance_s)
            self._wake.clear()
            if self._is_closed or self._is_expired:
                return
            try:
                self._poll()
                if time.monotonic() - maintained >= self._maintenance_s:
                    maintained = time.monotonic()
                    self._maintain()
            except SessionExpired:
                return
            except (TreeFailed, OSError) as failed:
                _LOG.warning("failed to maintain the metadata file (will retry): %s", failed)

    def _poll(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            version = self._read_data_version()
            if version != self._data_version:
                self._data_version = version
                with self._read():
                    pass  # The start of the transaction catches up.

    def _maintain(self) -> None:
        with self._lock:
            # Under the lock: the descriptor that close() released may already belong to another file.
            if self._is_closed:
                return
            if self._session.beat() > self._stall_ms:
                self._awake_since_ms = monotonic_ms()
            if self._broken is not None:
                return
            with failures(self._path):
                dead = self._dead_sessions()
            if dead:
                with self._write() as writer:
                    for session_id in dead:
                        writer.end_session(session_id)
                        forget(self._path, session_id)
            if self._durable:
                with failures(self._path):
                    replenish(self._database, self._path)

    def _read_data_version(self) -> int:
        with failures(self._path):
            (version,) = self._database.execute("PRAGMA data_version").fetchone()
        assert isinstance(version, int)
        return version
