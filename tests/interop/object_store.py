"""An S3 object store in its own process: versitygw, which stores a bucket as a folder.

It is built once with Go in $ODRADEK_CLIENTS (default ~/.cache/odradek-clients), which takes a minute.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
from functools import cache
from pathlib import Path
from types import TracebackType

import pytest
from clients.dialogue import CACHE

from support.ports import free_port
from support.waiting import until

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
KEY, SECRET, REGION = "odradek", "no-secret-at-all", "us-east-1"
BUILD_SECONDS_MAX = 900
STOP_SECONDS_MAX = 60


@cache
def program() -> Path:
    """Return the built program, or skip the test if it cannot be built."""
    folder = CACHE / f"versitygw-{VERSION}"
    made = folder / "versitygw"
    if made.exists():
        return made
    if shutil.which("go") is None:
        pytest.skip("needs go to build versitygw, the object store of these tests")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Several test processes may build at the same time.
        if not made.exists():
            _build(folder)
    return made


def _build(folder: Path) -> None:
    command = ["go", "install", f"{MODULE}@{VERSION}"]
    environment = {**os.environ, "GOBIN": str(folder / "building")}
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
    )
    if done.returncode:
        pytest.skip(f"go could not build versitygw, the object store of these tests: {done.stderr.strip()[-300:]}")
    (folder / "building" / "versitygw").rename(folder / "versitygw")


class ObjectStore:
    """One store on 127.0.0.1, for `with`. `kill` is kill -9, `pause` SIGSTOP; `start` keeps port and data."""

    def __init__(self, directory: Path, bucket: str = "lakes") -> None:
        """Create a store with its buckets in the directory, which is created."""
        self.directory = directory
        self.bucket = bucket
        self.port = 0
        self._output = directory.parent / f"{directory.name}.txt"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings of its clients, by the names of AWS and delta-rs."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def folder(self) -> Path:
        """Return the folder of the bucket."""
        return self.directory / self.bucket

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, path: str) -> str:
        return f"s3://{self.bucket}/{path}"

    def file(self, url: str) -> Path:
        """Return the file or folder of the URL."""
        return self.directory / url.removeprefix("s3://")

    def start(self) -> ObjectStore:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        command = [str(program()), "--quiet", "--keep-alive", "--port", f"127.0.0.1:{self.port}", "posix"]
        credentials = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with self._output.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.directory)], env={**os.environ, **credentials}, stdout=log, stderr=log
            )
        until(self._listens_or_ended)
        assert self._process.poll() is None, self.output()
        return self

    def output(self) -> str:
        return self._output.read_text()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        process.send_signal(signal.SIGCONT)  # A paused process would not receive the signal.
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def _listens_or_ended(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            return True
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> ObjectStore:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
