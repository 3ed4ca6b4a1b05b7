"""Validation of a changed configuration before it is written, by Apache Kafka's rules (KIP-226).

A broker's dynamic configuration is stored in two znodes: its own, and that of all brokers.  Unusable values in them (by
a newer Kafka, or by a person) are left in place and ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.broker_keys import BROKER_KEYS, broker_key
from odradek.core.configs.definition import PER_BROKER, READ_ONLY, ConfigError
from odradek.core.configs.edits import ConfigEdit
from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS
from odradek.core.configs.unknown_keys import known_key

MIB = 1 << 20
# Stores can be changed for one listener, never for all: that would replace every listener's identity at once.
PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
# Under ZooKeeper, Apache Kafka opens and closes listeners while it runs; here they change at the next start.
AT_START = frozenset({"listener.security.protocol.map", "listeners"})
THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)

# Keys that topics without overrides inherit.
_INHERITED = frozenset(name for names in TOPIC_SYNONYMS.values() for name in names)
# Effective while a value that topics inherit cannot be parsed: it may have been meant to keep all records.
KEEPS_ALL: Mapping[str, str] = MappingProxyType(
    {
        "log.cleaner.max.compaction.lag.ms": str(INT64_MAX),
        "log.cleaner.min.compaction.lag.ms": str(INT64_MAX),
        "log.cleanup.policy": "delete",
        "log.retention.bytes": "-1",
        "log.retention.ms": "-1",
    }
)


class DynamicConfigTexts(NamedTuple):
    """Texts in the two znodes: of this broker, and of all brokers."""

    broker: Mapping[str, str]
    cluster: Mapping[str, str]

    def usable(self) -> DynamicConfigTexts:
        """Return the usable settings.

        If a value that topics inherit is invalid, settings that keep all records of the topics are added.
        """
        parts = ({name: text for name, text in part.items() if _is_usable(name, text)} for part in self)
        broker, cluster = parts
        if any(name in _INHERITED and _invalid_reason(name, text) for part in self for name, text in part.items()):
            broker = {**broker, **KEEPS_ALL}
        return DynamicConfigTexts(broker, cluster)

    def unusable(self) -> list[str]:
        """Return a sentence for each value that is not used."""
        problems = []
        for part in self:
            for name, text in part.items():
                reason = _invalid_reason(name, text)
                if reason is not None:
                    kept = "; no records of topics that inherit it are deleted until it is corrected"
                    problems.append(f"{reason}{kept if name in _INHERITED else ''}")
                elif not _is_usable(name, text):
                    problems.append(f"{name} cannot be updated dynamically")
        return sorted(problems)

    def without_certificates(self) -> DynamicConfigTexts:
        """Return all settings except per-broker ones, which may name deleted files."""
        own = {name: text for name, text in self.broker.items() if name in BROKER_KEYS and not _is_per_broker(name)}
        return DynamicConfigTexts(own, self.cluster)

    def with_certificates_of(self, other: DynamicConfigTexts) -> DynamicConfigTexts:
        """Return these settings with the per-broker ones of another instance."""
        common = other.without_certificates().broker
        certificates = {name: text for name, text in other.broker.items() if name not in common}
        return DynamicConfigTexts({**self.without_certificates().broker, **certificates}, self.cluster)


def altered_topic(configs: BrokerConfigs, texts: Mapping[str, str], edit: ConfigEdit) -> dict[str, str]:
    """Return a topic's configuration after the edit; raise Refused(INVALID_CONFIG) if it is invalid."""
    after = edit.applied(texts, TOPIC_KEYS.get)
    configs.check_topic(after)
    return after


def altered_broker(
    configs: BrokerConfigs, dynamic: DynamicConfigTexts, edit: ConfigEdit, *, for_all: bool
) -> tuple[DynamicConfigTexts, BrokerConfigs]:
    """Return the dynamic configuration after an edit of one of its two parts, and the broker's with it.

    Raises Refused: INVALID_REQUEST, or INVALID_CONFIG for an operation that the key does not support.
    """
    before = dynamic.cluster if for_all else dynamic.broker
    texts = edit.applied(before, broker_key)
    changed = {name: text for name, text in texts.items() if before.get(name) != text}
    after = dynamic._replace(cluster=texts) if for_all else dynamic._replace(broker=texts)
    try:
        _check_names(changed, for_all=for_all)
        for name, text in changed.items():
            known_key(name).parse(text)
        result = configs.with_dynamic(*after.usable())
        _check_values(configs, result)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
    return after, result


def started_with(configs: BrokerConfigs, dynamic: DynamicConfigTexts) -> tuple[BrokerConfigs, list[str]]:
    """Return a starting broker's configuration, and a sentence for each unused dynamic setting."""
    unusable = dynamic.unusable()
    problems = [f"ignored invalid dynamic configuration: {sentence}" for sentence in unusable]
    try:
        return configs.with_dynamic(*dynamic.usable()), problems
    except ConfigError as error:  # Each is valid alone; not all together.
        return configs, [*problems, f"ignored the dynamic configuration: {error}"]


def _invalid_reason(name: str, text: str) -> str | None:
    try:
        known_key(name).parse(text)
    except ConfigError as error:
        return str(error)
    return None


def _is_usable(name: str, text: str) -> bool:
    return _invalid_reason(name, text) is None and known_key(name).mode is not READ_ONLY and name not in AT_START


def _is_per_broker(name: str) -> bool:
    return known_key(name).mode is PER_BROKER


def _check_names(names: Mapping[str, str], *, for_all: bool) -> None:
    modes = {name: known_key(name).mode for name in names}
    fixed = [name for name, mode in modes.items() if mode is READ_ONLY]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    bare = [name for name in names if name in PER_LISTENER]
    if bare:
        text = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise ConfigError(f"{text}: [{', '.join(bare)}]")
    own = [name for name, mode in modes.items() if mode is PER_BROKER]
    if for_all and own:
        text = "Cannot update these configs at default cluster level, broker id must be specified"
        raise ConfigError(f"{text}: [{', '.join(own)}]")
    at_start = [name for name in names if name in AT_START]
    if at_start:
        text = "cannot be changed while the broker runs: set it in server.properties and restart the broker"
        raise ConfigError(f"{', '.join(at_start)} {text}.")


def _check_values(before: BrokerConfigs, after: BrokerConfigs) -> None:
    """Raise ConfigError for valid values that conflict with each other, or with the earlier ones."""
    for problem in _problems(before, after):
        raise ConfigError(problem)


def _problems(before: BrokerConfigs, after: BrokerConfigs) -> Iterator[str]:
    def is_new(*names: str) -> bool:
        return any(before.value(name) != after.value(name) for name in names)

    for name in THREADS:
        old, new = before.int(name), after.int(name)
        failed = f"Dynamic thread count update validation failed for {name}={new}, value should"
        if new > 2 * old:
            yield f"{failed} not be greater than double the current value {old}"
        if new < old // 2:
            yield f"{failed} be at least half the current value {old}"
    if is_new("log.retention.ms") and after.optional_int("log.retention.ms") == 0:
        yield "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    size, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    if is_new(size, threads) and after.int(size) < MIB * max(after.int(threads), 1):
        yield f"{size} must be at least 1MB per cleaner thread."
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if is_new(limit, overrides) and after.int(limit) == 0 and not after.str(overrides):
        yield f"{limit} can be set to zero only if {overrides} property is set."
    pairs = [pair.rpartition(":") for pair in after.str(overrides).split(",")] if after.str(overrides) else []
    if is_new(overrides) and not all(host.strip() and count.strip().isdecimal() for host, _, count in pairs):
        yield f"{overrides} must be a list of host:count pairs."
