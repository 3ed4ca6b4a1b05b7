"""Clients in Go: franz-go, sarama, and segmentio's kafka-go (../go, one program for all three)."""

from __future__ import annotations

from clients.client import Question
from clients.dialogue import CACHE, INTEROP, DialogueClient, lacks
from clients.dialogue_groups import Transacting
from clients.records import Record

FOLDER = INTEROP / "go"
SOURCES = [*sorted(FOLDER.glob("*.go")), FOLDER / "go.mod", FOLDER / "go.sum"]
missing = lacks("go", SOURCES)


class GoClient(DialogueClient):
    def __init__(self, address: str, broker_version: str = "") -> None:
        """Start the client. sarama is configured with this broker version; the others detect it."""
        super().__init__([str(CACHE / "go" / "clients"), self.name, address, broker_version])


class FranzGo(GoClient, Transacting):
    name = "franz-go"
    answers: frozenset[Question] = frozenset(("earliest", "latest", "max timestamp"))


class Sarama(GoClient, Transacting):
    name = "sarama"


class KafkaGo(GoClient):
    """A client that does not distinguish empty and null when it reads."""

    name = "kafka-go"

    def shows(self, record: Record) -> Record:
        headers = tuple((name, value or None) for name, value in record.headers)
        return record._replace(key=record.key or None, value=record.value or None, headers=headers)
