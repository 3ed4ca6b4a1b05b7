"""Scenarios as data: what is sent, in which order, and which topics must be there before.

What only a running broker can tell stands in a request as a placeholder of the same size: the id of a topic (`id_of`),
a fetch session (`SESSION`), the cluster's id (`CLUSTER`).  The player puts the real ones in, and takes them out of the
answers again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.uuids import Uuid
from odradek.wire.catalog import APIS
from odradek.wire.client import encode_request
from odradek.wire.messages.create_topics import CreatableTopic
from odradek.wire.schema import schema_of

VALID, BORDERLINE, WRONG = "valid", "borderline", "wrong"
FORMS = (VALID, BORDERLINE, WRONG)
SESSION = 0x53455353
CLUSTER = "Placeholder-of-Cluster"
CLIENT_ID = "differential"
CORRELATION_ID = 7
ANSWERS: dict[type, type] = dict(APIS.values())


def id_of(topic: str) -> Uuid:
    """Stands for the id that the topic has on whichever broker is asked."""
    return Uuid(hashlib.md5(b"id of " + topic.encode()).digest())


NO_SUCH_ID = Uuid(b"\5" * 16)


class Step(NamedTuple):
    """One request.  `answer` is what its answer is decoded as; None where only a closed connection is expected.

    With `is_silent` no answer is expected, and the player asks something else behind it to be sure.
    """

    name: str
    form: str
    api_key: int
    version: int
    frame: bytes
    answer: tuple[type, int] | None
    is_silent: bool = False
    seconds_max: int = 60  # After which there is no answer.


class Ready(NamedTuple):
    """Waits until the broker has the topic with so many partitions; 0: until it has forgotten it."""

    topic: str
    partitions: int


class Scenario(NamedTuple):
    """Steps on one connection, reopened when it was closed.  `topics` and what `records` puts into them come first."""

    name: str
    steps: Sequence[Step | Ready]
    topics: Sequence[CreatableTopic] = ()
    records: Sequence[tuple[str, int, bytes]] = ()  # Topic, partition, one batch.

    @property
    def requests(self) -> list[Step]:
        return [step for step in self.steps if isinstance(step, Step)]


def ask(name: str, form: str, message: object, version: int, *, client_id: str | None = CLIENT_ID) -> Step:
    """A step that sends a message of the wire layer."""
    chunks = encode_request(message, version, CORRELATION_ID, client_id)
    frame = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))
    answer = (ANSWERS[type(message)], version)
    is_silent = getattr(message, "acks", None) == 0
    return Step(name, form, key_of(type(message)), version, frame, answer, is_silent)


def key_of(message: type) -> int:
    api_key = schema_of(message).api_key
    assert api_key is not None
    return api_key
