"""Modules that setup.py compiles with mypyc."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


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
