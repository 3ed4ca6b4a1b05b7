"""Odradek's responses compared, field by field, with recorded ones of Apache Kafka 4.4.0 to the same requests.

The recording (differential/recording.py) makes java unnecessary; test_broker_differential_kafka.py checks it against a
real Kafka, and writes it. docs/DIFFERENCES.md explains known differences, and differential/known.py says where they
occur.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from differential import recording
from differential.known import KNOWN, Difference, differences, unknown
from differential.player import Player
from differential.scenarios.everything import everything
from differential.settings import SETTINGS
from differential.steps import FORMS, KAFKAS, Scenario

from odradek.wire.schema.api_keys import ApiKey
from support.serving import Serving

PAGE = Path(__file__).parents[2] / "docs" / "DIFFERENCES.md"
SHOWN_MAX = 20

Found = dict[str, list[Difference]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    with Serving(tmp_path_factory.mktemp("ours"), **SETTINGS) as broker:
        player = Player(broker.port)
        player.play_all(everything())
        yield player
        player.close()


@pytest.fixture(scope="module")
def ours(played: Player) -> recording.Outcomes:
    return played.outcomes


@pytest.fixture(scope="module")
def found(ours: recording.Outcomes) -> Found:
    """Return every difference by scenario; an unrecorded request has none (another test finds it)."""
    recorded = recording.read()
    return {scenario.name: list(_differences(scenario, recorded, ours)) for scenario in everything()}


def _differences(scenario: Scenario, recorded: recording.Recordings, ours: recording.Outcomes) -> Iterator[Difference]:
    known = recorded.get(scenario.name, {})
    for step in scenario.requests:
        if step.name in known:
            name = f"{scenario.name} / {step.name}"
            yield from differences(name, known[step.name].answer, ours[scenario.name][step.name])


@pytest.mark.parametrize("scenario", [scenario.name for scenario in everything() if scenario.requests])
def test_responses_equal_kafkas(found: Found, scenario: str) -> None:
    new = unknown(found[scenario])
    assert not new, "\n" + "\n".join(map(str, new[:SHOWN_MAX]))


def test_every_known_difference_still_occurs(found: Found) -> None:
    everywhere = [difference for each in found.values() for difference in each]
    unseen = [known for known in KNOWN if not any(map(known.covers, everywhere))]
    assert not unseen, "no longer seen: mend differential/known.py and docs/DIFFERENCES.md\n" + "\n".join(
        map(str, unseen)
    )


def test_the_page_lists_every_known_difference_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == {known.id for known in KNOWN}


def test_no_expected_response_is_overdue(played: Player) -> None:
    assert not played.overdue


def test_the_recording_contains_these_requests() -> None:
    recorded = {
        (scenario, step): one.request for scenario, steps in recording.read().items() for step, one in steps.items()
    }
    requested = {
        (scenario.name, step.name): recording.digest(step.frame)
        for scenario in everything()
        for step in scenario.requests
    }
    assert recorded == requested, f"record again: {recording.HOW}"


def test_step_names_are_unique() -> None:
    names = [(scenario.name, step.name) for scenario in everything() for step in scenario.requests]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", sorted(KAFKAS))
def test_scenarios_request_every_version_in_every_form(key: int) -> None:
    requested = {
        (step.version, step.form) for scenario in everything() for step in scenario.requests if step.api_key == key
    }
    missing = [
        (version, form) for version in KAFKAS[key].versions for form in FORMS if (version, form) not in requested
    ]
    assert not missing, ApiKey(key).title


def test_the_recording_is_small() -> None:
    assert recording.PATH.stat().st_size < 2_500_000
