"""Histories of stories: byte for byte the same for any order of sets in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenario.history import STORIES

TESTS = Path(__file__).parents[1]
HASH_SEEDS = ("0", "1", "4711")

pytestmark = [pytest.mark.slow, pytest.mark.waits]


@pytest.mark.nightly
def test_stories_do_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    histories = [_history(seed, tmp_path / seed) for seed in HASH_SEEDS]
    assert len(histories[0]) > len(STORIES)
    for others in histories[1:]:
        assert others == histories[0]


def _history(hash_seed: str, folder: Path) -> list[str]:
    path = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-m", "scenario.history", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
