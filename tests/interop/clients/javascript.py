"""The JavaScript client kafkajs (../node)."""

from __future__ import annotations

import shutil

from clients.dialogue import CACHE, INTEROP, DialogueClient, lacks
from clients.dialogue_groups import Transacting
from clients.records import Headers, Record

FOLDER = INTEROP / "node"
SOURCES = [FOLDER / "package-lock.json", FOLDER / "package.json"]
missing = "needs node" if shutil.which("node") is None else lacks("node", SOURCES)


class KafkaJs(DialogueClient, Transacting):
    """A client without a consumer outside groups: `consume` reads as the only member of a new group."""

    name = "kafkajs"

    def __init__(self, address: str) -> None:
        super().__init__(["node", str(FOLDER / "client.mjs"), str(CACHE / "node"), address])

    def writes(self, record: Record) -> bool:
        """Return whether all headers have values: they are an object with one or more non-null values for each name."""
        if any(value is None for _, value in record.headers):
            return False
        return record.headers == _grouped(record.headers)

    def shows(self, record: Record) -> Record:
        return record._replace(headers=_grouped(record.headers))


def _grouped(headers: Headers) -> Headers:
    first = {name: place for place, (name, _) in reversed(list(enumerate(headers)))}
    return tuple(sorted(headers, key=lambda header: first[header[0]]))
