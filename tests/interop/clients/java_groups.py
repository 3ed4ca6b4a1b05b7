"""A member and a transactional producer in the process of a Java client (../java/Members.java, Transactors.java)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Protocol

from clients.members import FETCH_WAIT_MS, HEARTBEAT_MS, SESSION_TIMEOUT_MS, Joining, Place
from clients.transactors import TIMEOUT_MS


class Call(Protocol):
    def __call__(self, command: str, /, *fields: object) -> list[list[str]]: ...


class JavaMember:
    def __init__(self, call: Call, joining: Joining) -> None:
        self._call = call
        self._name = joining.name
        self._places: list[Place] = []
        self._has_left = False
        about = (joining.name, joining.group, joining.topic, joining.way, joining.instance, joining.metadata)
        call("join", *about, HEARTBEAT_MS, SESSION_TIMEOUT_MS, FETCH_WAIT_MS)

    def places(self) -> Sequence[Place]:
        if not self._has_left:
            self._add("places")
        return self._places

    def leave(self) -> None:
        self._has_left = True
        self._add("leave")

    def _add(self, command: str) -> None:
        for partition, offset, value in self._call(command, self._name, len(self._places)):
            self._places.append(Place(int(partition), int(offset), b64decode(value)))


class JavaTransactor:
    def __init__(self, call: Call, name: str, transactional_id: str, group: str, source: str) -> None:
        self._call = call
        self._name = name
        call("transactor", name, transactional_id, TIMEOUT_MS, group, source)

    def begin(self) -> None:
        self._call("begin", self._name)

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        self._call("send", self._name, topic, *(b64encode(one).decode() for one in values))

    def send_offset(self, offset: int) -> None:
        self._call("send-offset", self._name, offset)

    def commit(self) -> None:
        self._call("commit", self._name)

    def abort(self) -> None:
        self._call("abort", self._name)

    def close(self) -> None:
        self._call("close", self._name)
