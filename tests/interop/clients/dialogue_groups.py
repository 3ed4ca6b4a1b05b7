"""A member and a transactional producer in the process of a client in another language."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol

from clients.members import FETCH_WAIT_MS, HEARTBEAT_MS, SESSION_TIMEOUT_MS, Joining, Place
from clients.transactors import TIMEOUT_MS


class Dialogue(Protocol):
    def call(self, order: str, **details: object) -> Any: ...


class DialogueMember:
    def __init__(self, dialogue: Dialogue, joining: Joining) -> None:
        self._dialogue = dialogue
        self._name = joining.name
        self._places: list[Place] = []
        self._has_left = False
        timing = {"heartbeat_ms": HEARTBEAT_MS, "session_ms": SESSION_TIMEOUT_MS, "fetch_wait_ms": FETCH_WAIT_MS}
        dialogue.call("join", metadata=joining.metadata, **joining._asdict(), **timing)

    def places(self) -> Sequence[Place]:
        if not self._has_left:
            self._add("places")
        return self._places

    def leave(self) -> None:
        self._has_left = True
        self._add("leave")

    def _add(self, order: str) -> None:
        for one in self._dialogue.call(order, name=self._name, count=len(self._places)):
            self._places.append(Place(one["partition"], one["offset"], b64decode(one["value"])))


class DialogueTransactor:
    def __init__(self, dialogue: Dialogue, name: str, transactional_id: str, group: str, source: str) -> None:
        self._dialogue = dialogue
        self._name = name
        about = {"transactional_id": transactional_id, "timeout_ms": TIMEOUT_MS, "group": group, "topic": source}
        dialogue.call("transactor", name=name, **about)

    def begin(self) -> None:
        self._dialogue.call("begin", name=self._name)

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        self._dialogue.call("send", name=self._name, topic=topic, values=[b64encode(one).decode() for one in values])

    def send_offset(self, offset: int) -> None:
        self._dialogue.call("send_offset", name=self._name, at=offset)

    def commit(self) -> None:
        self._dialogue.call("commit", name=self._name)

    def abort(self) -> None:
        self._dialogue.call("abort", name=self._name)

    def close(self) -> None:
        self._dialogue.call("close", name=self._name)


class Transacting:
    """A mixin that adds transactions to a dialogue client."""

    _numbers = count()

    def transactor(self: Dialogue, transactional_id: str, *, group: str = "", source: str = "") -> DialogueTransactor:
        name = f"transactor-{next(Transacting._numbers)}"
        return DialogueTransactor(self, name, transactional_id, group, source)
