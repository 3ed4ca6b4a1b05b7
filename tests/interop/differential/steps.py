"""Scenarios as data: requests, their order, and the required topics.

Values that only a running broker can know are placeholders of the same size in a request: a topic's id (`id_of`), a
fetch session (`SESSION`), the cluster's id (`CLUSTER`), and the id of a member (`member`, `short_member`) or a producer
(`producer`) in the response to a step that `learns` it. The player replaces them with the actual values, and back in
responses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from differential.waits import Wait
from odradek.api.table import BY_KEY
from odradek.base.uuids import Uuid
from odradek.wire.catalog import APIS
from odradek.wire.client_codec import encode_request
from odradek.wire.messages.create_topics import CreatableTopic
from odradek.wire.schema.schema import schema_of

VALID, BORDERLINE, WRONG = "valid", "borderline", "wrong"
FORMS = (VALID, BORDERLINE, WRONG)
SESSION = 0x53455353
CLUSTER = "Placeholder-of-Cluster"
CLIENT_ID = "differential"
CORRELATION_ID = 7
ANSWERS: dict[type, type] = dict(APIS.values())
KAFKAS = {key: api for key, api in BY_KEY.items() if not api.is_own}  # Both answer them.


def id_of(topic: str) -> Uuid:
    """Return a placeholder for the topic's id on the broker."""
    return Uuid(hashlib.md5(b"id of " + topic.encode()).digest())


NO_SUCH_ID = Uuid(b"\5" * 16)
NO_SUCH_PRODUCER = 1_000_001  # Above all ids that a broker assigns in a test.


def member(name: str, prefix: str = CLIENT_ID) -> str:
    """Return a placeholder for a member id: a prefix, which is the client id or that of a static member, and a UUID."""
    return f"{prefix}-{member_uuid(name)}"


def member_uuid(name: str) -> str:
    return str(UUID(bytes=hashlib.md5(b"member " + name.encode()).digest()))


def short_member(name: str) -> str:
    """Return a placeholder with the length of the consumer protocol's ids."""
    return hashlib.md5(b"member " + name.encode()).hexdigest()[:22]


def producer(name: str) -> int:
    """Return a placeholder for a producer id."""
    return int.from_bytes(b"\7" + hashlib.md5(b"producer " + name.encode()).digest()[:7])


class Step(NamedTuple):
    """One request. `answer` is the type of its response; None if only a closed connection is expected.

    With `is_silent` no response is expected, which the player verifies with another request. `Taken` receives the
    response to a step that `waits`. `learns` is the name of the member or producer whose id the response contains.
    With `is_patient` it is retried while a transaction is ending, as by clients.
    """

    name: str
    form: str
    api_key: int
    version: int
    frame: bytes
    answer: tuple[type, int] | None
    is_silent: bool = False
    seconds_max: int = 60  # After this there is no response.
    connection: str = ""
    waits: bool = False
    learns: str = ""
    is_patient: bool = False


class Taken(NamedTuple):
    """The reception of the response to a step that waits for others."""

    step: str


class Ready(NamedTuple):
    """A wait until the topic has this number of partitions on the broker; 0 means until it is deleted."""

    topic: str
    partitions: int


class Scenario(NamedTuple):
    """Steps on one connection, or on several named ones; a closed one is reopened.

    The `topics` and their `records` are created first.
    """

    name: str
    steps: Sequence[Step | Ready | Taken | Wait]
    topics: Sequence[CreatableTopic] = ()
    records: Sequence[tuple[str, int, bytes]] = ()  # Topic, partition, one batch.

    @property
    def requests(self) -> list[Step]:
        return [step for step in self.steps if isinstance(step, Step)]


def request_step(
    name: str,
    form: str,
    message: object,
    version: int,
    *,
    client_id: str | None = CLIENT_ID,
    on: str = "",
    waits: bool = False,
    learns: str = "",
) -> Step:
    """Return a step that sends a message of the wire layer, `on` a connection."""
    chunks = encode_request(message, version, CORRELATION_ID, client_id)
    frame = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))
    answer = (ANSWERS[type(message)], version)
    is_silent = getattr(message, "acks", None) == 0
    key = key_of(type(message))
    return Step(name, form, key, version, frame, answer, is_silent, connection=on, waits=waits, learns=learns)


def key_of(message: type) -> int:
    api_key = schema_of(message).api_key
    assert api_key is not None
    return api_key
