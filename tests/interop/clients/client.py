"""The interface of a client under test, independent of its implementation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from clients.members import Committed, Joining, Member
from clients.records import Read, Record
from clients.transactors import Transactor

SECONDS_MAX = 150
RECORD_BYTES_MAX = 1 << 20

Question = Literal["earliest", "latest", "max timestamp"]


class ClientError(Exception):
    """An error as seen by the user of a client. `code` is Kafka's error code, if the client reports it."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


@contextmanager
def raises_client_error(kind: type[Exception]) -> Iterator[None]:
    """Convert errors of a client that have Kafka's error code as `errno`."""
    try:
        yield
    except kind as error:
        raise ClientError(getattr(error, "errno", None), repr(error)) from error


@dataclass(frozen=True)
class Start:
    """A start position; `at` is an offset or a time in ms, and `reset` is auto.offset.reset."""

    where: Literal["beginning", "end", "offset", "time"]
    at: int = 0
    reset: Literal["earliest", "latest", "none"] = "none"


BEGINNING, END = Start("beginning"), Start("end")


@dataclass(frozen=True)
class Topic:
    """A topic as described by the client: the leader of each partition, by index."""

    leaders: Mapping[int, int]


@dataclass(frozen=True)
class Cluster:
    """A cluster as described by the client. `brokers` are host:port by id; unreported values are None."""

    id: str | None
    controller: int | None
    brokers: Mapping[int, str]


class Client(Protocol):
    """One client of one broker. Each call may raise ClientError."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def codecs(self) -> Sequence[str]: ...

    @property
    def sets_time(self) -> bool:
        """Return whether users can set the timestamp of a record."""

    def writes(self, record: Record) -> bool:
        """Return whether the client can write such a record, regardless of its timestamp."""

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        """Write the records to partition 0 in order, with acks=all.

        The size limit is the client's own; None uses the client's default.
        """

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        """Read this number of records of partition 0 with manual assignment; on request only committed ones."""

    def join(self, joining: Joining) -> Member: ...

    def close(self) -> None: ...


class Particular(Client, Protocol):
    """A client that does not return every record as it was written."""

    def shows(self, record: Record) -> Record:
        """Return the record as this client returns it."""


def as_shown(client: Client, record: Record) -> Record:
    """Return the record as this client returns it, which is unchanged for most clients."""
    return cast("Particular", client).shows(record) if hasattr(client, "shows") else record


class Administrator(Client, Protocol):
    """A client with administrative operations."""

    @property
    def answers(self) -> frozenset[Question]:
        """Return the queries of list_offsets that it supports, besides a timestamp."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def describe_topic(self, topic: str) -> Topic: ...

    def describe_configs(self, topic: str) -> dict[str, str | None]: ...

    def describe_cluster(self) -> Cluster: ...

    def list_offsets(self, topic: str, question: Question | int) -> int:
        """Return an offset of partition 0, or -1 if there is none."""

    def delete_topic(self, topic: str) -> None: ...

    def committed(self, group: str, topic: str) -> Mapping[int, Committed]:
        """Return the group's committed offsets, by partition."""


class Transactional(Client, Protocol):
    """A client with transactions."""

    def transactor(self, transactional_id: str, *, group: str = "", source: str = "") -> Transactor:
        """Return a producer that fences earlier ones with this id. Group and source are for `send_offset`."""
