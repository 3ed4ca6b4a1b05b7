"""Seeds of simulated histories: a tenth of each range in the default tests, the whole range with --nightly.

A range that is played completely in each run finds nothing new after the first one. The tenth depends on the source
tree: each change is tested with other seeds, and all runs of the same tree play the same ones.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")

NIGHTLY = "ODRADEK_TESTS_NIGHTLY"  # Set by --nightly and --soak before tests are collected.
SHARE = 10
ROOT = Path(__file__).parents[2]


def _hash_of_sources() -> str:
    """Return the hash of the committed sources, empty without a repository."""
    line = ["git", "rev-parse", "HEAD:src"]
    try:
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


_TREE = _hash_of_sources()


def is_nightly() -> bool:
    """Return whether the long tests run, too."""
    return NIGHTLY in os.environ


def seeds(every: Sequence[int], known: Iterable[int] = ()) -> list[int]:
    """Return the seeds of `every` to play in this run, and those that once found a defect."""
    chosen = every if is_nightly() else _sample(every, SHARE, _TREE)
    return sorted({*chosen, *known})


def shared(name: str, every: Sequence[str], of: int) -> list[str]:
    """Return a share of one in `of` of a test's parameters, at least one, chosen for this tree."""
    return _sample(sorted(every), of, f"{_TREE} {name}")


def _sample(every: Sequence[T], of: int, seed: str) -> list[T]:
    return Random(seed).sample(every, -(-len(every) // of))
