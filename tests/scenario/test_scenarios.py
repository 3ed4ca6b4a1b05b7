"""Every story in this folder goes as it is written."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from scenario.interpreter import VERBS, parse, play, shown

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, tmp_path: Path) -> None:
    lines = parse(path.read_text())
    played = play(lines, tmp_path)
    for line, happened in zip(lines, played, strict=True):
        assert happened.expected == line.expected, f"{line.text}: it went like this\n\n{shown(played)}"


def test_a_story_is_shown_as_it_is_written() -> None:
    for path in STORIES:
        assert shown(parse(path.read_text())) == path.read_text(), f"{path.name} is not in the form of interpreter.py"


def test_every_verb_means_one_thing() -> None:
    modules = [import_module(f"scenario.{path.stem}") for path in Path(__file__).parent.glob("*_verbs.py")]
    assert sorted(verb for module in modules for verb in module.VERBS) == sorted(VERBS)


def test_a_story_that_goes_another_way_is_noticed(tmp_path: Path) -> None:
    lines = parse("knock g a -> a: waits\n# nothing\nheartbeat g a\n")
    (first, comment, second) = play(lines, tmp_path)
    assert first.expected == ["a: member id required"] != lines[0].expected
    assert comment.expected == [] and second.expected == ["a: unknown member id"]
