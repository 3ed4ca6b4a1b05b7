"""The tree on a ZooKeeper ensemble, through kazoo (the extra `zookeeper`).

Surprising: kazoo automatically begins a new session after an expiry. Here an expired tree stays expired, as the
interface requires, because its user has lost the ephemeral nodes and must know. Also, a node may have no data (null),
which differs from empty data: a broker of Apache Kafka exits if /latest_producer_id_block is empty. So nodes created
without data have none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from kazoo import exceptions  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.protocol.states import Callback, KazooState, KeeperState  # type: ignore[import-untyped]

from odradek.coordination import multi_read
from odradek.coordination.chroot import Chroot
from odradek.coordination.kazoo_values import STATES, add_to, check_delete, failure_of, kazoo_watch, result_of, stat_of
from odradek.coordination.multi_read import PATHS_MAX
from odradek.coordination.tree import (
    ANY_VERSION,
    BadArguments,
    Create,
    MultiFailed,
    NoAuth,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    Stat,
    Tree,
    TreeFailed,
    Unavailable,
    Watch,
    check_create,
    check_data,
    check_path,
    ensure_paths,
)
from odradek.coordination.zookeeper_access import OPEN, Access
from odradek.coordination.zookeeper_client import Acls, TlsHandler, make_client

SESSION_TIMEOUT_MS = 18_000  # zookeeper.session.timeout.ms
READS_IN_FLIGHT = 1_000  # The default for zookeeper.max.in.flight.requests.


def open_zookeeper(
    connect: str,
    *,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    connection_timeout_ms: int | None = None,
    makes_chroot: bool = False,
    access: Access = OPEN,
    reads_in_flight: int = READS_IN_FLIGHT,
) -> Tree:
    """Open the tree at `connect`, in the format of zookeeper.connect: host:port,host:port/chroot.

    Raises Unavailable, and any tree error when creating the chroot.
    """
    hosts, slash, chroot = connect.partition("/")
    has_chroot = bool(chroot.strip("/"))
    tree = ZooKeeperTree(
        hosts,
        session_timeout_ms,
        connection_timeout_ms or session_timeout_ms,
        access=access,
        root=slash + chroot if has_chroot else "",
        reads_in_flight=reads_in_flight,
    )
    if not has_chroot:
        return tree
    try:
        if makes_chroot:
            ensure_paths(tree, [slash + chroot])
        return Chroot(tree, slash + chroot)
    except BaseException:
        tree.close()
        raise


class ZooKeeperTree:
    """A Tree on a ZooKeeper ensemble; ACLs depend on the path of a znode below `root`."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        *,
        access: Access = OPEN,
        root: str = "",
        reads_in_flight: int = READS_IN_FLIGHT,
    ) -> None:
        self._hosts = hosts
        self._access = access
        self._acls = Acls(root, sets_acls=access.sets_acls)
        self._reads_in_flight = reads_in_flight
        self._is_closed = self._is_expired = self._is_refused = False
        self._has_multi_read = True  # Until the ensemble rejects it.
        self._listeners: list[SessionListener] = []
        self._stopping: threading.Thread | None = None
        # Otherwise a request without an answer for two timeouts would wait until there is a connection again.
        self._answer_s = 2 * session_timeout_ms / 1000
        self._client = make_client(hosts, session_timeout_ms, access)
        self._client.add_listener(self._on_state)
        try:
            self._session_id = self._begin_session(connection_timeout_ms)
        except (KazooTimeoutError, TreeFailed) as error:
            self.close()
            raise Unavailable(detail=self._failure_message(connection_timeout_ms)) from error

    @property
    def session_id(self) -> int:
        return self._session_id

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        check_create(Create(path, data, ephemeral, sequential))
        value = data or None
        created = self._execute(
            path,
            self._client.create_async,
            path,
            value,
            acl=self._acls.of(path),
            ephemeral=ephemeral,
            sequence=sequential,
        )
        assert isinstance(created, str)
        return created

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        data, stat = self._execute(path, self._client.get_async, path, watch=kazoo_watch(watch))
        return data or b"", stat_of(stat)

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            check_path(path)
        if watch is None and self._has_multi_read:
            try:
                return self._get_many(paths)
            except exceptions.UnimplementedError:
                self._has_multi_read = False
        sent = (
            (path, self._send(self._client.get_async, path, watch=kazoo_watch(watch and watch(path)))) for path in paths
        )
        return [self._read(path, answer) for path, answer in self._pipelined(sent)]

    def _get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Read many nodes in each request.

        Raises kazoo's UnimplementedError if a server lacks multiRead, in an ensemble that is being upgraded.
        """
        batches = [paths[first : first + PATHS_MAX] for first in range(0, len(paths), PATHS_MAX)]
        sent = ((batch[0], self._send(multi_read.send_multi_read, self._client, batch)) for batch in batches)
        answers = chain.from_iterable(self._await_answer(first, answer) for first, answer in self._pipelined(sent))
        return [self._node_of(path, answer) for path, answer in zip(paths, answers, strict=True)]

    def _node_of(self, path: str, answer: multi_read.Answer) -> tuple[bytes, Stat] | None:
        if not isinstance(answer, int):
            return answer[0] or b"", stat_of(answer[1])
        if answer == exceptions.NoNodeError.code:
            return None
        raise self._failure(path, exceptions.EXCEPTIONS[answer]())

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        check_path(path)
        check_data(path, data)
        return stat_of(self._execute(path, self._client.set_async, path, data, version=version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        check_delete(path)
        self._execute(path, self._client.delete_async, path, version=version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        stat = self._execute(path, self._client.exists_async, path, watch=kazoo_watch(watch))
        return None if stat is None else stat_of(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return sorted(self._execute(path, self._client.get_children_async, path, watch=kazoo_watch(watch)))

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if not operations:
            return []
        transaction = self._client.transaction()
        for index, operation in enumerate(operations):
            try:
                add_to(transaction, operation, self._acls)
            except BadArguments as error:
                raise MultiFailed(index, error) from error
        answers = self._execute("", transaction.commit_async)
        for index, answer in enumerate(answers):
            # Operations before the failed one are RolledBack, later ones RuntimeInconsistency.
            if isinstance(answer, Exception) and not isinstance(answer, exceptions.RolledBackError):
                raise MultiFailed(index, self._failure(operations[index].path, answer)) from answer
        return [result_of(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    def check_room(self) -> None:
        """Do nothing; an ensemble with full disks does not answer."""

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

    def _begin_session(self, timeout_ms: int) -> int:
        """Connect and return the session's id, or raise KazooTimeoutError or TreeFailed."""
        self._client.start(timeout=timeout_ms / 1000)
        if self._access.credentials is not None:  # kazoo reports a connection before it has authenticated.
            with suppress(NoAuth):  # NoAuth proves authentication.
                self._execute("/", self._client.exists_async, "/")
        self._probe_multi_read()
        session = self._client.client_id
        if session is None:
            raise Unavailable(detail="The connection was lost during its setup.")
        number: int = session[0]
        return number

    def _probe_multi_read(self) -> None:
        """Check whether the server has multiRead.

        A server without it also closes the connection, which is unused so far.
        """
        closed = threading.Event()

        def on_state(state: str) -> None:
            if state != KazooState.CONNECTED:  # kazoo has failed all requests sent or queued.
                closed.set()

        self._client.add_listener(on_state)
        try:
            self._await_answer("/", self._send(multi_read.send_multi_read, self._client, ["/"]))
        except exceptions.UnimplementedError:
            self._has_multi_read = False
            closed.wait(self._answer_s)
            self._execute("/", self._client.exists_async, "/")
        finally:
            self._client.remove_listener(on_state)

    def _failure_message(self, timeout_ms: int) -> str:
        """Return the message for a session that did not begin."""
        if self._is_refused and self._access.credentials is not None:
            return f"ZooKeeper at {self._hosts} failed to authenticate user {self._access.credentials.user}."
        handler = self._client.handler
        if isinstance(handler, TlsHandler) and handler.failure is not None:
            return f"TLS handshake with ZooKeeper at {self._hosts} failed: {handler.failure}."
        return f"ZooKeeper at {self._hosts} did not respond within {timeout_ms} ms."

    def _read(self, path: str, answer: Any) -> tuple[bytes, Stat] | None:
        try:
            data, stat = self._await_answer(path, answer)
        except NoNode:
            return None
        return data or b"", stat_of(stat)

    def _execute(self, path: str, request: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """Return the answer to a kazoo request, or raise its error as one of the tree's failures."""
        return self._await_answer(path, self._send(request, *arguments, **named))

    def _pipelined(self, sent: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield requests whose answers are to be awaited, starting as many as may be in flight."""
        in_flight: deque[tuple[str, Any]] = deque()
        for request in sent:
            in_flight.append(request)
            if len(in_flight) == self._reads_in_flight:
                yield in_flight.popleft()
        yield from in_flight

    def _send(self, request: Callable[..., Any], *arguments: object, **named: object) -> Any:
        if self._is_expired:
            raise SessionExpired(detail="The ZooKeeper session expired.")
        if self._is_closed:
            raise Unavailable(detail=f"The connection to ZooKeeper at {self._hosts} is closed.")
        return request(*arguments, **named)

    def _await_answer(self, path: str, answer: Any) -> Any:
        try:
            return answer.get(timeout=self._answer_s)
        except exceptions.UnimplementedError:
            raise
        except (exceptions.KazooException, KazooTimeoutError) as error:
            raise self._failure(path, error) from error

    def _failure(self, path: str, error: Exception) -> TreeFailed:
        known = failure_of(path, error)
        if known is not None:
            return known
        return Unavailable(path, f"Cannot connect to ZooKeeper at {self._hosts} ({type(error).__name__}).")

    def _on_state(self, state: str) -> None:
        # This runs on kazoo's I/O thread, where nothing may block.
        if self._is_closed or self._is_expired:
            return
        notified = threading.Event()
        if self._client.client_state == KeeperState.AUTH_FAILED:  # kazoo gives up in this case.
            self._is_expired = self._is_refused = True
        elif state == KazooState.LOST:
            self._stopping = threading.Thread(target=self._stop_after, args=(notified,), daemon=True)
            self._stopping.start()
            self._is_expired = True
        for listener in list(self._listeners):
            self._client.handler.dispatch_callback(Callback("session", listener, (STATES[state],)))
        notified.set()

    def _stop_after(self, notified: threading.Event) -> None:
        """Stop kazoo, which would begin a new session, after the listeners' calls are queued."""
        notified.wait()
        self._client.stop()
