"""What is to be said of a topic's configuration as a command line gives it."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS
from odradek.core.configs.unknown_keys import nearest


def meant_instead(names: Iterable[str]) -> str:
    """Returns `; did you mean NAME?` for the first name that is no topic's, if there is one like it."""
    unknown = next((name for name in names if name not in TOPIC_KEYS), None)
    if unknown is None:
        return ""
    of_topics = next((name for name, of_brokers in TOPIC_SYNONYMS.items() if unknown in of_brokers), None)
    meant = of_topics or nearest(unknown, TOPIC_KEYS)
    return f"; did you mean {meant}?" if meant else ""
