"""Digest of all stories: `python -m scenario.history FOLDER` plays them, and prints what the broker sent and wrote."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.property import test_fetch_sessions

from scenario.interpreter import parse, play
from scenario.world import World
from support.in_memory import Harness

if TYPE_CHECKING:
    from odradek.api.request.outcome import Encoded

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
SEEDS = range(2)


class Digest:
    """A digest of decoded responses and of files."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add_response(self, outcome: Encoded) -> None:
        for chunk in outcome or ():
            self._hash.update(chunk if isinstance(chunk, bytes | memoryview) else chunk.read())  # type: ignore[attr-defined]

    def add_files(self, directory: Path) -> None:
        for path in sorted(directory.rglob("*")):
            self._hash.update(str(path.relative_to(directory)).encode())
            if path.is_file():
                self._hash.update(path.read_bytes())

    def __str__(self) -> str:
        return self._hash.hexdigest()


def of_story(path: Path, directory: Path) -> Digest:
    digest = _listening()
    play(parse(path.read_text()), World(directory))
    digest.add_files(directory)
    return digest


def of_fetches(seed: int, directory: Path) -> Digest:
    digest = _listening()
    sides = [test_fetch_sessions.Side(directory / name, reads_all=False) for name in ("one", "other")]
    test_fetch_sessions.Story(seed, *sides).play()
    digest.add_files(directory)
    return digest


def _listening() -> Digest:
    """Add every decoded response to the digest from now on."""
    digest = Digest()

    def decoded(self: Harness, outcome: Encoded, version: int, answer: type[Any]) -> Any:
        digest.add_response(outcome)
        return _decoded(self, outcome, version, answer)

    Harness.decoded = decoded  # type: ignore[method-assign, assignment]
    return digest


_decoded = Harness.decoded


def main(folder: Path) -> None:
    for path in STORIES:
        print(path.stem, of_story(path, folder / path.stem))
    for seed in SEEDS:
        print("fetches", seed, of_fetches(seed, folder / f"fetches-{seed}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
