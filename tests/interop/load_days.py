"""A loader under test, `odradek load --continuous`, with the broker and the store that it uses."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from load_process import Load, Place
from object_store import ObjectStore

from support.serving import Serving

TOPIC = "flights"
STEADY = ("--continuous", "--interval-ms=200", "--batch-records=2000")  # So short that most faults happen within one.


class BadDays:
    """The loader under test, and its faults. It is restarted when it has ended."""

    def __init__(self, running: Serving, store: ObjectStore | None, place: Place, folder: Path, random: Random) -> None:
        self.broker = running
        self.store = store
        self.place = place
        self.random = random
        self._folder = folder
        self._stack = ExitStack()
        self._loads: list[Load] = []

    def __enter__(self) -> BadDays:
        self.load = self.start(*STEADY)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *arguments: str) -> Load:
        folder = self._folder / f"load-{len(self._loads)}"
        load = Load(self.broker.address, self.place, *arguments, folder=folder, topics=TOPIC)
        self._stack.enter_context(load)
        self._loads.append(load)
        return load

    def outputs(self) -> str:
        return "\n".join(f"{number}, status {load.status}: {load.output()}" for number, load in enumerate(self._loads))

    def progress(self) -> None:
        """Wait for two new versions, of which one starts and ends during the wait."""
        self.load.wait_for_version(self.place.version() + 2)
        assert self.load.status is None, f"it ended by itself, status {self.load.status}"

    def again(self) -> None:
        self.load = self.start(*STEADY)

    def pause(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def one_of(self, find: Callable[[], Sequence[int]], what: str) -> int:
        """Return one of the loader's processes, as soon as there is one."""
        found: list[int] = []

        def is_there() -> bool:
            assert self.load.status is None, f"it ended by itself, status {self.load.status}"
            found.extend(find())
            return bool(found)

        self.load.until(is_there, what)
        return self.random.choice(found)

    def continues_or_fails_with(self, *sentences: str) -> None:
        """Check that the loader continues, or has ended with one of the messages and continues after a restart."""
        self.load.wait_for_version(self.place.version() + 2)
        if self.load.status is not None:
            self.ended_with(1, *sentences)

    def ended_with(self, status: int, *sentences: str) -> None:
        """Check that the loader ends with that status and one of these messages, and restart it."""
        assert self.load.wait() == status
        assert any(sentence in self.load.output() for sentence in sentences), f"none of {sentences}"
        self.again()


@contextmanager
def place(kind: str, folder: Path) -> Iterator[tuple[Place, ObjectStore | None]]:
    if kind == "folder":
        yield Place.in_folder(folder / "lake"), None
    else:
        with ObjectStore(folder / "store") as store:
            yield Place.in_store(store, "lake/flights"), store
