"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, among: Iterable[str], likeness: float = 0.75, prefix: str = "") -> str:
    """Return `; did you mean NAME?` with the most similar name, or "" if none reaches `likeness` (0 to 1).

    prefix: the text before each name in the user's input.
    """
    from difflib import get_close_matches  # Needed only for an error message.

    near = get_close_matches(name, list(among), n=1, cutoff=likeness)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
