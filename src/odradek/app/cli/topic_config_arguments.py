"""Hints about topic configuration keys given on a command line."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS
from odradek.core.configs.unknown_keys import nearest


def suggest_key(names: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the first unknown topic key, or "" without a similar key."""
    unknown = next((name for name in names if name not in TOPIC_KEYS), None)
    if unknown is None:
        return ""
    topic_key = next((name for name, broker_keys in TOPIC_SYNONYMS.items() if unknown in broker_keys), None)
    suggestion = topic_key or nearest(unknown, TOPIC_KEYS)
    return f"; did you mean {suggestion}?" if suggestion else ""
