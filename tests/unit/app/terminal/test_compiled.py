"""Compiled parts in the output of `odradek --version`; tests/interop/test_build.py checks real wheels."""

from __future__ import annotations

import importlib
import shutil
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import odradek
from odradek import __version__
from odradek.app.terminal import compiled
from support.rooms import rooms

SOURCE = Path(odradek.__file__).parent


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ([], "compiled"),
        (["rooms"], "rooms not compiled"),
        (["kernels", "movers"], "kernels and movers not compiled"),
        (["rooms", "kernels", "movers"], "interpreted"),
    ],
)
def test_version_lists_parts_that_are_not_compiled(
    missing: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "are_compiled", lambda: {part: part not in missing for part in compiled.PARTS})
    assert compiled.version_line() == f"odradek {__version__} ({text})"


def modules(part: str) -> list[str]:
    return [f"{folder}/{name}" for folder, names in compiled.PARTS[part].items() for name in names.split()]


def test_all_compilable_modules_are_known() -> None:
    assert [f"odradek.{each.replace('/', '.')}" for each in modules("rooms")] == rooms()
    if (SOURCE / "net/native/mover.pyx").exists():  # Sources of compiled modules are not installed.
        assert modules("movers") == sorted(f"net/native/{each.stem}" for each in SOURCE.glob("net/native/*.pyx"))
    assert modules("kernels") == sorted(
        f"record/kernels/{each.stem}" for each in SOURCE.glob("record/kernels/[!_]*.py")
    )


@pytest.mark.parametrize("part", compiled.PARTS)
def test_compiled_state_matches_imported_modules(part: str) -> None:
    for module in modules(part):
        try:
            origin = importlib.import_module(f"odradek.{module.replace('/', '.')}").__file__ or ""
        except ImportError:  # Native modules have no Python source.
            origin = ".py"
        assert compiled.has_compiled(module) is not origin.endswith(".py")


@pytest.mark.parametrize("part", compiled.PARTS)
def test_part_counts_as_compiled_only_if_complete(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "package", str(tmp_path / "__init__.py"))
    for module in (path for each in compiled.PARTS for path in modules(each)):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{module}{EXTENSION_SUFFIXES[0]}").touch()
    assert compiled.how_compiled() == "compiled"
    (tmp_path / f"{modules(part)[-1]}{EXTENSION_SUFFIXES[0]}").unlink()
    assert compiled.how_compiled() == f"{part} not compiled"
    shutil.rmtree(tmp_path)
    assert compiled.how_compiled() == "interpreted"
