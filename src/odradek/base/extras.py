"""Missing packages of an extra, and the command that installs them into this environment.

The command names the packages of the extra instead of the extra. `odradek[spark]` is right only if Odradek was
installed from an index, not for a checkout, a wheel, pipx or uv.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path


def not_installed(modules: list[str], *extras: str) -> str:
    """Return the end of a sentence: the missing modules and the command that installs them."""
    return f"{', '.join(modules)} {'is' if len(modules) == 1 else 'are'} not installed: {install_command(*extras)}"


def absent(*modules: str) -> list[str]:
    """Return the missing top-level modules without importing any."""
    return [name for name in modules if find_spec(name) is None]


def install_command(*extras: str) -> str:
    """Return the command that installs the packages of the extras; without pip, it uses uv."""
    python = shlex.quote(sys.executable)
    installer = f"uv pip install --python {python}" if absent("pip") else f"{python} -m pip install"
    return " ".join([installer, *map(shlex.quote, _requirements(extras))])


def _requirements(extras: tuple[str, ...]) -> list[str]:
    # The import takes 50 ms and is needed only for an error.
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("odradek") or []
    except PackageNotFoundError:  # Run from a checkout through PYTHONPATH.
        return [f"{Path(__file__).parents[3]}[{','.join(extras)}]"]
    markers = re.compile(rf"""extra == ["'](?:{"|".join(extras)})["']""")
    requirements = (line.partition(";") for line in lines)
    return [requirement.strip() for requirement, _, marker in requirements if markers.search(marker)]
