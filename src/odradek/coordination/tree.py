"""The metadata tree, as ZooKeeper defines it: what everything that keeps cluster state here stands on.

Nodes have a path, data, a Stat, and children; all changes are totally ordered by zxid.  Whoever opens a tree has a
session; ephemeral nodes vanish with it.  A watch fires once, after the read that set it saw the older state.

Implementations (sqlite.py, zookeeper.py) block and may be called from any thread.  Watches are called on a thread of
their own, one after the other in the order of the changes: a watch may call the tree, and should not take long.
One conformance suite (tests/unit/coordination) runs on all of them and on a real ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

ANY_VERSION = -1
# ZooKeeper bounds the packet at 0xfffff bytes (jute.maxbuffer); this leaves room for the rest of it.
NODE_BYTES_MAX = 1_000_000
PATH_CHARACTERS_MAX = 16_384


class Stat(NamedTuple):
    """ZooKeeper's.  `version` counts changes of the data, `cversion` of the children; times are ms."""

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

    SUSPENDED: no contact, and the watches set before are gone: read anew when CONNECTED again.
    EXPIRED: the ephemeral nodes are gone too, for good; the tree must be opened anew.
    """

    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()


SessionListener = Callable[[SessionState], None]


class TreeFailed(Exception):
    """An operation that was not done."""

    def __init__(self, path: str = "", detail: str = "") -> None:
        super().__init__(f"{path}: {detail}" if path and detail else path or detail)
        self.path = path


class NoNode(TreeFailed):
    """The node, or the parent of the one to create, is not there."""


class NodeExists(TreeFailed):
    pass


class BadVersion(TreeFailed):
    """Someone else changed the data meanwhile."""


class NotEmpty(TreeFailed):
    """A node with children can't be deleted."""


class NoChildrenForEphemerals(TreeFailed):
    pass


class BadArguments(TreeFailed):
    """A path that is not allowed, or data that is too large."""


class SessionExpired(TreeFailed):
    """The session is gone, and its ephemeral nodes with it: open the tree anew."""


class Unavailable(TreeFailed):
    """The tree can't be reached now, or its file is no tree; a change may or may not have been made."""


class NoRoom(Unavailable):
    """The disk under the tree is full; nothing was changed."""


class DiskBroken(Unavailable):
    """The disk under the tree failed to write or sync a change: nothing more is changed before the next start."""


class NoAuth(Unavailable):
    """The node's ACL, or its parent's, keeps this session out; nothing was changed."""


class MultiFailed(TreeFailed):
    """Nothing of a multi was done, since `error` stood against the operation at `index`."""

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
    """Demands that the node is there, in this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Result = str | Stat | None  # Of a Create, a SetData; None of the others.


class Tree(Protocol):
    """All methods raise SessionExpired and Unavailable, and BadArguments for a path that is not allowed."""

    @property
    def session_id(self) -> int: ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Makes a node and returns its path; `sequential` adds ten digits, which count creations under the parent.

        Raises NoNode (no parent), NodeExists, NoChildrenForEphemerals.
        """

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Reads a node; the watch fires when it changes or is deleted.  Raises NoNode, and then sets no watch."""

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Reads nodes one by one, without waiting for each; None for one that is not there.

        `watch` gives the watch of a node by its path.
        """

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces the data if it has this version.  Raises NoNode, BadVersion."""

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes the node if it has this version.  Raises NoNode, BadVersion, NotEmpty."""

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Returns the node's Stat, None if there is none; the watch fires when it is created, changed or deleted."""

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names, sorted; the watch fires when one comes or goes, or the node is deleted.  Raises NoNode."""

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Does all or nothing, in one zxid; each operation sees what those before it did.  Raises MultiFailed."""

    def check_room(self) -> None:
        """Raises NoRoom if nothing should be added, as far as that is known; called before what can be refused."""

    def on_session(self, listener: SessionListener) -> None:
        """Has the listener called, on the thread of the watches, whenever the state of the session changes."""

    def close(self) -> None:
        """Ends the session, whose ephemeral nodes are deleted; a second call does nothing."""


# ZooKeeper's own list of what may not stand in a path.  Characters beyond 16 bits are surrogates to it.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def check_path(path: str) -> None:
    """Raises BadArguments with ZooKeeper's rules, and for a path of unreasonable length."""
    if not path.startswith("/"):
        raise BadArguments(path, "a path begins with /")
    if path != "/" and path.endswith("/"):
        raise BadArguments(path, "a path does not end with /")
    if len(path) > PATH_CHARACTERS_MAX:
        raise BadArguments(path[:100], f"a path has at most {PATH_CHARACTERS_MAX} characters")
    if _FORBIDDEN.search(path):
        raise BadArguments(path, "a path has no control, private or surrogate characters")
    if path != "/" and any(name in ("", ".", "..") for name in path[1:].split("/")):
        raise BadArguments(path, "a path has no empty, . or .. names")


def check_create(operation: Create) -> None:
    # Sequential nodes may have no name but their digits.
    check_path(operation.path + "0" if operation.sequential else operation.path)
    check_data(operation.path, operation.data)


def check_data(path: str, data: bytes) -> None:
    if len(data) > NODE_BYTES_MAX:
        raise BadArguments(path, f"{len(data)} bytes are more than the {NODE_BYTES_MAX} a node can hold")


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def ancestors_of(path: str) -> list[str]:
    """Parents first, the path itself last, the root left out."""
    names = path[1:].split("/") if path != "/" else []
    return ["/" + "/".join(names[: i + 1]) for i in range(len(names))]


def get_each(tree: Tree, paths: Sequence[str], watch: Callable[[str], Watch] | None) -> list[tuple[bytes, Stat] | None]:
    """Does `get_all` where a read takes no time but its own."""
    found: list[tuple[bytes, Stat] | None] = []
    for path in paths:
        try:
            found.append(tree.get(path, watch and watch(path)))
        except NoNode:
            found.append(None)
    return found


def children_if_there(tree: Tree, path: str) -> list[str]:
    """Returns the names, sorted; none where there is no such node."""
    try:
        return tree.children(path)
    except NoNode:
        return []


def ensure_paths(tree: Tree, paths: Sequence[str]) -> None:
    """Make the persistent nodes that are missing, parents included, in one change."""
    for path in paths:
        check_path(path)
    wanted = list(dict.fromkeys(ancestor for path in paths for ancestor in ancestors_of(path)))
    while True:
        missing = _missing(tree, wanted)
        if not missing:
            return
        try:
            tree.multi([Create(path) for path in missing])
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise failed.error from failed
        # Another process made some of them meanwhile: look again.


def _missing(tree: Tree, wanted: Sequence[str]) -> list[str]:
    """Returns the wanted nodes that are missing; nothing below a missing one has to be asked for."""
    missing: list[str] = []
    for path in wanted:
        if parent_of(path) in missing or tree.exists(path) is None:
            missing.append(path)
    return missing
