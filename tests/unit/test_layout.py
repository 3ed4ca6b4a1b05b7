"""The layout of the sources: small folders, and a name of its own for every module.

Imports between the folders are checked by import-linter ([tool.importlinter] in pyproject.toml).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from support.rooms import REPOSITORY, rooms

SOURCE = REPOSITORY / "src" / "odradek"
FILES_MAX = 25
MESSAGES = SOURCE / "wire" / "messages"  # A file for each API, under the name of its handler in api/.
SHARED_NAMES = {"__init__", "__main__"}
COMPILED_AT_LEAST = 81  # A module that is moved and not found again by setup.py turns interpreted, unseen.


def modules() -> list[Path]:
    """Return all modules but those of messages."""
    return [path for path in SOURCE.rglob("*.py") if MESSAGES not in path.parents and path.stem not in SHARED_NAMES]


def test_no_folder_is_a_long_flat_list() -> None:
    counts = Counter(path.parent for path in SOURCE.rglob("*.py") if path.stem != "__init__")
    long = {str(folder.relative_to(SOURCE)): count for folder, count in counts.items() if count > FILES_MAX}
    assert set(long) <= {"wire/messages"}, long


def test_every_module_has_a_name_of_its_own() -> None:
    found = defaultdict(list)
    for path in modules():
        found[path.stem].append(str(path.relative_to(SOURCE)))
    assert not {stem: paths for stem, paths in found.items() if len(paths) > 1}


def test_no_module_is_the_plural_of_another() -> None:
    stems = {path.stem for path in modules()}
    assert not {stem for stem in stems if f"{stem}s" in stems}


def test_as_many_modules_are_compiled_as_before() -> None:
    missing = [room for room in rooms() if not (SOURCE.parent / room.replace(".", "/")).with_suffix(".py").exists()]
    assert not missing
    assert len(rooms()) >= COMPILED_AT_LEAST
