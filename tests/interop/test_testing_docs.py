"""Every example of docs/TESTING.md and docs/TESTING_FAULTS.md: each section runs in a pytest of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_testing_plugin import run

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("TESTING.md", "TESTING_FAULTS.md")]
BLOCK = re.compile(r"^```(python|ini)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, list[tuple[str, str]]]:
    """Return the language and the text of the examples by title."""
    parts = [part for page in PAGES for part in re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)[1:]]
    found = {title: BLOCK.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    return {title: blocks for title, blocks in found.items() if blocks}


@pytest.mark.share(3)
@pytest.mark.parametrize("title", sections())
def test_examples_run(tmp_path: Path, title: str) -> None:
    blocks = sections()[title]
    files, tests = {}, 0
    for number, (language, text) in enumerate(blocks):
        if language == "ini":
            files["pytest_ini"] = text
        elif text.startswith("# conftest.py"):
            files["conftest_py"] = text
        else:
            files[f"test_{number}_py"] = text
            tests += len(re.findall(r"^def test_", text, re.MULTILINE))
    assert tests, "an example that nothing runs"
    assert f"{tests} passed" in run(tmp_path, "--strict-markers", **files)


def test_every_fault_has_its_example() -> None:
    from odradek.testing import Faults

    page = "".join(text for blocks in sections().values() for _, text in blocks)
    public = [name for name, one in vars(Faults).items() if callable(one) and not name.startswith("_")]
    for name in {"answer", "delay", "drop"} & set(public):
        assert f".faults.{name}(" in page
