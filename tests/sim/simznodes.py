"""The nodes of the simulated tree: ZooKeeper's rules on a dict, with a copy for each zxid.

A change is applied to a copy, so that a failure leaves nothing behind. Checks are in ZooKeeper's order, as in
coordination/sqlite_nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

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
    WatchEvent,
    check_create,
    check_data,
    check_path,
    parent_of,
)


@dataclass(frozen=True)
class Znode:
    """One node; `creates` counts all children it ever had."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    version: int = 0
    creates: int = 0
    children: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def stat(self) -> Stat:
        children = len(self.children)
        # Changes of children: deletions are the creations minus the existing children.
        cversion = 2 * self.creates - children
        times = self.czxid, self.mzxid, self.ctime, self.mtime
        return Stat(*times, self.version, cversion, 0, self.owner, len(self.data), children, self.pzxid)


class Znodes:
    """All nodes as of one zxid, and the changes of that zxid."""

    def __init__(self) -> None:
        self._nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0, 0)}
        self._zxid = 0
        self._now_ms = 0
        self.changes: list[WatchEvent] = []

    def copy(self, now_ms: int) -> Znodes:
        """Return a copy to be changed under the next zxid."""
        znodes = Znodes()
        znodes._nodes = dict(self._nodes)
        znodes._zxid = self._zxid + 1
        znodes._now_ms = now_ms
        return znodes

    def find(self, path: str) -> Znode:
        """Return the node, or raise NoNode."""
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def ephemerals_of(self, session_id: int) -> list[str]:
        return sorted(path for path, node in self._nodes.items() if node.owner == session_id)

    def apply(self, operation: Operation, session_id: int) -> Result:
        """Apply a change; on TreeFailed, the copy is unusable."""
        match operation:
            case Create():
                return self._create(operation, session_id)
            case SetData():
                return self._set(operation)
            case Delete():
                self._delete(operation)
            case Check():
                self._versioned(operation.path, operation.version)
        return None

    def _create(self, operation: Create, session_id: int) -> str:
        check_create(operation)
        if operation.path == "/" and not operation.sequential:
            raise NodeExists("/")
        parent_path = parent_of(operation.path)
        parent = self.find(parent_path)
        path = operation.path + (f"{parent.creates:010d}" if operation.sequential else "")
        if path in self._nodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        owner = session_id if operation.ephemeral else 0
        zxid, now_ms = self._zxid, self._now_ms
        self._nodes[path] = Znode(operation.data, zxid, zxid, zxid, now_ms, now_ms, owner)
        children = parent.children | {path.rpartition("/")[2]}
        self._nodes[parent_path] = replace(parent, children=children, creates=parent.creates + 1, pzxid=zxid)
        self.changes.append(WatchEvent(EventKind.CREATED, path))
        return path

    def _set(self, operation: SetData) -> Stat:
        check_path(operation.path)
        check_data(operation.path, operation.data)
        node = self._versioned(operation.path, operation.version)
        changed = replace(node, data=operation.data, version=node.version + 1, mzxid=self._zxid, mtime=self._now_ms)
        self._nodes[operation.path] = changed
        self.changes.append(WatchEvent(EventKind.DATA_CHANGED, operation.path))
        return changed.stat

    def _delete(self, operation: Delete) -> None:
        check_path(operation.path)
        if operation.path == "/":
            raise BadArguments(operation.path, "the root must not be deleted")
        if self._versioned(operation.path, operation.version).children:
            raise NotEmpty(operation.path)
        del self._nodes[operation.path]
        parent_path = parent_of(operation.path)
        parent = self._nodes[parent_path]
        children = parent.children - {operation.path.rpartition("/")[2]}
        self._nodes[parent_path] = replace(parent, children=children, pzxid=self._zxid)
        self.changes.append(WatchEvent(EventKind.DELETED, operation.path))

    def _versioned(self, path: str, version: int) -> Znode:
        check_path(path)
        node = self.find(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"is at version {node.version}, not {version}")
        return node
