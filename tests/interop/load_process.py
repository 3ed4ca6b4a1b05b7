"""`odradek load` as run by users: a separate process with its Java and its Python workers, which can be listed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from deltalake import DeltaTable
from object_store import ObjectStore
from quick_spark import soon_up

SECONDS_MAX = 300  # It ends a hang: on a slow and busy machine a start takes a minute.
PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Place:
    """The location of a table: as passed to the command, and as a folder on this machine."""

    url: str
    folder: Path
    storage: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def in_folder(cls, folder: Path) -> Place:
        return cls(str(folder), folder)

    @classmethod
    def in_store(cls, store: ObjectStore, path: str) -> Place:
        return cls(store.url(path), store.folder / path, store.environment)

    def arguments(self) -> list[str]:
        return ["--lake", self.url, *(f"--storage={key}={value}" for key, value in self.storage.items())]

    def table(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.url, version=version, storage_options=dict(self.storage))

    def version(self) -> int:
        """Return the newest version; -1 if there is no table."""
        names = (path.stem for path in (self.folder / "_delta_log").glob("*.json"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)


class Load:
    """One run of the command, for `with`, which ends all of its processes."""

    def __init__(self, address: str, place: Place, *arguments: str, folder: Path, topics: str) -> None:
        """Start the command; the folder is created, and receives its output and its files below /tmp."""
        soon_up()
        folder.mkdir(parents=True)
        self.place = place
        self._output = folder / "said.txt"
        command = [sys.executable, "-m", "odradek", "load", "--bootstrap-server", address, "--topics", topics]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *place.arguments(), *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)},
                start_new_session=True,  # Its session id identifies all of its processes.
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def java(self) -> list[int]:
        """Return its Java once it runs, without processes that only print a version or build a command line."""
        return [pid for pid, _, command in self._belongings() if "org.apache.spark.deploy.SparkSubmit" in command]

    def workers(self) -> list[int]:
        """Return the Python processes that run its tasks, without the one that starts them."""
        daemons = {pid: parent for pid, parent, command in self._belongings() if "pyspark.daemon" in command}
        return [pid for pid, parent in daemons.items() if parent in daemons]

    def wait(self) -> int:
        """Wait until it has ended; return the exit status."""
        self.until(lambda: self.status is not None, "its end")
        assert self.status is not None
        return self.status

    def wait_for_version(self, version: int) -> None:
        """Wait until the table has this version, or the command has ended."""
        self.until(lambda: self.place.version() >= version or self.status is not None, f"version {version}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.output()}"
            time.sleep(PAUSE_SECONDS)

    def terminate(self) -> int:
        """Send SIGTERM, and return the exit status."""
        self._process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kill the command with kill -9; its Java notices that, and ends."""
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """Kill all of its processes with kill -9, as if the machine had failed."""
        self._process.kill()
        while found := [pid for pid, _, _ in self._belongings()]:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(PAUSE_SECONDS)
        self._process.wait()

    def _belongings(self) -> list[tuple[int, int, str]]:
        """Return id, parent and command of each of its running processes."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):  # No ps: this is asked often.
            with suppress(OSError):  # It ends meanwhile.
                state, parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.pid and state not in "ZX":
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(folder.name), int(parent), command))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
