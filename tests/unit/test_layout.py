"""Layout of the sources: small folders and unique module names."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.rooms import REPOSITORY, rooms

SOURCE = REPOSITORY / "src" / "odradek"
FILES_MAX = 25
MESSAGES = SOURCE / "wire" / "messages"  # A file for each API, under the name of its handler in api/.
SHARED_NAMES = {"__init__", "__main__"}
ARCHITECTURE = REPOSITORY / "docs" / "ARCHITECTURE.md"
WITH_ROOMS = {"app", "net", "client", "api", "core", "log"}  # Folders whose rooms have floors of their own.
COMPILED_AT_LEAST = 84  # A module that is moved and not found again by setup.py turns interpreted, unseen.
ADMITTED_ELSEWHERE = re.compile(
    r"plain_\w+|large_\w+|\w+_in_slices|produce_staging|fetch_read|delayed_fetch|txn_verification"
)
# Each fits a dozen things, and a search for one finds all of them.
VAGUE_VERBS = {
    "ask",
    "attend",
    "begin",
    "end",
    "ended",
    "find",
    "go",
    "goes_on",
    "heard",
    "keep_house",
    "look",
    "rest",
    "take",
    "tell",
    "told",
}


def modules() -> list[Path]:
    """Return all modules except those of messages."""
    return [path for path in SOURCE.rglob("*.py") if MESSAGES not in path.parents and path.stem not in SHARED_NAMES]


def test_folders_have_a_limited_number_of_modules() -> None:
    counts = Counter(path.parent for path in SOURCE.rglob("*.py") if path.stem != "__init__")
    long = {str(folder.relative_to(SOURCE)): count for folder, count in counts.items() if count > FILES_MAX}
    assert set(long) <= {"wire/messages"}, long


def test_module_names_are_unique() -> None:
    found = defaultdict(list)
    for path in modules():
        found[path.stem].append(str(path.relative_to(SOURCE)))
    assert not {stem: paths for stem, paths in found.items() if len(paths) > 1}


def test_no_module_is_the_plural_of_another() -> None:
    stems = {path.stem for path in modules()}
    assert not {stem for stem in stems if f"{stem}s" in stems}


def test_number_of_compiled_modules_does_not_decrease() -> None:
    missing = [room for room in rooms() if not (SOURCE.parent / room.replace(".", "/")).with_suffix(".py").exists()]
    assert not missing
    assert len(rooms()) >= COMPILED_AT_LEAST


def floors() -> list[set[str]]:
    """Return the rooms of each floor in the import contract, top floor first, as paths without a suffix."""
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "floors")
    return kept(
        [name.strip().removeprefix("odradek.").replace(".", "/") for name in layer.split("|")] for layer in layers
    )


def kept(rows: Iterable[Iterable[str]]) -> list[set[str]]:
    """Return the rows with only rooms in them, without empty rows."""
    named = ({path for path in row if "/" in path and not path.endswith("__main__")} for row in rows)
    return [paths for paths in named if {path.partition("/")[0] for path in paths} & WITH_ROOMS]


def test_architecture_page_lists_the_floors() -> None:
    table = ARCHITECTURE.read_text().split("| rooms | purpose |\n|---|---|\n")[1].split("\n\n")[0]
    firsts = [row.split("|")[1] for row in table.splitlines()]
    assert kept(re.findall(r"`([\w/]+?)/?(?:\.py)?`", first) for first in firsts) == floors()


def test_architecture_page_lists_every_folder() -> None:
    page = ARCHITECTURE.read_text()
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")} - {"."}
    assert not {folder for folder in folders if f"`{folder}/`" not in page}


def test_plain_and_sliced_paths_check_no_rights_of_their_own() -> None:
    paths = [path for path in modules() if "api" in path.parts and ADMITTED_ELSEWHERE.fullmatch(path.stem)]
    assert len(paths) >= 9
    assert [path.stem for path in paths if "ResourceType" in path.read_text()] == []


@pytest.mark.slow
def test_method_names_are_specific() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in VAGUE_VERBS
    ]
    assert not found, (
        f"too vague to search for: {', '.join(found)}; say what the function does in Kafka's words:"
        " on_<participle> for an event, request_<noun> for an effect, find_<noun> for a lookup,"
        " take_<noun> to remove and return what is queued"
    )
