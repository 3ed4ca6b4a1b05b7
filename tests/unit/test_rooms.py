"""What setup.py has mypyc compile is of a kind that works compiled."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, NewType

import pytest

from support.rooms import REPOSITORY, rooms

ROOMS = rooms()


def classes_of(room: str) -> list[type[Any]]:
    """Those that mypyc makes C structures of."""
    module = importlib.import_module(room)
    found = [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == room]
    return [one for one in found if not issubclass(one, tuple) and not getattr(one, "_is_protocol", False)]


def source_of(room: str) -> str:
    """From the repository: a compiled module does not know its own."""
    return (REPOSITORY / "src" / room.replace(".", "/")).with_suffix(".py").read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_no_base_has_a_place_in_its_heirs_instances(room: str) -> None:
    """mypyc puts its own there and asks neither: asyncio.Transport has a slot, any plain class a weak reference."""
    for one in classes_of(room):
        for base in one.__mro__[1:-1]:
            is_ours = base.__module__ in ROOMS
            is_empty = (base.__basicsize__, base.__dictoffset__, base.__weakrefoffset__) == (object.__basicsize__, 0, 0)
            assert is_ours or is_empty, f"{one.__qualname__} inherits from {base.__module__}.{base.__qualname__}"


@pytest.mark.parametrize("room", ROOMS)
def test_none_of_them_has_slots(room: str) -> None:
    """Compiled they all have, and mypyc takes a name in __slots__ for the attribute of the class that it then is."""
    source = (REPOSITORY / "src" / f"{room.replace('.', '/')}.py").read_text()
    assert "__slots__" not in source and "slots=True" not in source


@pytest.mark.parametrize("room", ROOMS)
def test_no_field_is_left_out_of_a_dataclasses_init(room: str) -> None:
    """Compiled it has no value then, whatever its default."""
    for one in classes_of(room):
        fields = dataclasses.fields(one) if dataclasses.is_dataclass(one) else ()
        assert all(field.init or field.default is dataclasses.MISSING for field in fields), one.__qualname__


@pytest.mark.parametrize("room", ROOMS)
def test_their_heirs_are_compiled_with_them(room: str) -> None:
    importlib.import_module("odradek.app.serve.server")
    for one in classes_of(room):
        for heir in one.__subclasses__():
            if heir.__module__.startswith("odradek."):
                assert heir.__module__ in ROOMS, f"{heir.__qualname__} inherits from {one.__qualname__}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_new_type_is_called_with_a_tuple_unpacked(room: str) -> None:
    """mypyc leaves the call of a NewType away, and has the tuple itself then."""
    module = importlib.import_module(room)
    new_types = {name for name, one in vars(module).items() if isinstance(one, NewType)}
    calls = [node for node in ast.walk(ast.parse(source_of(room))) if isinstance(node, ast.Call)]
    unpacked = [node for node in calls if any(isinstance(one, ast.Starred) for one in node.args)]
    wrong = [ast.unparse(node) for node in unpacked if isinstance(node.func, ast.Name) and node.func.id in new_types]
    assert not wrong


def test_none_is_compiled_beside_its_source() -> None:
    """Python would import that, whatever the source says by now; only kernels and native modules belong there."""
    made = [path for path in (REPOSITORY / "src").rglob("*.so") if path.parent.name not in ("kernels", "native")]
    assert not made


TRANSLATE = """
import runpy, setuptools, sys
setuptools.setup = lambda **_: None
sys.exit(not runpy.run_path(sys.argv[1])["rooms"]())
"""


@pytest.mark.waits
@pytest.mark.slow
def test_mypyc_translates_them(tmp_path: Path) -> None:
    """To compile the result takes minutes and hardly ever fails: tests/interop/test_build.py does so at night."""
    (tmp_path / "src").symlink_to(REPOSITORY / "src")
    command = [sys.executable, "-c", TRANSLATE, str(REPOSITORY / "setup.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "build" / "rooms").rglob("*.c"))
