"""Scenarios as data: what is sent, in which order, and which topics must be there before.

What only a running broker can tell stands in a request as a placeholder of the same size: the id of a topic (`id_of`),
a fetch session (`SESSION`), the cluster's id (`CLUSTER`), the id that a member (`member`, `short_member`) or a producer
(`producer`) was given in the answer to a step that `learns` it.  The player puts the real ones in, and takes them out
of the answers again.
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
    """Stands for the id that the topic has on whichever broker is asked."""
    return Uuid(hashlib.md5(b"id of " + topic.encode()).digest())


NO_SUCH_ID = Uuid(b"\5" * 16)
NO_SUCH_PRODUCER = 1_000_001  # More than a broker gives out in a test.


def member(name: str, prefix: str = CLIENT_ID) -> str:
    """Stands for the id of a member: a prefix, which is the client id or that of a static member, and a UUID."""
    return f"{prefix}-{member_uuid(name)}"


def member_uuid(name: str) -> str:
    return str(UUID(bytes=hashlib.md5(b"member " + name.encode()).digest()))


def short_member(name: str) -> str:
    """Stands for an id that is as long as those which the consumer protocol makes."""
    return hashlib.md5(b"member " + name.encode()).hexdigest()[:22]


def producer(name: str) -> int:
    """Stands for the id of a producer."""
    return int.from_bytes(b"\7" + hashlib.md5(b"producer " + name.encode()).digest()[:7])


class Step(NamedTuple):
    """One request.  `answer` is what its answer is decoded as; None where only a closed connection is expected.

    With `is_silent` no answer is expected, and the player asks something else behind it to be sure.  The answer to a
    step that `waits` is taken later, by `Taken`.  `learns` names the member or producer that it tells the id of.
    With `is_patient` it is asked again while a transaction is about to end, as clients do.
    """

    name: str
    form: str
    api_key: int
    version: int
    frame: bytes
    answer: tuple[type, int] | None
    is_silent: bool = False
    seconds_max: int = 60  # After which there is no answer.
    connection: str = ""
    waits: bool = False
    learns: str = ""
    is_patient: bool = False


class Taken(NamedTuple):
    """The answer to a step that waits for others."""

    step: str


class Ready(NamedTuple):
    """Waits until the broker has the topic with so many partitions; 0: until it has forgotten it."""

    topic: str
    partitions: int


class Scenario(NamedTuple):
    """Steps on one connection, or on several that have names; a closed one is reopened.

    `topics` and what `records` puts into them come first.
    """

    name: str
    steps: Sequence[Step | Ready | Taken | Wait]
    topics: Sequence[CreatableTopic] = ()
    records: Sequence[tuple[str, int, bytes]] = ()  # Topic, partition, one batch.

    @property
    def requests(self) -> list[Step]:
        return [step for step in self.steps if isinstance(step, Step)]


def ask(
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
    """A step that sends a message of the wire layer, `on` a connection."""
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
