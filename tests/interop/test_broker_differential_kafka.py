"""Recorded responses compared with those of a real Apache Kafka 4.4.0.

Only different requests could change them, and test_broker_differential.py notices those: so this is one of the long
tests. ODRADEK_RECORD=1 in the environment writes a new recording.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from differential import recording
from differential.known import differences
from differential.player import Player
from differential.scenarios.everything import everything
from differential.settings import SETTINGS
from kafka_peer import REAL_KAFKA, KafkaBroker

pytestmark = [
    *REAL_KAFKA,
    pytest.mark.soak,
    pytest.mark.own_peer("compares a recording with a running Apache Kafka"),
]

# Some requests are too odd for Kafka's controller, which resigns over them: another election takes seconds by default.
# The recording is made without it, and so contains the defaults.
ELECTED_SOON = {"controller.quorum.election.timeout.ms": "100", "controller.quorum.election.backoff.max.ms": "50"}


def test_kafka_answers_as_recorded(tmp_path: Path) -> None:
    is_recording = bool(os.environ.get("ODRADEK_RECORD"))
    with KafkaBroker(tmp_path / "kafka", settings=SETTINGS | ({} if is_recording else ELECTED_SOON)) as kafka:
        player = Player(kafka.port)
        player.play_all(everything())
        player.close()
    assert not player.overdue
    if is_recording:
        recording.write(everything(), player.outcomes)
    recorded = recording.read()
    found = []
    for scenario in everything():
        for step in scenario.requests:
            known = recorded[scenario.name][step.name].answer
            name = f"{scenario.name} / {step.name}"
            # The recording takes Kafka's place here, and Kafka takes ours.
            found += differences(name, known, player.outcomes[scenario.name][step.name])
    found = [one for one in found if not any(f"[{key}]" in one.path for key in ELECTED_SOON)]
    assert not found, "\n" + "\n".join(
        f"{one.step}: {one.path}: recorded {one.kafka!r}, now {one.ours!r}" for one in found[:20]
    )
