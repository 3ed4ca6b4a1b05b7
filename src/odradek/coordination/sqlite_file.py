"""The file of an embedded tree: its tables, its creation, and its failures.

    state     one row: the zxid of the last change
    node      a row per node; `creates` counts the children ever created, which numbers sequential ones
    session   a row per live session
    journal   the node that each of the last zxids changed, for watches in other processes

Write-ahead logging is used because a commit is then one fsync (a rollback journal takes three) and readers never
wait. With synchronous=FULL, acknowledged changes survive a power failure. The price is shared memory: all processes
that share the file must be on one machine, and not on a network file system.

A new file is written under a temporary name and linked into place complete, so that no process ever sees a partial
one. If two processes race, the second one finds the file of the first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from odradek.coordination.tree import DiskBroken, NoRoom, Unavailable

APPLICATION_ID = 0x4F445254  # "ODRT"; PRAGMA application_id, which identifies foreign files.
SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0
# Offsets in SQLite's file header; 2 in both means write-ahead logging.
_WRITE_VERSION, _READ_VERSION = 18, 19

# A failed sync can't be repeated: the kernel has dropped the unwritten data and reports the failure only once.
_BREAKS = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_IOERR_WRITE)

_NOT_A_TREE = "{} is not a metadata file of Odradek: move it away, or set metadata.log.dir to another directory."

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE state (zxid INTEGER NOT NULL);
CREATE TABLE node (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime INTEGER NOT NULL, mtime INTEGER NOT NULL,
    version INTEGER NOT NULL, creates INTEGER NOT NULL, children INTEGER NOT NULL, owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent);
CREATE INDEX node_by_owner ON node (owner) WHERE owner != 0;
CREATE TABLE session (id INTEGER PRIMARY KEY, boot TEXT NOT NULL, timeout_ms INTEGER NOT NULL);
CREATE TABLE journal (
    zxid INTEGER NOT NULL, position INTEGER NOT NULL, kind INTEGER NOT NULL, path TEXT NOT NULL,
    PRIMARY KEY (zxid, position)
) WITHOUT ROWID;
INSERT INTO state VALUES (0);
INSERT INTO node VALUES ('/', '', x'', 0, 0, 0, 0, 0, 0, 0, 0, 0);
"""


def open_database(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """Open or create the file; raise Unavailable if it can't be opened, is no tree, or is too new.

    Without `durable`, committed changes survive the process, but perhaps not a power failure.
    """
    with failures(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                _make(path, durable)
        except OSError as error:
            raise Unavailable(
                detail=f"Failed to create the metadata file {path}: {error.strerror or error}."
            ) from error
        database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _check(database, path)
            database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
            if durable:
                _checkpoint_log(database, path)
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into failures of the tree, each one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) in _BREAKS:
            raise DiskBroken(detail=disk_failure_text(path, error)) from error
        kind = NoRoom if _code(error) == sqlite3.SQLITE_FULL else Unavailable
        raise kind(detail=_error_text(path, error)) from error


def disk_failure_text(path: Path, error: object) -> str:
    return f"The disk of the metadata file {path} failed ({error}): metadata changes fail until the next start."


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _error_text(path: Path, error: sqlite3.Error) -> str:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"The metadata file {path} has been locked by another process for {BUSY_TIMEOUT_S:.0f} s."
    if code == sqlite3.SQLITE_NOTADB:
        return _NOT_A_TREE.format(path)
    if code == sqlite3.SQLITE_CORRUPT:
        return f"The metadata file {path} is damaged ({error}): restore it from a copy."
    if code == sqlite3.SQLITE_FULL:
        return f"The disk is full: failed to extend the metadata file {path}."
    return f"Failed to use the metadata file {path}: {error}."


def _make(path: Path, durable: bool) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.executescript(_SCHEMA)
        image = bytearray(memory.serialize())
    image[_WRITE_VERSION] = image[_READ_VERSION] = 2
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(image)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _checkpoint_log(database: sqlite3.Connection, path: Path) -> None:
    """Copy the write-ahead log of a killed process into the file, and sync it.

    The process's last sync may have failed. Then the log is in the page cache but not on the disk, and another sync
    of it would not report that.
    """
    with suppress(FileNotFoundError):
        if path.with_name(f"{path.name}-wal").stat().st_size:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _check(database: sqlite3.Connection, path: Path) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise Unavailable(detail=_NOT_A_TREE.format(path))
    if version != SCHEMA_VERSION:
        detail = f"The metadata file {path} has version {version}, but this release supports only {SCHEMA_VERSION}."
        raise Unavailable(detail=detail)
