"""What `odradek --version` says of the parts that are compiled; tests/interop/test_build.py has it of real wheels."""

from __future__ import annotations

import importlib

import pytest

from odradek import __version__
from odradek.app import compiled


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ([], "compiled"),
        (["rooms"], "rooms not compiled"),
        (["kernels", "movers"], "kernels and movers not compiled"),
        (["rooms", "kernels", "movers"], "interpreted"),
    ],
)
def test_the_version_names_what_is_missing(missing: list[str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "are_compiled", lambda: {part: part not in missing for part in compiled.PARTS})
    assert compiled.version_line() == f"odradek {__version__} ({told})"


@pytest.mark.parametrize("part", compiled.PARTS)
def test_it_is_so_of_what_is_imported(part: str) -> None:
    try:
        origin = importlib.import_module(compiled.PARTS[part]).__file__ or ""
    except ImportError:  # Native modules have no Python source.
        origin = ".py"
    assert compiled.are_compiled()[part] is not origin.endswith(".py")
