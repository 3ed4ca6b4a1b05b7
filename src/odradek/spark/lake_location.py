"""Location of a lake: a local folder, or a prefix in a bucket of an S3-compatible object store.

delta-rs reads and writes both. It treats every unknown scheme as a folder of that name, and would write records where
nobody looks for them. This module therefore decides which schemes are valid.

In a folder, writes must be synced (fsync): data files, versions of Delta's log, and the names of both. A store is
durable once it has answered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import IO, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

T = TypeVar("T")

LOG = "_delta_log"
STORE_SCHEMES = ("s3", "s3a")
# A second writer would overwrite the first one's version instead of failing.
UNSAFE = ("aws_s3_allow_unsafe_rename", "allow_unsafe_rename")
ENDPOINTS = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint", "aws_endpoint_url_s3")
REGIONS = ("aws_region", "region", "aws_default_region", "default_region")
RETRIES = ("max_retries", "retry_timeout")
HTTP_ALLOWED = ("aws_allow_http", "allow_http")
ADDRESS = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[!-~]*)?")


class BadPlace(ValueError):
    """Error for a text that is not a valid place for a lake; one sentence."""


class Store(Protocol):
    """Storage of a place: files that are written once and never changed."""

    def create(self, name: str) -> IO[bytes]:
        """Create a new file."""

    def finish(self, file: IO[bytes]) -> None:
        """Complete the file: from now on it is durable and whole."""

    def discard(self, name: str, file: IO[bytes]) -> None:
        """Discard an unfinished file. Raise nothing."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove finished files as far as possible. Raise nothing."""

    def names(self) -> list[str]:
        """Return the top-level names, none if the place does not exist yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a lake, pickled into every task. `storage` is delta-rs's storage_options for its store."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)  # Contains secrets.

    @classmethod
    def of(cls, text: str | os.PathLike[str], storage: Mapping[str, str] | None = None) -> Place:
        """Parse a path or a URL. `storage` overrides the AWS_* variables of this process. Raise BadPlace."""
        shown = os.fspath(text)
        scheme = None if isinstance(text, os.PathLike) else re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", shown)
        if scheme is None or scheme[1].lower() == "file":
            if storage:
                raise BadPlace(
                    f"Lake {shown!r} is a local directory, which has no object store settings. Is s3:// missing?"
                )
            path = Path(shown if scheme is None else unquote(urlsplit(shown).path))
            return cls(str(path.absolute()))  # Tasks that write to it may have another working directory.
        bucket = re.match(r"(s3a?)://([^/]+)(/.*)?$", shown)
        if bucket is None:
            raise BadPlace(
                f"Lake {shown!r} is not supported: use a local directory or s3://bucket/path. For a local"
                f" directory of this name, use ./{shown}."
            )
        return cls(shown.rstrip("/"), _reached(dict(storage or {})))

    @property
    def folder(self) -> Path | None:
        return Path(self.uri) if not self.uri.startswith(tuple(f"{scheme}://" for scheme in STORE_SCHEMES)) else None

    def with_retries(self, patience_ms: int) -> Place:
        """Return the place with a store that may be away this long, unless retries are configured."""
        configured = {name.lower() for name in self.storage}
        if self.folder is not None or configured & set(RETRIES):
            return self
        return replace(
            self, storage={**self.storage, "max_retries": "1000", "retry_timeout": f"{max(1, patience_ms // 1000)}s"}
        )

    def store(self) -> Store:
        folder = self.folder
        return Bucket(self) if folder is None else Folder(folder)

    def below(self, name: str) -> Place:
        return Place(f"{self.uri}/{name}", self.storage)

    def call(self, query: Callable[[], T]) -> T:
        """Return the answer without blocking signals: a store may take minutes, and delta-rs handles none."""
        if self.folder is not None:
            return query()
        result: Future[T] = Future()

        def set_result() -> None:
            try:
                result.set_result(query())
            except BaseException as error:
                result.set_exception(error)

        Thread(target=set_result, daemon=True).start()  # After an interrupt, nobody waits for it.
        return result.result()

    def sync_log(self, first: int, last: int) -> None:
        """Sync these versions of Delta's log, which others may have written, and their names."""
        if self.folder is None:
            return
        log = self.folder / LOG
        for version in range(first, last + 1):
            for name in (f"{version:020d}.json", f"{version:020d}.checkpoint.parquet"):
                sync(log / name)
        sync(log / "_last_checkpoint")
        sync(log)

    def sync_files(self, uris: Iterable[str]) -> None:
        """Sync data files that were not written by this package."""
        if self.folder is not None:
            for uri in uris:
                sync(Path(unquote(uri.removeprefix("file://"))))

    def sync_names(self) -> None:
        """Sync the names of the data files."""
        if self.folder is not None:
            sync(self.folder)

    def __str__(self) -> str:
        return self.uri


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self, name: str) -> IO[bytes]:
        return (self._path / name).open("xb")

    def finish(self, file: IO[bytes]) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def discard(self, name: str, file: IO[bytes]) -> None:
        with suppress(OSError):
            file.close()  # Flushes its buffer, which fails again on a full disk.
        self.remove([name])

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                (self._path / name).unlink()

    def names(self) -> list[str]:
        return [entry.name for entry in self._path.iterdir()] if self._path.is_dir() else []


class Bucket:
    """Files below a prefix, written through delta-rs, so that they and the table use the same settings."""

    def __init__(self, place: Place) -> None:
        from deltalake.fs import DeltaStorageHandler

        self._files = DeltaStorageHandler(place.uri, dict(place.storage))

    def create(self, name: str) -> IO[bytes]:
        file: IO[bytes] = self._files.open_output_stream(name)
        return file

    def finish(self, file: IO[bytes]) -> None:
        file.close()

    def discard(self, name: str, file: IO[bytes]) -> None:
        """Do nothing: an unfinished upload is not an object.

        Finishing and removing it would need a store that answers, which may be the problem.
        """

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._files.delete_file(name)

    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        return [found.path for found in self._files.get_file_info_selector(FileSelector("", allow_not_found=True))]


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder; do nothing if it does not exist."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reached(storage: dict[str, str]) -> dict[str, str]:
    """Return storage options that work on any machine, including this process's AWS_* variables."""
    given = {name.lower() for name in storage}
    found = {name: value for name, value in os.environ.items() if name.startswith("AWS_") and name.lower() not in given}
    options = found | storage
    os.environ.setdefault("RUST_LOG", "off")  # Otherwise delta-rs logs each missing credential to stderr.
    known = {name.lower(): value for name, value in options.items()}
    for name, value in options.items():  # delta-rs panics on these, which cannot be reported.
        if not (value.isascii() and value.isprintable()):
            raise BadPlace(
                f"The value of the store's setting {name} contains an invalid character, such as a line break."
            )
    for name in UNSAFE:
        if known.get(name, "false").lower() in ("true", "1", "yes", "on"):
            raise BadPlace(f"Unset {name.upper()}: with it, two loaders can overwrite each other's commits.")
    endpoint = next((known[name] for name in ENDPOINTS if name in known), "")
    if endpoint and not _is_address(endpoint):
        raise BadPlace(f"Invalid endpoint {endpoint!r} of the store; use http://host:port.")
    if endpoint.startswith("http://") and not any(name in known for name in HTTP_ALLOWED):
        options["AWS_ALLOW_HTTP"] = "true"  # http:// in the endpoint implies it.
    if endpoint and not any(name in known for name in REGIONS):
        options["AWS_REGION"] = "us-east-1"  # Stores other than AWS accept any, but it is required.
    return options


def _is_address(text: str) -> bool:
    try:
        return bool(ADDRESS.fullmatch(text)) and urlsplit(text).port != 0
    except ValueError:  # The port is too large.
        return False
