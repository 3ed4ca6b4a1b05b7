"""Stories about a broker as text files: an action a line, with everything that it leads to behind the arrow.

    # What it is about.                       a comment
    broker group.max.size=2                   settings, before anything else
    join g a            -> a: waits           who: what the broker answered, or that it has not
    join g b            -> b: waits
    after 3s            -> a: generation 1, leads a b
                        -> b: generation 1       answers come in this order

An action without an arrow leads to no answer.  The same answer to many in a row is one: m1..m100: generation 1.  A line
is  verb argument ... name=value ...;  verbs are functions in modules of their own (VERBS, below).  A story that went
another way is shown as it went:  PYTHONPATH=tests python -m scenario.interpreter FILE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from scenario import broker_verbs, commit_verbs, consumer_verbs, group_verbs, offset_verbs, txn_verbs
from scenario.world import World, names

Verb = Callable[[World, "list[str]"], None]

VERBS: dict[str, Verb] = {
    **broker_verbs.VERBS,
    **commit_verbs.VERBS,
    **group_verbs.VERBS,
    **consumer_verbs.VERBS,
    **offset_verbs.VERBS,
    **txn_verbs.VERBS,
}

ARROW = "->"
WIDTH = 36


class Line(NamedTuple):
    """One action; a comment has only a text."""

    text: str
    expected: list[str]

    @property
    def is_action(self) -> bool:
        return bool(self.text) and not self.text.startswith("#")


def parse(story: str) -> list[Line]:
    lines: list[Line] = []
    for number, raw in enumerate(story.splitlines(), 1):
        if raw.startswith("#"):
            lines.append(Line(raw, []))
            continue
        text, arrow, outcome = (part.strip() for part in raw.partition(ARROW))
        if text or not arrow:
            lines.append(Line(text, []))
        elif not lines or not lines[-1].is_action:
            raise ValueError(f"line {number}: an outcome of nothing")
        if arrow:
            lines[-1].expected.append(outcome)
    return lines


def play(lines: Iterable[Line], world: World) -> list[Line]:
    """Return the story as it is played here."""
    return [Line(line.text, outcomes(world, line.text) if line.is_action else []) for line in lines]


def outcomes(world: World, action: str) -> list[str]:
    verb, *arguments = action.split()
    VERBS[verb](world, arguments)
    world.settle()
    return merged(world.take_outcomes())


def merged(reported: Iterable[tuple[str, str]]) -> list[str]:
    """Merge the outcomes of clients that had the same one in a row."""
    return [
        f"{names([client for client, _ in same])}: {what}" for what, same in groupby(reported, key=lambda one: one[1])
    ]


def shown(lines: Iterable[Line]) -> str:
    written: list[str] = []
    for line in lines:
        first, *more = line.expected or [""]
        written.append(f"{line.text:{WIDTH}} {ARROW} {first}" if first else line.text)
        written.extend(f"{'':{WIDTH}} {ARROW} {outcome}" for outcome in more)
    return "\n".join(written) + "\n"


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with TemporaryDirectory() as place:
            sys.stdout.write(shown(play(parse(Path(path).read_text()), World(Path(place)))))
