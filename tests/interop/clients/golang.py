"""The clients in Go: franz-go and sarama, and kafka-go of segmentio (../go, one program for the three)."""

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
        """sarama believes the broker to be of that version; the others find out what it speaks."""
        super().__init__([str(CACHE / "go" / "clients"), self.name, address, broker_version])


class FranzGo(GoClient, Transacting):
    name = "franz-go"
    answers: frozenset[Question] = frozenset(("earliest", "latest", "max timestamp"))


class Sarama(GoClient, Transacting):
    name = "sarama"


class KafkaGo(GoClient):
    """It does not tell what is empty from what is null when it reads."""

    name = "kafka-go"

    def shows(self, record: Record) -> Record:
        headers = tuple((name, value or None) for name, value in record.headers)
        return record._replace(key=record.key or None, value=record.value or None, headers=headers)
