"""Stories in this folder: each is played as written."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from scenario.interpreter import VERBS, outcomes, parse, play, shown
from scenario.world import World
from support.loop_time import hold_ms_max

NS_PER_MS = 1_000_000
TRIES = 3  # A slow action is slow each time; loading of code and garbage of other tests are not.
STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_others() -> Iterator[None]:
    """Exclude other objects of this process from the broker's garbage collections."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_is_played_as_written(path: Path, tmp_path: Path) -> None:
    lines = parse(path.read_text())
    world = World(tmp_path)
    played = play(lines, world)
    for line, happened in zip(lines, played, strict=True):
        assert happened.expected == line.expected, f"{line.text}: it went like this\n\n{shown(played)}"
    longest = [world.harness.longest_ns]
    while len(longest) < TRIES and min(longest) > hold_ms_max() * NS_PER_MS:
        world = World(tmp_path / str(len(longest)))
        play(lines, world)
        longest.append(world.harness.longest_ns)
    assert min(longest) < hold_ms_max() * NS_PER_MS, "nobody is held up"


@pytest.mark.slow
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_with_compaction_after_each_action(path: Path, tmp_path: Path) -> None:
    """The story stays the same, even if the broker is stopped and loads its state again."""
    world = World(tmp_path)
    for line in parse(path.read_text()):
        assert play([line], world)[0].expected == line.expected, line.text
        if line.is_action and not line.text.startswith("broker ") and not world.is_stalled:
            assert outcomes(world, "compact") == []


def test_stories_are_formatted_as_the_interpreter_prints_them() -> None:
    for path in STORIES:
        assert shown(parse(path.read_text())) == path.read_text(), f"{path.name} is not in the form of interpreter.py"


def test_verbs_are_unique() -> None:
    modules = [import_module(f"scenario.{path.stem}") for path in Path(__file__).parent.glob("*_verbs.py")]
    assert sorted(verb for module in modules for verb in module.VERBS) == sorted(VERBS)


def test_a_different_outcome_of_a_story_is_noticed(tmp_path: Path) -> None:
    lines = parse("knock g a -> a: waits\n# nothing\nheartbeat g a\n")
    (first, comment, second) = play(lines, World(tmp_path))
    assert first.expected == ["a: member id required"] != lines[0].expected
    assert comment.expected == [] and second.expected == ["a: unknown member id"]
