"""Paths and links on the pages lead to existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
BEGINS_IN = (ROOT, ROOT / "src" / "odradek")
SUFFIXES = ("", ".py", ".pyx")
FOLDERS = (
    "api|base|wire|record|log|core|net|app|client|spark|testing|demo|coordination|tls|src|docs|tests|bench|scripts"
)
PATH = re.compile(rf"[`(]((?:{FOLDERS})/[\w/.*-]+)")
LINK = re.compile(r"\]\(([^)#:\s]+)[)#]")  # A page or a file; neither an anchor of the same page nor a URL.
PLACEHOLDER = re.compile(r"NAME|\*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mentioned_paths_exist(page: Path) -> None:
    named = {path.rstrip(".,:") for path in PATH.findall(page.read_text())}
    assert not [path for path in sorted(named) if not PLACEHOLDER.search(path) and not _is_there(path)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_point_to_existing_files(page: Path) -> None:
    linked = set(LINK.findall(page.read_text()))
    assert not [link for link in sorted(linked) if not (page.parent / link).exists()]


def _is_there(path: str) -> bool:
    module = re.sub(r"\.[A-Z]\w*$", "", path)  # core/disks/flushes.Sync
    return any(
        (folder / f"{one}{suffix}").exists() for folder in BEGINS_IN for one in (path, module) for suffix in SUFFIXES
    )
