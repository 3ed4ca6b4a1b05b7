"""Configuration in layers: a lookup proceeds from the strongest source to the table's default.

The layers of a broker: the dynamic configuration of this broker, the dynamic default of the cluster, and the static
configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.core.configs.broker_keys import BROKER_KEYS, broker_key
from odradek.core.configs.definition import ConfigEntry, ConfigError, ConfigSource, Synonym, Value, raise_all, to_text
from odradek.core.configs.unknown_keys import known_key
from odradek.core.configs.values import TypedValues


class Layer(NamedTuple):
    source: ConfigSource
    texts: Mapping[str, str]
    values: Mapping[str, Value]

    @classmethod
    def parse(cls, source: ConfigSource, texts: Mapping[str, str]) -> Layer:
        """Return the parsed layer; raise ConfigError with all unknown names and invalid values."""
        values: dict[str, Value] = {}
        problems = []
        for name, text in texts.items():
            try:
                values[name] = known_key(name).parse(text)
            except ConfigError as error:
                problems.append(str(error))
        raise_all(problems)
        assert values.keys() == texts.keys()
        return cls(source, texts, values)


class LayeredConfigs(TypedValues):
    """Values in `layers`, strongest first; `defaults` replace those of the table."""

    __slots__ = ("_defaults", "_layers", "inherited")

    def __init__(self, layers: tuple[Layer, ...], defaults: Mapping[str, Value]) -> None:
        sources = [layer.source for layer in layers]
        assert sources == sorted(set(sources)), "each source has one layer, the strongest first"
        self._layers = layers
        self._defaults = defaults
        self.inherited: dict[str, ConfigEntry] = {}  # Entries of topic keys without an override.

    def value(self, name: str) -> Value:
        for layer in self._layers:
            if name in layer.values:
                return layer.values[name]
        return self.default(name)

    def optional_value(self, name: str) -> Value:
        """Return the value, and None also for an unknown name.

        Some synonyms of topic keys are names that no broker has.
        """
        return self.value(name) if name in BROKER_KEYS else None

    def default(self, name: str) -> Value:
        if name in self._defaults:
            return self._defaults[name]
        key = BROKER_KEYS.get(name) or broker_key(name)
        if key is None:
            raise KeyError(name)
        return key.default

    def is_set(self, name: str) -> bool:
        """Return whether this value was set, even if to the default."""
        return any(name in layer.values for layer in self._layers)

    def names_set(self) -> list[str]:
        return sorted({name for layer in self._layers for name in layer.values})

    def synonyms(self, names: Iterable[str], sensitive: bool) -> tuple[Synonym, ...]:
        """Return all values of the names, strongest first.

        As in Kafka, those before the first name's own are left out.
        """
        names = list(names)
        found = self._all_synonyms(names, sensitive)
        first = next((i for i, synonym in enumerate(found) if synonym.name == names[0]), len(found))
        return tuple(found[first:])

    def synonyms_set(self, names: Iterable[str], sensitive: bool) -> tuple[Synonym, ...]:
        """Return the same for a topic's key, but include values set under another of the names.

        Kafka returns none then, and reports a value from log.retention.hours as a default.
        """
        names = list(names)
        found = self.synonyms(names, sensitive)
        every = [] if found else self._all_synonyms(names, sensitive)
        is_set = any(synonym.source is not ConfigSource.DEFAULT_CONFIG for synonym in every)
        return tuple(every) if is_set else found

    def _all_synonyms(self, names: Iterable[str], sensitive: bool) -> list[Synonym]:
        names = [name for name in names if broker_key(name) is not None]
        found = [
            Synonym(name, None if sensitive else layer.texts[name], layer.source)
            for layer in self._layers
            for name in names
            if name in layer.texts
        ]
        return found + [
            Synonym(name, to_text(self.default(name)), ConfigSource.DEFAULT_CONFIG)
            for name in names
            if self.default(name) is not None
        ]
