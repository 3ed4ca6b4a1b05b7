"""Modules that setup.py compiles with mypyc."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from odradek.app.terminal.compiled import are_compiled

REPOSITORY = Path(__file__).parents[2]

# For tests that replace a method: a compiled class does not permit it, or calls its own from C.
interpreted = pytest.mark.skipif(are_compiled()["rooms"], reason="replaces a method, which compiled code does not call")


def rooms() -> list[str]:
    """Return the full names of the modules that are compiled as rooms."""
    for statement in ast.parse((REPOSITORY / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "ROOMS":
            folders: dict[str, str] = ast.literal_eval(statement.value)
            return [
                f"odradek.{folder.replace('/', '.')}.{name}"
                for folder, names in folders.items()
                for name in names.split()
            ]
    raise AssertionError("setup.py names no rooms")
