"""The metadata tree, as defined by ZooKeeper: the base of all cluster state.

Nodes have a path, data, a Stat, and children; all changes are totally ordered by zxid. Each opened tree has a
session; ephemeral nodes are deleted with it. A watch fires once, after the read that set it returned the older state.

Implementations (sqlite.py, zookeeper.py) block and may be called from any thread. Watches are called on a separate
thread, one after the other in the order of the changes. A watch may call the tree, and should return quickly. One
conformance suite (tests/unit/coordination) runs on all of them and on a real ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

ANY_VERSION = -1
# ZooKeeper limits the packet to 0xfffff bytes (jute.maxbuffer); this leaves room for the rest of it.
NODE_BYTES_MAX = 1_000_000
PATH_CHARACTERS_MAX = 16_384


class Stat(NamedTuple):
    """ZooKeeper's stat; `version` counts changes of the data, `cversion` of the children; times are ms."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class EventKind(Enum):
    CREATED = auto()
    DELETED = auto()
    DATA_CHANGED = auto()
    CHILDREN_CHANGED = auto()


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]


class SessionState(Enum):
    """The state of a session.

    - SUSPENDED: no connection, and earlier watches are lost; read again after CONNECTED.
    - EXPIRED: the ephemeral nodes are deleted, too; the tree must be reopened.
    """

    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()


SessionListener = Callable[[SessionState], None]


class TreeFailed(Exception):
    """An operation that was not executed."""

    def __init__(self, path: str = "", detail: str = "") -> None:
        super().__init__(f"{path}: {detail}" if path and detail else path or detail)
        self.path = path


class NoNode(TreeFailed):
    """A missing node, or a missing parent of the node to create."""


class NodeExists(TreeFailed):
    pass


class BadVersion(TreeFailed):
    """A concurrent change of the data by another client."""


class NotEmpty(TreeFailed):
    """The deletion of a node with children."""


class NoChildrenForEphemerals(TreeFailed):
    pass


class BadArguments(TreeFailed):
    """An invalid path, or data that is too large."""


class SessionExpired(TreeFailed):
    """The end of the session and its ephemeral nodes; the tree must be reopened."""


class Unavailable(TreeFailed):
    """An unreachable tree, or a file that is no tree; a change may or may not have been made."""


class NoRoom(Unavailable):
    """A full disk under the tree; nothing was changed."""


class DiskBroken(Unavailable):
    """A failed write or sync of the disk under the tree, which refuses changes until the next start."""


class NoAuth(Unavailable):
    """An ACL of the node or its parent that excludes this session; nothing was changed."""


class MultiFailed(TreeFailed):
    """A multi without any effect, because the operation at `index` failed with `error`."""

    def __init__(self, index: int, error: TreeFailed) -> None:
        super().__init__(error.path, f"operation {index} failed with {type(error).__name__}")
        self.index = index
        self.error = error


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """A condition that the node exists, in this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Result = str | Stat | None  # Of a Create or a SetData; None for the others.


class Tree(Protocol):
    """A metadata tree.

    All methods raise SessionExpired and Unavailable, and BadArguments for an invalid path.
    """

    @property
    def session_id(self) -> int: ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create a node and return its path; `sequential` appends the parent's creation count (ten digits).

        Raises NoNode (no parent), NodeExists, NoChildrenForEphemerals.
        """

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Read a node and set a watch for its change or deletion; raise NoNode and set no watch."""

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read nodes one by one without waiting for each; None for a missing node.

        `watch` returns the watch of a node by its path.
        """

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace the data if it has this version, or raise NoNode or BadVersion."""

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node if it has this version, or raise NoNode, BadVersion or NotEmpty."""

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the node's Stat or None; the watch fires when it is created, changed or deleted."""

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the sorted names of the children, or raise NoNode.

        The watch fires when a child is created or deleted, or the node is deleted.
        """

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Execute all operations or none, in one zxid and in order, or raise MultiFailed.

        Each operation sees the effects of earlier ones.
        """

    def check_room(self) -> None:
        """Raise NoRoom if nothing should be added, as far as known; called before changes that may be refused."""

    def on_session(self, listener: SessionListener) -> None:
        """Call the listener on the thread of the watches whenever the session's state changes."""

    def close(self) -> None:
        """End the session, whose ephemeral nodes are deleted; a second call does nothing."""


# ZooKeeper's list of forbidden characters in a path, where characters beyond 16 bits are surrogates.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def check_path(path: str) -> None:
    """Raise BadArguments by ZooKeeper's rules, and for a path of unreasonable length."""
    if not path.startswith("/"):
        raise BadArguments(path, "a path must start with /")
    if path != "/" and path.endswith("/"):
        raise BadArguments(path, "a path must not end with /")
    if len(path) > PATH_CHARACTERS_MAX:
        raise BadArguments(path[:100], f"a path must have at most {PATH_CHARACTERS_MAX} characters")
    if _FORBIDDEN.search(path):
        raise BadArguments(path, "a path must not contain control, private or surrogate characters")
    if path != "/" and any(name in ("", ".", "..") for name in path[1:].split("/")):
        raise BadArguments(path, "a path must not contain empty, . or .. names")


def check_create(operation: Create) -> None:
    # Sequential nodes may have a name of only digits.
    check_path(operation.path + "0" if operation.sequential else operation.path)
    check_data(operation.path, operation.data)


def check_data(path: str, data: bytes) -> None:
    if len(data) > NODE_BYTES_MAX:
        raise BadArguments(path, f"{len(data)} bytes exceed the limit of {NODE_BYTES_MAX} bytes per znode")


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def ancestors_of(path: str) -> list[str]:
    """Return all ancestors, then the path itself, without the root."""
    names = path[1:].split("/") if path != "/" else []
    return ["/" + "/".join(names[: i + 1]) for i in range(len(names))]


def get_each(tree: Tree, paths: Sequence[str], watch: Callable[[str], Watch] | None) -> list[tuple[bytes, Stat] | None]:
    """Read nodes one by one, for a tree with fast reads."""
    found: list[tuple[bytes, Stat] | None] = []
    for path in paths:
        try:
            found.append(tree.get(path, watch and watch(path)))
        except NoNode:
            found.append(None)
    return found


def children_if_there(tree: Tree, path: str) -> list[str]:
    """Return the sorted names of the children, or none if the node does not exist."""
    try:
        return tree.children(path)
    except NoNode:
        return []


def ensure_paths(tree: Tree, paths: Sequence[str]) -> None:
    """Create the missing persistent nodes, parents included, in one change."""
    for path in paths:
        check_path(path)
    required = list(dict.fromkeys(ancestor for path in paths for ancestor in ancestors_of(path)))
    while True:
        missing = _missing(tree, required)
        if not missing:
            return
        try:
            tree.multi([Create(path) for path in missing])
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise failed.error from failed
        # Another process created some of them; check again.


def _missing(tree: Tree, paths: Sequence[str]) -> list[str]:
    """Return the wanted nodes that are missing, without checking below missing ones."""
    missing: list[str] = []
    for path in paths:
        if parent_of(path) in missing or tree.exists(path) is None:
            missing.append(path)
    return missing
