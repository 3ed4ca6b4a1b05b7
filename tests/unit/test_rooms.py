"""What setup.py has mypyc compile is of a kind that works compiled."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


def rooms() -> list[str]:
    for statement in ast.parse((REPOSITORY / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "ROOMS":
            folders: dict[str, str] = ast.literal_eval(statement.value)
            return [f"odradek.{folder}.{name}" for folder, names in folders.items() for name in names.split()]
    raise AssertionError("setup.py names no rooms")


ROOMS = rooms()


def classes_of(room: str) -> list[type[Any]]:
    """Those that mypyc makes C structures of."""
    module = importlib.import_module(room)
    found = [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == room]
    return [one for one in found if not issubclass(one, tuple) and not getattr(one, "_is_protocol", False)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_base_has_a_place_in_its_heirs_instances(room: str) -> None:
    """mypyc puts its own there and asks neither: asyncio.Transport has a slot, any plain class a weak reference."""
    for one in classes_of(room):
        for base in one.__mro__[1:-1]:
            is_ours = base.__module__ in ROOMS
            is_empty = base.__dict__.get("__slots__") == ()
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
    importlib.import_module("odradek.app.server")
    for one in classes_of(room):
        for heir in one.__subclasses__():
            if heir.__module__.startswith("odradek."):
                assert heir.__module__ in ROOMS, f"{heir.__qualname__} inherits from {one.__qualname__}"
