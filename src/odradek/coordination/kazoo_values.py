"""Conversion between kazoo and Tree: failures, events, session states, stats, multi operations."""

from __future__ import annotations

from typing import Any

from kazoo import exceptions  # type: ignore[import-untyped]
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat  # type: ignore[import-untyped]

from odradek.coordination.tree import (
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    TreeFailed,
    Watch,
    WatchEvent,
    check_create,
    check_data,
    check_path,
)
from odradek.coordination.zookeeper_client import Acls

_FAILURES: dict[type[Exception], type[TreeFailed]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    exceptions.BadArgumentsError: BadArguments,
    exceptions.SessionExpiredError: SessionExpired,
}
_EVENTS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.DATA_CHANGED,
    EventType.CHILD: EventKind.CHILDREN_CHANGED,
}
STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


class _KazooWatch:
    """A watch in kazoo's form; equal for equal watches, so a repeated one fires once."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type in _EVENTS:  # NONE means a lost connection, which session listeners report.
            self._watch(WatchEvent(_EVENTS[event.type], event.path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KazooWatch) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)


def failure_of(path: str, error: Exception) -> TreeFailed | None:
    """Return kazoo's error as the tree's, or None for a connection error."""
    for kazoo_error, failure in _FAILURES.items():
        if isinstance(error, kazoo_error):
            return failure(path)
    if isinstance(error, exceptions.NoAuthError):
        return NoAuth(path, "the ACL of the znode or of its parent denies this session the permission")
    if isinstance(error, exceptions.InvalidACLError):
        return NoAuth(path, "the session is not authenticated with ZooKeeper, so an ACL cannot name it")
    return None


def check_delete(path: str) -> None:
    check_path(path)
    if path == "/":
        raise BadArguments(path, "the root must not be deleted")


def kazoo_watch(watch: Watch | None) -> _KazooWatch | None:
    return None if watch is None else _KazooWatch(watch)


def stat_of(stat: ZnodeStat) -> Stat:
    return Stat(*stat)


def add_to(transaction: Any, operation: Operation, acls: Acls) -> None:
    if isinstance(operation, Create):
        check_create(operation)
        if operation.path.endswith("/"):
            raise BadArguments(operation.path, "kazoo cannot create a sequential znode without a name in a multi")
        acl = acls.of(operation.path)
        transaction.create(operation.path, operation.data, acl, operation.ephemeral, operation.sequential)
        if not operation.data:  # kazoo accepts None only in create(), not in a multi.
            transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
    elif isinstance(operation, SetData):
        check_path(operation.path)
        check_data(operation.path, operation.data)
        transaction.set_data(operation.path, operation.data, operation.version)
    elif isinstance(operation, Delete):
        check_delete(operation.path)
        transaction.delete(operation.path, operation.version)
    else:
        assert isinstance(operation, Check)
        check_path(operation.path)
        transaction.check(operation.path, operation.version)


def result_of(operation: Operation, answer: Any) -> Result:
    if isinstance(operation, Create):
        return str(answer)
    return stat_of(answer) if isinstance(operation, SetData) else None
