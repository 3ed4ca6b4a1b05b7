"""The name that a misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, among: Iterable[str], likeness: float = 0.75, prefix: str = "") -> str:
    """Returns `; did you mean NAME?` with the nearest of the names, an empty text where none is so near (0 to 1).

    prefix: what stands before each name where the person writes it.
    """
    from difflib import get_close_matches  # Only where something is wrong already.

    near = get_close_matches(name, list(among), n=1, cutoff=likeness)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
