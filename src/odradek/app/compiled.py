"""Which parts of this installation are compiled: all of them, where there was a C compiler."""

from __future__ import annotations

from importlib.util import find_spec

from odradek import __version__

# One module of each part stands for all of it.
PARTS = {
    "rooms": "odradek.net.readers",
    "kernels": "odradek.record.kernels.runs",
    "movers": "odradek.net.native.mover",
}


def are_compiled() -> dict[str, bool]:
    """Says of each part (for each request, for each record, threads of their own) whether it is compiled."""
    specs = {part: find_spec(module) for part, module in PARTS.items()}
    return {part: bool(spec and spec.origin and not spec.origin.endswith(".py")) for part, spec in specs.items()}


def version_line() -> str:
    """Returns the version, and which parts are compiled."""
    missing = [part for part, is_compiled in are_compiled().items() if not is_compiled]
    how = "interpreted" if len(missing) == len(PARTS) else f"{' and '.join(missing)} not compiled"
    return f"odradek {__version__} ({how if missing else 'compiled'})"
