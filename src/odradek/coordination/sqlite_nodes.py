"""The nodes of an embedded tree: ZooKeeper's rules as SQL, inside a transaction of the caller.

The order of the checks is ZooKeeper's, so if two errors are possible both implementations raise the same one.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from odradek.coordination.tree import (
    ANY_VERSION,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    check_create,
    check_data,
    check_path,
    parent_of,
)

_STAT = "czxid, mzxid, ctime, mtime, version, creates, owner, length(data), children, pzxid"
_Row = tuple[int, int, int, int, int, int, int, int, int, int]


class Change(NamedTuple):
    """A change in the journal, which implies a change of the parent's children."""

    kind: EventKind
    path: str


def _stat(row: _Row) -> Stat:
    czxid, mzxid, ctime, mtime, version, creates, owner, length, children, pzxid = row
    # ZooKeeper's cversion counts creations and deletions. Only creations are stored: deletions are creations minus
    # current children.
    cversion = 2 * creates - children
    return Stat(czxid, mzxid, ctime, mtime, version, cversion, 0, owner, length, children, pzxid)


def read_stat(database: sqlite3.Connection, path: str) -> Stat | None:
    row = database.execute(f"SELECT {_STAT} FROM node WHERE path = ?", (path,)).fetchone()
    return None if row is None else _stat(row)


def read_data(database: sqlite3.Connection, path: str) -> tuple[bytes, Stat]:
    row = database.execute(f"SELECT data, {_STAT} FROM node WHERE path = ?", (path,)).fetchone()
    if row is None:
        raise NoNode(path)
    return row[0], _stat(row[1:])


def read_children(database: sqlite3.Connection, path: str) -> list[str]:
    if read_stat(database, path) is None:
        raise NoNode(path)
    prefix = len(path.rstrip("/")) + 1
    rows = database.execute("SELECT path FROM node WHERE parent = ?", (path,))
    return sorted(child[prefix:] for (child,) in rows)


class Writer:
    """The changes of one transaction, all with one zxid."""

    def __init__(self, database: sqlite3.Connection, zxid: int, now_ms: int, session_id: int) -> None:
        self._database = database
        self._zxid = zxid
        self._now_ms = now_ms
        self._session_id = session_id
        self.changes: list[Change] = []

    def apply(self, operation: Operation) -> Result:
        if isinstance(operation, Create):
            return self.create(operation)
        if isinstance(operation, SetData):
            return self.set(operation)
        if isinstance(operation, Delete):
            self.delete(operation.path, operation.version)
        else:
            assert isinstance(operation, Check)
            self._versioned(operation.path, operation.version)
        return None

    def create(self, operation: Create) -> str:
        check_create(operation)
        if operation.path == "/" and not operation.sequential:
            raise NodeExists("/")
        parent_path = parent_of(operation.path)
        parent = self._row(parent_path)
        path = operation.path + (f"{parent.creates:010d}" if operation.sequential else "")
        if read_stat(self._database, path) is not None:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        owner = self._session_id if operation.ephemeral else 0
        z, now = self._zxid, self._now_ms
        self._database.execute(
            "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?)",
            (path, parent_path, operation.data, z, z, z, now, now, owner),
        )
        self._database.execute(
            "UPDATE node SET creates = creates + 1, children = children + 1, pzxid = ? WHERE path = ?",
            (self._zxid, parent_path),
        )
        self.changes.append(Change(EventKind.CREATED, path))
        return path

    def set(self, operation: SetData) -> Stat:
        check_path(operation.path)
        check_data(operation.path, operation.data)
        self._versioned(operation.path, operation.version)
        self._database.execute(
            "UPDATE node SET data = ?, mzxid = ?, mtime = ?, version = version + 1 WHERE path = ?",
            (operation.data, self._zxid, self._now_ms, operation.path),
        )
        self.changes.append(Change(EventKind.DATA_CHANGED, operation.path))
        stat = read_stat(self._database, operation.path)
        assert stat is not None, "the znode exists in this transaction"
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        check_path(path)
        if path == "/":
            raise BadArguments(path, "the root must not be deleted")
        if self._versioned(path, version).children:
            raise NotEmpty(path)
        self._remove(path)

    def end_session(self, session_id: int) -> None:
        """Delete a session and its nodes."""
        self._database.execute("DELETE FROM session WHERE id = ?", (session_id,))
        owned = self._database.execute("SELECT path FROM node WHERE owner = ? ORDER BY path", (session_id,)).fetchall()
        for (path,) in owned:
            self._remove(path)

    def _remove(self, path: str) -> None:
        self._database.execute("DELETE FROM node WHERE path = ?", (path,))
        self._database.execute(
            "UPDATE node SET children = children - 1, pzxid = ? WHERE path = ?", (self._zxid, parent_of(path))
        )
        self.changes.append(Change(EventKind.DELETED, path))

    def _versioned(self, path: str, version: int) -> _Node:
        check_path(path)
        node = self._row(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"is at version {node.version}, not {version}")
        return node

    def _row(self, path: str) -> _Node:
        query = "SELECT version, creates, children, owner FROM node WHERE path = ?"
        row = self._database.execute(query, (path,)).fetchone()
        if row is None:
            raise NoNode(path)
        return _Node(*row)


class _Node(NamedTuple):
    version: int
    creates: int
    children: int
    owner: int
