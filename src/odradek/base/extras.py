"""What is missing of an extra, and the command that brings it into this environment.

The command names what the extra asks for, and not the extra: `odradek[spark]` is right only for who has Odradek from an
index, and not from a checkout, from a wheel, with pipx or with uv.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path


def not_installed(modules: list[str], *extras: str) -> str:
    """Returns the end of a sentence: that the modules are not installed, and the command that installs them."""
    return f"{', '.join(modules)} {'is' if len(modules) == 1 else 'are'} not installed: {install_command(*extras)}"


def absent(*modules: str) -> list[str]:
    """Returns the top-level modules that are not there, without importing any."""
    return [name for name in modules if find_spec(name) is None]


def install_command(*extras: str) -> str:
    """Returns the command that installs what the extras ask for; a virtual environment without pip is one of uv's."""
    python = shlex.quote(sys.executable)
    installer = f"uv pip install --python {python}" if absent("pip") else f"{python} -m pip install"
    return " ".join([installer, *map(shlex.quote, _wanted(extras))])


def _wanted(extras: tuple[str, ...]) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires  # 50 ms, and only for who has made a mistake.

    try:
        lines = requires("odradek") or []
    except PackageNotFoundError:  # It runs from a checkout, on PYTHONPATH.
        return [f"{Path(__file__).parents[3]}[{','.join(extras)}]"]
    markers = re.compile(rf"""extra == ["'](?:{"|".join(extras)})["']""")
    requirements = (line.partition(";") for line in lines)
    return [requirement.strip() for requirement, _, marker in requirements if markers.search(marker)]
