"""A part of a tree as a tree of its own: zookeeper.connect=host:2181/kafka.

Its root node is not created here. Operations raise NoNode until it exists, as in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.coordination.tree import (
    ANY_VERSION,
    BadArguments,
    Create,
    MultiFailed,
    Operation,
    Result,
    SessionListener,
    Stat,
    Tree,
    Watch,
    WatchEvent,
    check_path,
)


@dataclass(frozen=True, slots=True)
class _ChrootWatch:
    """A watch that receives paths below the root; equal for equal watches, so a repeated one fires once."""

    watch: Watch
    root: str

    def __call__(self, event: WatchEvent) -> None:
        self.watch(event._replace(path=_below(self.root, event.path)))


def _below(root: str, path: str) -> str:
    return path[len(root) :] or "/"


class Chroot:
    """A tree below a node of another tree; closing it closes that tree."""

    def __init__(self, tree: Tree, root: str) -> None:
        check_path(root)
        self._tree = tree
        self._root = root.rstrip("/")

    @property
    def session_id(self) -> int:
        return self._tree.session_id

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        real = self._real(path, sequential=sequential)
        return self._shown(self._tree.create(real, data, ephemeral=ephemeral, sequential=sequential))

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._tree.get(self._real(path), self._watch(watch))

    def get_all(
        self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        real = [self._real(path) for path in paths]
        if watch is None:
            return self._tree.get_all(real)
        return self._tree.get_all(real, lambda path: _ChrootWatch(watch(self._shown(path)), self._root))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return self._tree.set(self._real(path), data, version)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        if path == "/":
            raise BadArguments(path, "the root must not be deleted")
        self._tree.delete(self._real(path), version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._tree.exists(self._real(path), self._watch(watch))

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._tree.children(self._real(path), self._watch(watch))

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        moved: list[Operation] = []
        for index, operation in enumerate(operations):
            try:
                sequential = isinstance(operation, Create) and operation.sequential
                moved.append(operation._replace(path=self._real(operation.path, sequential=sequential)))
            except BadArguments as error:
                raise MultiFailed(index, error) from error
        results = self._tree.multi(moved)
        return [self._shown(result) if isinstance(result, str) else result for result in results]

    def check_room(self) -> None:
        self._tree.check_room()

    def on_session(self, listener: SessionListener) -> None:
        self._tree.on_session(listener)

    def close(self) -> None:
        self._tree.close()

    def _real(self, path: str, *, sequential: bool = False) -> str:
        if not path.startswith("/"):
            raise BadArguments(path, "a path must start with /")
        # Children of the root may have a name of only digits.
        return self._root if path == "/" and self._root and not sequential else self._root + path

    def _shown(self, path: str) -> str:
        return _below(self._root, path)

    def _watch(self, watch: Watch | None) -> Watch | None:
        return None if watch is None else _ChrootWatch(watch, self._root)
