"""Recorded responses of Apache Kafka 4.4.0: tests/golden/kafka-4.4.0/differential.jsonl.

One JSON value on each line: first every distinct response with its digest, then every scenario, whose steps contain the
digests of their request and response.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from differential.masks import Tree
from differential.steps import Scenario

PATH = Path(__file__).parents[2] / "golden" / "kafka-4.4.0" / "differential.jsonl"
HOW = "ODRADEK_RECORD=1 pytest --soak tests/interop/test_broker_differential_kafka.py"
DIGEST_CHARACTERS = 8

Outcomes = dict[str, dict[str, Tree]]


class Recorded(NamedTuple):
    request: str
    answer: Tree


Recordings = dict[str, dict[str, Recorded]]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]


def write(scenarios: Sequence[Scenario], outcomes: Outcomes, path: Path = PATH) -> None:
    answers: dict[str, str] = {}
    lines = []
    for scenario in scenarios:
        steps = {}
        for step in scenario.requests:
            text = _text(outcomes[scenario.name][step.name])
            answers[digest(text.encode())] = text
            steps[step.name] = f"{digest(step.frame)} {digest(text.encode())}"
        lines.append(_text({"scenario": scenario.name, "steps": steps}))
    distinct = [f'{{"answer":"{key}","is":{text}}}' for key, text in sorted(answers.items())]
    path.write_text("\n".join(distinct + lines) + "\n")


def read(path: Path = PATH) -> Recordings:
    """Return the recording, by scenario and step."""
    answers: dict[str, Tree] = {}
    scenarios: Recordings = {}
    for line in path.read_text().splitlines():
        value = json.loads(line)
        if "answer" in value:
            answers[value["answer"]] = value["is"]
            continue
        pairs = {name: pair.split() for name, pair in value["steps"].items()}
        scenarios[value["scenario"]] = {
            name: Recorded(request, answers[response]) for name, (request, response) in pairs.items()
        }
    return scenarios


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
