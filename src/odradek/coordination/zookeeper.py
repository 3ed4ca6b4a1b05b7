"""The tree on a ZooKeeper ensemble, through kazoo (the extra `zookeeper`).

What surprises: kazoo begins a new session by itself when one expired.  Here an expired tree stays expired, as the
interface says, since whoever holds it has lost its ephemeral nodes and must know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo import exceptions  # type: ignore[import-untyped]
from kazoo.client import KazooClient, KazooState  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.protocol.states import Callback, EventType, WatchedEvent, ZnodeStat  # type: ignore[import-untyped]

from odradek.coordination.chroot import Chroot
from odradek.coordination.tree import (
    ANY_VERSION,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    Tree,
    TreeFailed,
    Unavailable,
    Watch,
    WatchEvent,
    check_create,
    check_data,
    check_path,
    ensure_paths,
)

SESSION_TIMEOUT_MS = 18_000  # zookeeper.session.timeout.ms

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
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


def open_zookeeper(
    connect: str,
    *,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    connection_timeout_ms: int | None = None,
    makes_chroot: bool = False,
) -> Tree:
    """Opens the tree at `connect`, which is as zookeeper.connect: host:port,host:port/chroot.

    Raises Unavailable; to make the chroot, what else a tree raises.
    """
    hosts, slash, chroot = connect.partition("/")
    tree = ZooKeeperTree(hosts, session_timeout_ms, connection_timeout_ms or session_timeout_ms)
    if not chroot.strip("/"):
        return tree
    try:
        if makes_chroot:
            ensure_paths(tree, [slash + chroot])
        return Chroot(tree, slash + chroot)
    except BaseException:
        tree.close()
        raise


class _Fired:
    """A watch as kazoo calls it; equal for equal watches, so that one set twice fires once."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type in _EVENTS:  # NONE tells that the connection is gone; the session's listeners hear of it.
            self._watch(WatchEvent(_EVENTS[event.type], event.path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fired) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)


class ZooKeeperTree:
    """A Tree on a ZooKeeper ensemble."""

    def __init__(self, hosts: str, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        self._hosts = hosts
        self._is_closed = self._is_expired = False
        self._listeners: list[SessionListener] = []
        self._stopping: threading.Thread | None = None
        # A request that gets no answer for two timeouts would otherwise wait until there is a connection again.
        self._answer_s = 2 * session_timeout_ms / 1000
        self._client = KazooClient(hosts=hosts, timeout=session_timeout_ms / 1000)
        self._client.add_listener(self._state_changed)
        try:
            self._client.start(timeout=connection_timeout_ms / 1000)
        except KazooTimeoutError as error:
            raise Unavailable(detail=f"ZooKeeper at {hosts} did not answer for {connection_timeout_ms} ms.") from error
        self._session_id: int = self._client.client_id[0]

    @property
    def session_id(self) -> int:
        return self._session_id

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        check_create(Create(path, data, ephemeral, sequential))
        created = self._ask(path, self._client.create_async, path, data, ephemeral=ephemeral, sequence=sequential)
        assert isinstance(created, str)
        return created

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        data, stat = self._ask(path, self._client.get_async, path, watch=_fired(watch))
        return data or b"", _stat(stat)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        check_path(path)
        check_data(path, data)
        return _stat(self._ask(path, self._client.set_async, path, data, version=version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        _check_delete(path)
        self._ask(path, self._client.delete_async, path, version=version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        stat = self._ask(path, self._client.exists_async, path, watch=_fired(watch))
        return None if stat is None else _stat(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return sorted(self._ask(path, self._client.get_children_async, path, watch=_fired(watch)))

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if not operations:
            return []
        transaction = self._client.transaction()
        for index, operation in enumerate(operations):
            try:
                _add(transaction, operation)
            except BadArguments as error:
                raise MultiFailed(index, error) from error
        answers = self._ask("", transaction.commit_async)
        for index, answer in enumerate(answers):
            # Those before the one that failed are RolledBack, those after it RuntimeInconsistency.
            if isinstance(answer, Exception) and not isinstance(answer, exceptions.RolledBackError):
                raise MultiFailed(index, self._failure(operations[index].path, answer)) from answer
        return [_result(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._stopping is not None:
            self._stopping.join()
        with suppress(exceptions.KazooException):
            self._client.stop()
            self._client.close()

    def _ask(self, path: str, request: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """Returns the answer to a request of kazoo's, or raises its error as one of the tree's failures."""
        if self._is_expired:
            raise SessionExpired(detail="The session with ZooKeeper expired.")
        if self._is_closed:
            raise Unavailable(detail=f"The connection to ZooKeeper at {self._hosts} is closed.")
        try:
            return request(*arguments, **named).get(timeout=self._answer_s)
        except (exceptions.KazooException, KazooTimeoutError) as error:
            raise self._failure(path, error) from error

    def _failure(self, path: str, error: Exception) -> TreeFailed:
        for theirs, ours in _FAILURES.items():
            if isinstance(error, theirs):
                return ours(path)
        return Unavailable(path, f"ZooKeeper at {self._hosts} can't be reached ({type(error).__name__}).")

    def _state_changed(self, state: str) -> None:
        # On the thread that does kazoo's input and output, where nothing may wait.
        if self._is_closed or self._is_expired:
            return
        told = threading.Event()
        if state == KazooState.LOST:
            self._stopping = threading.Thread(target=self._stop_after, args=(told,), daemon=True)
            self._stopping.start()
            self._is_expired = True
        for listener in list(self._listeners):
            self._client.handler.dispatch_callback(Callback("session", listener, (_STATES[state],)))
        told.set()

    def _stop_after(self, told: threading.Event) -> None:
        """Stops kazoo, which would go on with a new session, once the listeners' calls are in its queue."""
        told.wait()
        self._client.stop()


def _check_delete(path: str) -> None:
    check_path(path)
    if path == "/":
        raise BadArguments(path, "the root can't be deleted")


def _fired(watch: Watch | None) -> _Fired | None:
    return None if watch is None else _Fired(watch)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(*stat)


def _add(transaction: Any, operation: Operation) -> None:
    if isinstance(operation, Create):
        check_create(operation)
        if operation.path.endswith("/"):
            raise BadArguments(operation.path, "kazoo can't make a sequential node without a name in a multi")
        transaction.create(operation.path, operation.data, None, operation.ephemeral, operation.sequential)
    elif isinstance(operation, SetData):
        check_path(operation.path)
        check_data(operation.path, operation.data)
        transaction.set_data(operation.path, operation.data, operation.version)
    elif isinstance(operation, Delete):
        _check_delete(operation.path)
        transaction.delete(operation.path, operation.version)
    else:
        assert isinstance(operation, Check)
        check_path(operation.path)
        transaction.check(operation.path, operation.version)


def _result(operation: Operation, answer: Any) -> Result:
    if isinstance(operation, Create):
        return str(answer)
    return _stat(answer) if isinstance(operation, SetData) else None
