"""Requirements of mypyc on the modules that setup.py compiles with it."""

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
    """Return the classes that mypyc compiles to C structs."""
    module = importlib.import_module(room)
    found = [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == room]
    return [one for one in found if not issubclass(one, tuple) and not getattr(one, "_is_protocol", False)]


def source_of(room: str) -> str:
    """Return the source from the repository, since a compiled module does not know its own."""
    return (REPOSITORY / "src" / room.replace(".", "/")).with_suffix(".py").read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_base_classes_add_no_fields_to_instances(room: str) -> None:
    """mypyc would put its own fields there: asyncio.Transport has a slot, any plain class a weak reference."""
    for one in classes_of(room):
        for base in one.__mro__[1:-1]:
            is_ours = base.__module__ in ROOMS
            is_empty = (base.__basicsize__, base.__dictoffset__, base.__weakrefoffset__) == (object.__basicsize__, 0, 0)
            assert is_ours or is_empty, f"{one.__qualname__} inherits from {base.__module__}.{base.__qualname__}"


@pytest.mark.parametrize("room", ROOMS)
def test_compiled_classes_declare_no_slots(room: str) -> None:
    """Compiled classes always have slots, and mypyc treats an attribute in __slots__ as a class attribute."""
    source = (REPOSITORY / "src" / f"{room.replace('.', '/')}.py").read_text()
    assert "__slots__" not in source and "slots=True" not in source


@pytest.mark.parametrize("room", ROOMS)
def test_dataclass_fields_with_defaults_are_in_init(room: str) -> None:
    """A compiled class leaves such a field without a value, even if it has a default."""
    for one in classes_of(room):
        fields = dataclasses.fields(one) if dataclasses.is_dataclass(one) else ()
        assert all(field.init or field.default is dataclasses.MISSING for field in fields), one.__qualname__


@pytest.mark.parametrize("room", ROOMS)
def test_subclasses_of_compiled_classes_are_compiled(room: str) -> None:
    importlib.import_module("odradek.app.serve.server")
    for one in classes_of(room):
        for subclass in one.__subclasses__():
            if subclass.__module__.startswith("odradek."):
                assert subclass.__module__ in ROOMS, f"{subclass.__qualname__} inherits from {one.__qualname__}"


@pytest.mark.parametrize("room", ROOMS)
def test_new_types_are_not_called_with_an_unpacked_tuple(room: str) -> None:
    """mypyc drops the call of a NewType, which leaves the tuple itself."""
    module = importlib.import_module(room)
    new_types = {name for name, one in vars(module).items() if isinstance(one, NewType)}
    calls = [node for node in ast.walk(ast.parse(source_of(room))) if isinstance(node, ast.Call)]
    unpacked = [node for node in calls if any(isinstance(one, ast.Starred) for one in node.args)]
    wrong = [ast.unparse(node) for node in unpacked if isinstance(node.func, ast.Name) and node.func.id in new_types]
    assert not wrong


@pytest.mark.parametrize("room", ROOMS)
def test_generators_do_not_pause_while_they_handle_an_exception(room: str) -> None:
    """mypyc would keep the exception for ever: each rejected batch was a leak of a kilobyte."""
    for handler in ast.walk(ast.parse(source_of(room))):
        if isinstance(handler, ast.ExceptHandler):
            pauses = [each for each in ast.walk(handler) if isinstance(each, ast.Yield | ast.YieldFrom)]
            assert not pauses, f"line {pauses[0].lineno} pauses in an except clause"


def test_no_module_is_compiled_next_to_its_source() -> None:
    """Python would import the compiled file even if it is outdated; only kernels and native modules belong there."""
    made = [path for path in (REPOSITORY / "src").rglob("*.so") if path.parent.name not in ("kernels", "native")]
    assert not made


TRANSLATE = """
import runpy, setuptools, sys
setuptools.setup = lambda **_: None
sys.exit(not runpy.run_path(sys.argv[1])["rooms"]())
"""


@pytest.mark.waits
@pytest.mark.slow
def test_mypyc_translates_all_rooms(tmp_path: Path) -> None:
    """Compiling the resulting C takes minutes and hardly ever fails: tests/interop/test_build.py does so at night."""
    (tmp_path / "src").symlink_to(REPOSITORY / "src")
    command = [sys.executable, "-c", TRANSLATE, str(REPOSITORY / "setup.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "build" / "rooms").rglob("*.c"))
