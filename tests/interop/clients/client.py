"""What the tests ask of a client, whoever wrote it."""

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
    """What the user of a client saw.  `code` is Kafka's number of it where the client tells one."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


@contextmanager
def told_as_client_error(kind: type[Exception]) -> Iterator[None]:
    """Of a client whose errors carry Kafka's number as `errno`."""
    try:
        yield
    except kind as error:
        raise ClientError(getattr(error, "errno", None), repr(error)) from error


@dataclass(frozen=True)
class Start:
    """Where reading begins; `at` is an offset or a time in ms.  `reset` is auto.offset.reset."""

    where: Literal["beginning", "end", "offset", "time"]
    at: int = 0
    reset: Literal["earliest", "latest", "none"] = "none"


BEGINNING, END = Start("beginning"), Start("end")


@dataclass(frozen=True)
class Topic:
    """A topic as its description tells it: for each partition its leader, by index."""

    leaders: Mapping[int, int]


@dataclass(frozen=True)
class Cluster:
    """`brokers` are host:port by id.  What a client does not tell is None."""

    id: str | None
    controller: int | None
    brokers: Mapping[int, str]


class Client(Protocol):
    """One client on one broker.  Each call may raise ClientError."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def codecs(self) -> Sequence[str]: ...

    @property
    def sets_time(self) -> bool:
        """Whether its user may give a record its timestamp."""

    def writes(self, record: Record) -> bool:
        """Whether it can write such a record, whatever its timestamp."""

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        """Write them to partition 0 in order, and wait for acks=all.

        The bound is the client's own.  None is what the client does unless it is told.
        """

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        """Read so many records of partition 0, assigned and not subscribed; only what is committed, if so wanted."""

    def join(self, joining: Joining) -> Member: ...

    def close(self) -> None: ...


class Particular(Client, Protocol):
    """A client that does not hand out every record as it was written."""

    def shows(self, record: Record) -> Record:
        """How it hands out the record."""


def as_shown(client: Client, record: Record) -> Record:
    """How this client hands out the record; most do as it was written."""
    return cast("Particular", client).shows(record) if hasattr(client, "shows") else record


class Administrator(Client, Protocol):
    """A client that administers too."""

    @property
    def answers(self) -> frozenset[Question]:
        """Which questions its list_offsets can ask, besides a time."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def describe_topic(self, topic: str) -> Topic: ...

    def describe_configs(self, topic: str) -> dict[str, str | None]: ...

    def describe_cluster(self) -> Cluster: ...

    def list_offsets(self, topic: str, question: Question | int) -> int:
        """Of partition 0; -1 where there is none."""

    def delete_topic(self, topic: str) -> None: ...

    def committed(self, group: str, topic: str) -> Mapping[int, Committed]:
        """By partition, of those for which the group has committed something."""


class Transactional(Client, Protocol):
    """A client with transactions."""

    def transactor(self, transactional_id: str, *, group: str = "", source: str = "") -> Transactor:
        """What came before with the same id is fenced.  Group and source are for `send_offset`."""
