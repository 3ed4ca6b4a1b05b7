"""Produce with odradek.record.validation=records, which reads records as Kafka does, compared with Kafka's responses.

The recording is that of test_broker_differential.py; fewer differences of docs/DIFFERENCES.md remain.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from differential import recording
from differential.known import KNOWN, PRODUCED, STUMBLES, Difference, Known, differences
from differential.player import Player
from differential.scenarios import idempotence, produce
from differential.settings import SETTINGS
from differential.steps import Scenario

from support.serving import Serving

# Without the differences of unread records, and with those seen instead.
CODE = f"{PRODUCED}.error_code"
LEFT_HERE = [
    Known("stumbles", "Produce * records / * rubbish", CODE, STUMBLES, "INVALID_RECORD"),
    Known("stumbles", "Produce * records / gzip cut short", CODE, STUMBLES, "INVALID_RECORD"),
    Known("inner-offsets", "Produce * records / inner offsets wrong", CODE, "NONE", "INVALID_RECORD"),
    Known("inner-offsets", "Produce * records / what is stored", "responses[*].partitions[13].*"),
    Known("record-errors", "Produce *", f"{PRODUCED}.log_start_offset", ours="absent"),
]
LEFT = [*(known for known in KNOWN if known.id not in {"records-unread", "record-errors"}), *LEFT_HERE]


def scenarios() -> list[Scenario]:
    return [*produce.scenarios(), *idempotence.scenarios()]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Difference]]]:
    recorded = recording.read()
    options = {"odradek.record.validation": "records"}
    with Serving(tmp_path_factory.mktemp("validated"), **SETTINGS, **options) as broker:
        player = Player(broker.port)
        player.play_all(scenarios())
        player.close()
    yield {
        scenario.name: [
            difference
            for step in scenario.requests
            for difference in differences(
                f"{scenario.name} / {step.name}",
                recorded[scenario.name][step.name].answer,
                player.outcomes[scenario.name][step.name],
            )
        ]
        for scenario in scenarios()
    }


@pytest.mark.parametrize("scenario", [scenario.name for scenario in scenarios()])
def test_responses_equal_kafkas(found: dict[str, list[Difference]], scenario: str) -> None:
    new = [one for one in found[scenario] if not any(known.covers(one) for known in LEFT)]
    assert not new, "\n" + "\n".join(map(str, new[:20]))


def test_every_remaining_difference_still_occurs(found: dict[str, list[Difference]]) -> None:
    everywhere = [difference for each in found.values() for difference in each]
    assert [known for known in LEFT_HERE if not any(map(known.covers, everywhere))] == []
