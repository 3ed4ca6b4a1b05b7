"""Unknown names in a server.properties: the choice of those that stop a start, and their messages.

Kafka starts with any name and passes unknown ones to plug-ins.  Here a name stops the start only if an intended value
would be lost: a misspelled key, a renamed key, a topic's key.  All others, such as a vendor's, cause a warning.  A
suggestion never changes the meaning: only one word may differ, by a letter or two, and a unit is never replaced by
another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from odradek.core.configs.broker_keys import BROKER_KEYS, broker_key
from odradek.core.configs.definition import ConfigError, ConfigKey
from odradek.core.configs.former_keys import REMOVED, RENAMED
from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS

# Prefixes of plug-in keys, however similar to a broker key.
VENDORS = ("confluent.", "kafka.csv.", "cruise.control.", "ranger.", "azure.", "strimzi.", "producer.", "consumer.")
_UNITS = {
    "hour": "hours",
    "hr": "hours",
    "hrs": "hours",
    "millis": "ms",
    "milliseconds": "ms",
    "min": "minutes",
    "mins": "minutes",
    "minute": "minutes",
    "sec": "seconds",
    "secs": "seconds",
}
_ALL_UNITS = frozenset((*_UNITS, *_UNITS.values(), "bytes", "messages", "mb", "kb"))
_DISTANCE_MAX = 2
_LETTERS_PER_ERROR = 3  # Of a word: "id" and "ms" are too short to be misspelled words.


def refusal_reason(name: str) -> str | None:
    """Return a sentence about an unknown name that stops a start; None if it only causes a warning."""
    if name in RENAMED:
        return f"Configuration key '{name}' is from an earlier release of Kafka. {RENAMED[name]}"
    if name in REMOVED or name.startswith(VENDORS):
        return None
    if name in TOPIC_KEYS:
        alternatives = " or ".join(f"'{key}'" for key in TOPIC_SYNONYMS.get(name, ()) if key in BROKER_KEYS)
        advice = (
            f"Use {alternatives} for all topics." if alternatives else "Set it on topics with odradek topic config."
        )
        return f"Configuration key '{name}' is a topic-level key. {advice}"
    near = nearest(name)
    return f"Unknown configuration key '{name}'. Did you mean '{near}'?" if near else None


def known_key(name: str) -> ConfigKey:
    """Return the definition of a name; raise ConfigError with a suggestion for an unknown one."""
    key = broker_key(name)
    if key is None:
        raise ConfigError(refusal_reason(name) or f"Unknown configuration key '{name}'.")
    return key


def unknown(texts: Mapping[str, str]) -> list[str]:
    """Return the unknown names, in their order."""
    return [name for name in texts if broker_key(name) is None]


def nearest(name: str, among: Iterable[str] = BROKER_KEYS) -> str | None:
    """Return the key that a misspelled name means; None if that is uncertain."""
    keys = {key.lower(): key for key in among}
    plain = name.lower().replace("_", ".").replace("-", ".")
    plain = ".".join(_UNITS.get(word, word) for word in plain.split(".")) if plain not in keys else plain
    if plain in keys:
        return keys[plain]
    found = sorted((distance, key) for key in keys for distance in _distances(plain, key))
    if not found or [distance for distance, _ in found].count(found[0][0]) > 1:
        return None
    return keys[found[0][1]]


def _distances(name: str, key: str) -> Iterator[int]:
    """Yield the number of letters by which a name differs from a key, if it may be a misspelling."""
    words, others = name.split("."), key.split(".")
    if len(words) != len(others):
        joined, target = name.replace(".", ""), key.replace(".", "")
        if joined == target:
            yield 1
        return
    different = [(word, target) for word, target in zip(words, others, strict=True) if word != target]
    if len(different) == 1 and not _ALL_UNITS.issuperset(different[0]):
        word, target = different[0]
        distance = _edit_distance(word, target)
        if distance <= min(_DISTANCE_MAX, max(1, len(target) // _LETTERS_PER_ERROR)):
            yield distance


def _edit_distance(word: str, target: str) -> int:
    """Return the number of letters that were left out, added, changed, or exchanged with the next."""
    if abs(len(word) - len(target)) > _DISTANCE_MAX:
        return _DISTANCE_MAX + 1
    before: list[int] = []
    row = list(range(len(target) + 1))
    for i, letter in enumerate(word, 1):
        last, before, row = before, row, [i]
        for j, target_letter in enumerate(target, 1):
            cost = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (letter != target_letter))
            if i > 1 and j > 1 and letter == target[j - 2] and word[i - 2] == target_letter:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    assert abs(len(word) - len(target)) <= row[-1] <= max(len(word), len(target))
    return row[-1]
