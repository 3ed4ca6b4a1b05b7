"""Trees of every implementation, opened by address, for tests and the processes that they start and kill."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import BadVersion, Tree


def open_tree(address: str, timeout_ms: int = 18_000) -> Tree:
    """Open the tree at sqlite:PATH or zookeeper:HOST:PORT/CHROOT."""
    kind, _, where = address.partition(":")
    if kind == "sqlite":
        return SqliteTree(Path(where), session_timeout_ms=timeout_ms, poll_ms=5)
    from odradek.coordination.zookeeper import open_zookeeper

    return open_zookeeper(where, session_timeout_ms=timeout_ms, connection_timeout_ms=20_000)


def increment(tree: Tree, path: str) -> None:
    while True:
        data, stat = tree.get(path)
        try:
            tree.set(path, b"%d" % (int(data) + 1), stat.version)
        except BadVersion:
            continue
        return


def main(command: str, address: str, timeout_ms: str, path: str, *more: str) -> None:
    tree = open_tree(address, int(timeout_ms))
    if command == "hold":
        tree.create(path, b"held", ephemeral=True)
        print("holding", flush=True)
        threading.Event().wait()
    for _ in range(int(more[0])):
        increment(tree, path)
    tree.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
