"""Disk space reserved for the tree, so that topics can be deleted on a full disk.

    ballast    free pages in the database, and a write-ahead log that was once as long: a deletion overwrites both, so
               neither has to grow.  Space used by topics is replenished while the disk has room.
    reserve    a file next to the database, deleted when a process starts on a full disk: opening takes some space

Other programs can't use the ballast. Space that is merely freed would be taken at once by other writers to the disk.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

PAGE_BYTES = 4096
BALLAST_PAGES = 256
RESERVE_BYTES = 1 << 20
# With less than this the disk counts as full: nothing new is created, and neither ballast nor reserve is replenished.
SHORT_BYTES = 4 << 20


def _reserve_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.reserve")


def is_short(tree: Path) -> bool:
    """Return whether the disk is practically full."""
    status = os.statvfs(tree.parent)
    return status.f_bavail * status.f_frsize < SHORT_BYTES


def open_reserve(tree: Path) -> None:
    """Delete the reserve if the disk has no other room; called before the tree is opened."""
    with suppress(OSError):
        if is_short(tree):
            _reserve_of(tree).unlink(missing_ok=True)


def replenish(database: sqlite3.Connection, tree: Path) -> None:
    """Replenish ballast and reserve if there is room, or raise sqlite3.Error or OSError."""
    if is_short(tree):
        return
    if not _reserve_of(tree).exists():
        _make_reserve(_reserve_of(tree))
    if not _has_ballast(database, tree):
        _make_ballast(database)


def restart_log(database: sqlite3.Connection) -> None:
    """Checkpoint the write-ahead log, so that it is written from its beginning again."""
    database.execute("PRAGMA wal_checkpoint(RESTART)")


def _make_reserve(path: Path) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _has_ballast(database: sqlite3.Connection, tree: Path) -> bool:
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    log = tree.with_name(f"{tree.name}-wal")
    return free >= BALLAST_PAGES // 2 and log.exists() and log.stat().st_size >= BALLAST_PAGES * PAGE_BYTES


def _make_ballast(database: sqlite3.Connection) -> None:
    """Write pages, so that the disk allocates them, and free them again."""
    for statements in (
        ("DROP TABLE IF EXISTS ballast", "CREATE TABLE ballast (data BLOB)", _INSERT),
        ("DROP TABLE IF EXISTS ballast",),  # Another process may have created one, too.
    ):
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                database.execute(statement)
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise
        restart_log(database)


_INSERT = f"INSERT INTO ballast VALUES (zeroblob({BALLAST_PAGES * PAGE_BYTES}))"
