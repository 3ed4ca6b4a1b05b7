"""Recorded access-control responses compared with a real Apache Kafka 4.4.0 and its StandardAuthorizer.

ODRADEK_RECORD=1 in the environment writes a new recording. unit/api/test_access.py compares Odradek with it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from differential import recording
from differential.access import RECORDED, USERS, scenario
from differential.known import differences
from differential.player import Player
from differential.settings import SETTINGS
from kafka_access import AccessKafka
from kafka_peer import REAL_KAFKA

pytestmark = [
    *REAL_KAFKA,
    pytest.mark.own_peer("compares a recording with a running Apache Kafka"),
]


def test_kafka_answers_as_recorded(tmp_path: Path) -> None:
    with AccessKafka(tmp_path / "kafka", USERS, SETTINGS) as kafka:
        kafka.grant(USERS)
        player = Player(kafka.port, kafka.connected)
        player.names.port = kafka.users_port  # Users are told of the listener that they use.
        player.play_all([scenario()])
        player.close()
    assert not player.overdue
    if os.environ.get("ODRADEK_RECORD"):
        recording.write([scenario()], player.outcomes, RECORDED)
    recorded = recording.read(RECORDED)[scenario().name]
    outcomes = player.outcomes[scenario().name]
    found = [one for name, known in recorded.items() for one in differences(name, known.answer, outcomes[name])]
    assert not found, "\n".join(f"{one.step}: {one.path}: recorded {one.kafka!r}, now {one.ours!r}" for one in found)
