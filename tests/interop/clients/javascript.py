"""The client in JavaScript: kafkajs (../node)."""

from __future__ import annotations

import shutil

from clients.dialogue import CACHE, INTEROP, DialogueClient, lacks
from clients.records import Headers, Record

FOLDER = INTEROP / "node"
SOURCES = [FOLDER / "package-lock.json", FOLDER / "package.json"]
missing = "needs node" if shutil.which("node") is None else lacks("node", SOURCES)


class KafkaJs(DialogueClient):
    """It has no consumer without a group; `consume` goes below it, to the request with which that consumer reads."""

    name = "kafkajs"

    def __init__(self, address: str) -> None:
        super().__init__(["node", str(FOLDER / "client.mjs"), str(CACHE / "node"), address])

    def writes(self, record: Record) -> bool:
        """Headers are an object with a value, or a list of values, for each name; none of them null."""
        if any(value is None for _, value in record.headers):
            return False
        return record.headers == _grouped(record.headers)

    def shows(self, record: Record) -> Record:
        return record._replace(headers=_grouped(record.headers))

    def consume_as_member(self, topic: str) -> None:
        """With its own consumer, which is a member of a group."""
        self.ask("consume_as_member", topic=topic)


def _grouped(headers: Headers) -> Headers:
    first = {name: place for place, (name, _) in reversed(list(enumerate(headers)))}
    return tuple(sorted(headers, key=lambda header: first[header[0]]))
