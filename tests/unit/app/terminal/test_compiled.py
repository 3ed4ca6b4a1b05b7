"""What `odradek --version` says of the parts that are compiled; tests/interop/test_build.py has it of real wheels."""

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


def modules(part: str) -> list[str]:
    return [f"{folder}/{name}" for folder, names in compiled.PARTS[part].items() for name in names.split()]


def test_it_knows_all_modules_that_are_to_be_compiled() -> None:
    assert [f"odradek.{each.replace('/', '.')}" for each in modules("rooms")] == rooms()
    if (SOURCE / "net/native/mover.pyx").exists():  # Sources of what is compiled are not installed.
        assert modules("movers") == sorted(f"net/native/{each.stem}" for each in SOURCE.glob("net/native/*.pyx"))
    assert modules("kernels") == sorted(
        f"record/kernels/{each.stem}" for each in SOURCE.glob("record/kernels/[!_]*.py")
    )


@pytest.mark.parametrize("part", compiled.PARTS)
def test_it_is_so_of_what_is_imported(part: str) -> None:
    for module in modules(part):
        try:
            origin = importlib.import_module(f"odradek.{module.replace('/', '.')}").__file__ or ""
        except ImportError:  # Native modules have no Python source.
            origin = ".py"
        assert compiled.has_compiled(module) is not origin.endswith(".py")


@pytest.mark.parametrize("part", compiled.PARTS)
def test_a_part_is_compiled_only_as_a_whole(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "package", str(tmp_path / "__init__.py"))
    for module in (path for each in compiled.PARTS for path in modules(each)):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{module}{EXTENSION_SUFFIXES[0]}").touch()
    assert compiled.how_compiled() == "compiled"
    (tmp_path / f"{modules(part)[-1]}{EXTENSION_SUFFIXES[0]}").unlink()
    assert compiled.how_compiled() == f"{part} not compiled"
    shutil.rmtree(tmp_path)
    assert compiled.how_compiled() == "interpreted"
