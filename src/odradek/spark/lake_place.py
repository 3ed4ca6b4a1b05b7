"""Where a lake lies: a folder of this machine, or a prefix in a bucket of an object store that speaks S3.

delta-rs reads and writes both.  It takes every scheme that it does not know for a folder of that name, and so would
put records where nobody looks for them: which schemes there are is decided here.

A folder has to be told to keep what was written (fsync), for data files, for the versions of Delta's log and for the
names of both.  A store keeps what it has answered for.
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
# A second writer would overwrite the first one's version instead of losing against it.
UNSAFE = ("aws_s3_allow_unsafe_rename", "allow_unsafe_rename")
ENDPOINTS = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint", "aws_endpoint_url_s3")
REGIONS = ("aws_region", "region", "aws_default_region", "default_region")
RETRIES = ("max_retries", "retry_timeout")
HTTP_ALLOWED = ("aws_allow_http", "allow_http")
ADDRESS = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[!-~]*)?")


class BadPlace(ValueError):
    """Raised for a text that names no place for a lake; one sentence."""


class Store(Protocol):
    """What is under a place: files that are made once and never changed."""

    def create(self, name: str) -> IO[bytes]:
        """Begins a new file."""

    def finish(self, file: IO[bytes]) -> None:
        """Ends it: from now on it is there whole, whatever happens."""

    def discard(self, name: str, file: IO[bytes]) -> None:
        """Ends a file that came to nothing.  Raises nothing."""

    def remove(self, names: Iterable[str]) -> None:
        """Removes finished files, as far as that is possible.  Raises nothing."""

    def names(self) -> list[str]:
        """Returns what lies at the top; nothing where there is no such place yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place; pickled into every task.  `storage` is how its store is reached: delta-rs calls it storage_options."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)  # Secrets are among them.

    @classmethod
    def of(cls, text: str | os.PathLike[str], storage: Mapping[str, str] | None = None) -> Place:
        """Reads a path or a URL.  The AWS_* variables of this process go along, `storage` wins.  Raises BadPlace."""
        shown = os.fspath(text)
        scheme = None if isinstance(text, os.PathLike) else re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", shown)
        if scheme is None or scheme[1].lower() == "file":
            if storage:
                raise BadPlace(f"Lake {shown!r} is a folder, which takes no settings of a store; is s3:// missing?")
            path = Path(shown if scheme is None else unquote(urlsplit(shown).path))
            return cls(str(path.absolute()))  # Tasks write into it, and may have another working directory.
        bucket = re.match(r"(s3a?)://([^/]+)(/.*)?$", shown)
        if bucket is None:
            raise BadPlace(
                f"Lake {shown!r} is neither a folder nor s3://bucket/path, the only object stores there are here; a"
                f" folder of that name is ./{shown}."
            )
        return cls(shown.rstrip("/"), _reached(dict(storage or {})))

    @property
    def folder(self) -> Path | None:
        return Path(self.uri) if not self.uri.startswith(tuple(f"{scheme}://" for scheme in STORE_SCHEMES)) else None

    def patient(self, patience_ms: int) -> Place:
        """Returns the place with a store that may be away for so long, unless it was said how often to try."""
        given = {name.lower() for name in self.storage}
        if self.folder is not None or given & set(RETRIES):
            return self
        return replace(
            self, storage={**self.storage, "max_retries": "1000", "retry_timeout": f"{max(1, patience_ms // 1000)}s"}
        )

    def store(self) -> Store:
        folder = self.folder
        return Bucket(self) if folder is None else Folder(folder)

    def below(self, name: str) -> Place:
        return Place(f"{self.uri}/{name}", self.storage)

    def asked(self, question: Callable[[], T]) -> T:
        """Returns the answer.  A store may take minutes for it, in which delta-rs hears no signal: this does."""
        if self.folder is not None:
            return question()
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=ask, daemon=True).start()  # Whoever is interrupted does not wait for it.
        return answer.result()

    def sync_log(self, first: int, last: int) -> None:
        """Waits until these versions of Delta's log, which others may have written, are on disk, and their names."""
        if self.folder is None:
            return
        log = self.folder / LOG
        for version in range(first, last + 1):
            for name in (f"{version:020d}.json", f"{version:020d}.checkpoint.parquet"):
                sync(log / name)
        sync(log / "_last_checkpoint")
        sync(log)

    def sync_files(self, uris: Iterable[str]) -> None:
        """Waits until data files that another than this package wrote are on disk."""
        if self.folder is not None:
            for uri in uris:
                sync(Path(unquote(uri.removeprefix("file://"))))

    def sync_names(self) -> None:
        """Waits until the names of the data files are on disk."""
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
            file.close()  # Writes what it has buffered, and a full disk refuses that again.
        self.remove([name])

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                (self._path / name).unlink()

    def names(self) -> list[str]:
        return [entry.name for entry in self._path.iterdir()] if self._path.is_dir() else []


class Bucket:
    """Files below a prefix, written through delta-rs: it and the table are then reached by the same settings."""

    def __init__(self, place: Place) -> None:
        from deltalake.fs import DeltaStorageHandler

        self._files = DeltaStorageHandler(place.uri, dict(place.storage))

    def create(self, name: str) -> IO[bytes]:
        file: IO[bytes] = self._files.open_output_stream(name)
        return file

    def finish(self, file: IO[bytes]) -> None:
        file.close()

    def discard(self, name: str, file: IO[bytes]) -> None:
        """Does nothing: an upload that is never finished is no object.  To finish and remove it takes a store that
        answers, and that may be what is missing."""

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._files.delete_file(name)

    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        return [found.path for found in self._files.get_file_info_selector(FileSelector("", allow_not_found=True))]


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk; one that is not there needs nothing."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reached(storage: dict[str, str]) -> dict[str, str]:
    """Returns how the store is reached, from any machine that has no such variables of its own."""
    given = {name.lower() for name in storage}
    found = {name: value for name, value in os.environ.items() if name.startswith("AWS_") and name.lower() not in given}
    options = found | storage
    os.environ.setdefault("RUST_LOG", "off")  # delta-rs would tell on standard error of each place without credentials.
    known = {name.lower(): value for name, value in options.items()}
    for name, value in options.items():  # delta-rs panics at these, which is no error that can be told.
        if not (value.isascii() and value.isprintable()):
            raise BadPlace(
                f"The store's setting {name} holds a character that is not allowed there, such as a line end."
            )
    for name in UNSAFE:
        if known.get(name, "false").lower() in ("true", "1", "yes", "on"):
            raise BadPlace(f"{name.upper()} would let two loaders overwrite each other's commits; unset it.")
    endpoint = next((known[name] for name in ENDPOINTS if name in known), "")
    if endpoint and not _is_address(endpoint):
        raise BadPlace(f"The store's endpoint {endpoint!r} is no address; write it as http://host:port.")
    if endpoint.startswith("http://") and not any(name in known for name in HTTP_ALLOWED):
        options["AWS_ALLOW_HTTP"] = "true"  # Who writes http:// has said so.
    if endpoint and not any(name in known for name in REGIONS):
        options["AWS_REGION"] = "us-east-1"  # Any will do for a store that is not AWS, but it would be asked for.
    return options


def _is_address(text: str) -> bool:
    try:
        return bool(ADDRESS.fullmatch(text)) and urlsplit(text).port != 0
    except ValueError:  # A port that is too large.
        return False
