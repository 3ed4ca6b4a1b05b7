"""Configuration of a broker, and through it of its topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.core.configs.broker_keys import BROKER_KEYS, BROKER_SYNONYMS, DYNAMIC_ONLY, broker_key
from odradek.core.configs.definition import READ_ONLY, ConfigEntry, ConfigSource, Synonym, Value, to_text
from odradek.core.configs.docs import DOCS
from odradek.core.configs.layers import Layer, LayeredConfigs
from odradek.core.configs.topic_configs import TopicConfigs, check_defaults, check_topic

RESOLVED_MAX = 1000  # Limit of cached results; nearly all topics of a cluster share a few sets of overrides.


class BrokerConfigs(LayeredConfigs):
    """Configuration values of a broker.

    `parse` checks the static ones, `with_dynamic` adds the cluster's settings on top.  A broker has one instance, which
    all its parts read; `replace_values` replaces all of its values at once.
    """

    __slots__ = ("_resolved",)

    def __init__(self, layers: tuple[Layer, ...], defaults: Mapping[str, Value]) -> None:
        super().__init__(layers, defaults)
        self._resolved: dict[frozenset[tuple[str, str]], TopicConfigs] = {}

    @classmethod
    def parse(cls, texts: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> BrokerConfigs:
        """Return the checked configuration; `defaults` replace those of the table.

        Raises ConfigError for an unknown name or an invalid value.
        """
        texts = dict(texts)
        if texts.get("broker.id", "").strip() != "-1":  # -1 requests a generated id.
            for set_name, other_name in (("broker.id", "node.id"), ("node.id", "broker.id")):
                if set_name in texts and other_name not in texts:  # Two names of one key, as in Kafka 3 and 4.
                    # An error names the key that was set.
                    BROKER_KEYS[other_name]._replace(name=set_name).parse(texts[set_name])
                    texts[other_name] = texts[set_name]
        own = {name: BROKER_KEYS[name].parse(text) for name, text in (defaults or {}).items()}
        configs = cls((Layer.parse(ConfigSource.STATIC_BROKER_CONFIG, texts),), own)
        check_defaults(configs)
        return configs

    def with_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> BrokerConfigs:
        """Return these configs under the dynamic ones of the broker and of all brokers, as in the znodes."""
        assert self._layers[-1].source is ConfigSource.STATIC_BROKER_CONFIG
        dynamic = (
            Layer.parse(ConfigSource.DYNAMIC_BROKER_CONFIG, broker),
            Layer.parse(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster),
        )
        layers = (*(layer for layer in dynamic if layer.texts), self._layers[-1])
        configs = BrokerConfigs(layers, self._defaults)
        check_defaults(configs)
        return configs

    def replace_values(self, other: BrokerConfigs) -> None:
        """Take over all values of another instance and discard resolved topic configurations."""
        self._layers = other._layers
        # Assigned after the layers, and never cleared: a thread that resolves with the old layers stores its result in
        # the old dict.
        self._resolved = {}
        self.inherited = {}

    def for_topic(self, overrides: Mapping[str, str]) -> TopicConfigs:
        """Return the configuration of a topic with these overrides; topics with the same overrides share one.

        See TopicConfigs.resolve, which takes a tenth of a millisecond.  May be called in any thread.
        """
        resolved, key = self._resolved, frozenset(overrides.items())
        known = resolved.get(key)
        if known is None:
            if len(resolved) >= RESOLVED_MAX:
                resolved.clear()
            known = resolved[key] = TopicConfigs.resolve(self, overrides)
        return known

    def check_topic(self, overrides: Mapping[str, str | None]) -> None:
        """Raise Refused(INVALID_CONFIG) for overrides that no topic can have."""
        check_topic(self, overrides)

    def describe(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Return a broker's entries for DescribeConfigs, by name, without unknown names, as in Kafka."""
        entries = (self._entry(name) for name in self._described() if names is None or name in names)
        return list(entries)

    def describe_for_all(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Return the entries of all brokers for DescribeConfigs: the cluster-wide settings, and no others."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries = []
        for layer in self._layers:
            for name, text in layer.texts.items() if layer.source is source else ():
                if names is None or name in names:
                    entry = self._entry(name)
                    value = None if entry.sensitive else text
                    synonym = Synonym(name, value, source)
                    entries.append(entry._replace(value=value, source=source, synonyms=(synonym,)))
        return entries

    def _described(self) -> list[str]:
        listed = {
            name for name, key in BROKER_KEYS.items() if not (key.internal or key.retired or name in DYNAMIC_ONLY)
        }
        return sorted(listed.union(self.names_set()))

    def _entry(self, name: str) -> ConfigEntry:
        key = broker_key(name)
        assert key is not None, "a layer contains only known keys"
        synonyms = self.synonyms(BROKER_SYNONYMS.get(name, (name,)), key.sensitive)
        return ConfigEntry(
            name=name,
            value=None if key.sensitive else to_text(self.value(name)),
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            read_only=key.mode is READ_ONLY,
            sensitive=key.sensitive,
            synonyms=synonyms,
            type_code=key.type,
            documentation=DOCS.get(name),
        )
