"""The watches of a tree, and the thread that calls them.

The tree's operations queue events while they hold the tree's lock, in the order of the changes. The thread takes them
from the queue and calls watches without any lock. So a read that returns a change comes after its events were queued.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from enum import Enum, auto
from queue import SimpleQueue

from odradek.coordination.tree import EventKind, Watch, WatchEvent, parent_of

_LOG = logging.getLogger(__name__)


class WatchKind(Enum):
    DATA = auto()  # Set by get, and by exists on an existing node.
    ABSENT = auto()  # Set by exists on a missing node.
    CHILD = auto()


# The watches fired by each event of a node.
_FIRED: dict[EventKind, tuple[WatchKind, ...]] = {
    EventKind.CREATED: (WatchKind.ABSENT,),
    EventKind.DATA_CHANGED: (WatchKind.DATA,),
    EventKind.DELETED: (WatchKind.DATA, WatchKind.CHILD),
    EventKind.CHILDREN_CHANGED: (WatchKind.CHILD,),
}


class Watches:
    """The watches set on a tree; not thread-safe, guarded by the tree's lock."""

    def __init__(self, caller: CallbackThread) -> None:
        self._caller = caller
        # A dict keeps watches in the order of their addition, each once.
        self._set: dict[tuple[WatchKind, str], dict[Watch, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._set)

    def add(self, kind: WatchKind, path: str, watch: Watch) -> None:
        self._set.setdefault((kind, path), {})[watch] = None

    def changed(self, kind: EventKind, path: str) -> None:
        """Fire the watches of a created, deleted or changed node, and those on its parent's children."""
        self.fire(WatchEvent(kind, path))
        if kind is not EventKind.DATA_CHANGED and path != "/":
            self.fire(WatchEvent(EventKind.CHILDREN_CHANGED, parent_of(path)))

    def fire(self, event: WatchEvent) -> None:
        fired: dict[Watch, None] = {}
        for kind in _FIRED[event.kind]:
            fired |= self._set.pop((kind, event.path), {})
        for watch in fired:
            self._caller.call(lambda watch=watch: watch(event))  # type: ignore[misc]

    def set_on(self) -> Iterator[tuple[WatchKind, str]]:
        yield from list(self._set)

    def clear(self) -> None:
        self._set.clear()


class CallbackThread:
    """A thread that calls functions one after the other, started by the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(function)

    def close(self) -> None:
        """End the thread after all queued calls."""
        if self._thread is not None:
            self._queue.put(None)

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            try:
                function()
            except Exception:  # A failing watch must not stop the others.
                _LOG.exception("A watch of the metadata tree failed.")
