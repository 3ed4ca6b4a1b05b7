"""Configuration of one topic: its own settings over the broker's.

A topic key has synonyms among the broker's keys.  Overrides are kept as text, as they arrived and as they are stored in
the znode.  Refusals carry Kafka's messages, since tools show them to people and third-party tests compare them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import HOUR_MS, MINUTE_MS
from odradek.core.configs.definition import (
    ConfigEntry,
    ConfigError,
    ConfigKey,
    ConfigSource,
    Synonym,
    Value,
    invalid,
    to_text,
)
from odradek.core.configs.docs import DOCS
from odradek.core.configs.layers import LayeredConfigs
from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS
from odradek.core.configs.values import TypedValues

# Until Kafka 4, segment.bytes could be this small; internal.segment.bytes has no bound there, and needs one.
SEGMENT_BYTES_MIN = 14
_SMALL_DIGITS = 7  # Of less than Kafka 4's minimum, 1 MiB.


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Settings for syncing a log to disk.

    `before_acknowledging`: an acks=all answer waits until its records are synced if no other replica is in sync.  It is
    True unless the topic or the broker sets one of Kafka's flush settings, which then decide.
    """

    before_acknowledging: bool
    messages: int
    ms: int

    def is_due(self, unsynced_records: int) -> bool:
        return unsynced_records >= self.messages


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """Configuration of one topic.  Times in ms, sizes in bytes; -1 is no limit for retention.

    `is_valid` is False if a stored value is invalid.  Nothing of such a topic is deleted, by age, size or compaction,
    until the value is repaired: it may have been meant to keep all records.  `segment_bytes` is internal.segment.bytes
    if that is set: Kafka's own tests create small segments with it.
    """

    overrides: Mapping[str, str]
    flush: FlushPolicy
    cleanup_policy: tuple[str, ...]
    compression_type: str
    compression_gzip_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    index_interval_bytes: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    is_log_append_time: bool
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    validates_records: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]
    merged: MergedTopicConfigs
    is_valid: bool

    @classmethod
    def resolve(cls, broker: LayeredConfigs, overrides: Mapping[str, str]) -> TopicConfigs:
        """Resolve overrides; ignore unknown and invalid ones.

        Unchecked overrides may come from a znode that another broker wrote.
        """
        merged = MergedTopicConfigs(broker, _usable(overrides), overrides)
        return cls(
            overrides=overrides,
            flush=merged.flush_policy(),
            cleanup_policy=merged.list("cleanup.policy"),
            compression_type=merged.str("compression.type"),
            compression_gzip_level=merged.int("compression.gzip.level"),
            compression_zstd_level=merged.int("compression.zstd.level"),
            delete_retention_ms=merged.int("delete.retention.ms"),
            file_delete_delay_ms=merged.int("file.delete.delay.ms"),
            index_interval_bytes=merged.int("index.interval.bytes"),
            max_decompressed_message_bytes=merged.int("max.decompressed.message.bytes"),
            max_message_bytes=merged.int("max.message.bytes"),
            is_log_append_time=merged.str("message.timestamp.type") == "LogAppendTime",
            message_timestamp_before_max_ms=merged.timestamp_bound("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=merged.timestamp_bound("message.timestamp.after.max.ms"),
            min_cleanable_dirty_ratio=merged.float("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=merged.int("min.compaction.lag.ms"),
            max_compaction_lag_ms=merged.int("max.compaction.lag.ms"),
            min_insync_replicas=merged.int("min.insync.replicas"),
            preallocate=merged.bool("preallocate"),
            validates_records=merged.str("odradek.record.validation") == "records",
            # Any negative number means no limit.
            retention_bytes=max(-1, merged.int("retention.bytes")),
            retention_ms=max(-1, merged.int("retention.ms")),
            segment_bytes=merged.segment_bytes(),
            segment_index_bytes=merged.int("segment.index.bytes"),
            segment_jitter_ms=merged.int("segment.jitter.ms"),
            segment_ms=merged.int("segment.ms"),
            unclean_leader_election_enable=merged.bool("unclean.leader.election.enable"),
            leader_replication_throttled_replicas=merged.list("leader.replication.throttled.replicas"),
            follower_replication_throttled_replicas=merged.list("follower.replication.throttled.replicas"),
            merged=merged,
            is_valid=not invalid_values(overrides),
        )

    def describe(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Return a topic's entries for DescribeConfigs, by name, without unknown names, as in Kafka."""
        keys = TOPIC_KEYS.values()
        listed = (key for key in keys if key.name in self.overrides or not (key.internal or key.retired))
        return [self.merged.entry(key) for key in listed if names is None or key.name in names]


class MergedTopicConfigs(TypedValues):
    """Values of a topic: from its overrides, else from the broker's configuration, else from the table."""

    __slots__ = ("_broker", "_texts", "_values")

    def __init__(
        self, broker: LayeredConfigs, values: Mapping[str, Value], texts: Mapping[str, str] | None = None
    ) -> None:
        """Merge `values` over the broker's; `texts` are their source, including invalid ones."""
        self._broker = broker
        self._values = values
        self._texts = texts or {}

    def value(self, name: str) -> Value:
        if name in self._values:
            return self._values[name]
        _, value = _inherited(self._broker, name)
        return TOPIC_KEYS[name].default if value is None else value

    def overrides(self, name: str) -> bool:
        return name in self._values

    def is_set(self, name: str) -> bool:
        """Return whether the topic or the broker sets a value."""
        return name in self._values or any(map(self._broker.is_set, TOPIC_SYNONYMS[name]))

    def flush_policy(self) -> FlushPolicy:
        relaxed = self.is_set("flush.messages") or self.is_set("flush.ms")
        return FlushPolicy(not relaxed, self.int("flush.messages"), self.int("flush.ms"))

    def segment_bytes(self) -> int:
        small = self.optional_int("internal.segment.bytes")
        return self.int("segment.bytes") if small is None or small < SEGMENT_BYTES_MIN else small

    def timestamp_bound(self, name: str) -> int:
        # One older setting for both bounds, until KIP-937, applies where the newer ones are not set.
        older = "message.timestamp.difference.max.ms"
        return self.int(older if self.is_set(older) and not self.is_set(name) else name)

    def entry(self, key: ConfigKey) -> ConfigEntry:
        # CreateTopics returns 36 settings, nearly all of them inherited.  Describing them for each topic took half a
        # millisecond, so they are described once for all topics.
        inherited = self._broker.inherited.get(key.name)
        if inherited is None:
            inherited = self._broker.inherited[key.name] = self._inherited_entry(key)
        if key.name in self._values:
            value = to_text(self._values[key.name])
        elif key.name in self._texts:
            value = self._texts[key.name]  # Not effective, but shown, so that it can be repaired.
        else:
            return inherited
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        synonyms = (Synonym(key.name, value, source), *inherited.synonyms)
        return inherited._replace(value=value, source=source, synonyms=synonyms)

    def _inherited_entry(self, key: ConfigKey) -> ConfigEntry:
        """Return the DescribeConfigs entry of a key that the topic does not set."""
        _, value = _inherited(self._broker, key.name)
        # As in Kafka, synonyms that precede the topic key's own are left out: log.retention.ms and log.retention.hours
        # are never returned together.
        synonyms = self._broker.synonyms_set(TOPIC_SYNONYMS.get(key.name, ()), key.sensitive)
        return ConfigEntry(
            name=key.name,
            value=to_text(key.default if value is None else value),
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            read_only=False,
            sensitive=key.sensitive,
            synonyms=synonyms,
            type_code=key.type,
            documentation=DOCS.get(key.name),
        )


def _inherited(broker: LayeredConfigs, name: str) -> tuple[str, Value]:
    """Return the first broker key with a value for a topic key, and that value in the topic key's unit."""
    for synonym in TOPIC_SYNONYMS.get(name, ()):
        value = broker.optional_value(synonym)
        if value is not None:
            return synonym, _in_ms(synonym, value)
    return name, None


def _in_ms(name: str, value: Value) -> Value:
    unit = HOUR_MS if name.endswith(".hours") else MINUTE_MS if name.endswith(".minutes") else 0
    if not unit:
        return value
    assert isinstance(value, int)
    return value * unit if value >= 0 else -1


def check_topic(broker: LayeredConfigs, overrides: Mapping[str, str | None]) -> None:
    """Raise Refused(INVALID_CONFIG) for unknown names, invalid values, and contradictory values."""
    if not overrides:
        return  # check_defaults has validated the broker's values.
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise _refused(f"Null value not supported for topic configs: {','.join(nulls)}")
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise _refused(f"Unknown topic config name: {name}")
    try:
        values = {name: TOPIC_KEYS[name].parse(text) for name, text in overrides.items() if text is not None}
    except ConfigError as error:
        raise _refused(str(error)) from error
    _check_consistency(MergedTopicConfigs(broker, values))


def check_defaults(broker: LayeredConfigs) -> None:
    """Raise ConfigError if the broker's defaults for topics are not valid for a topic."""
    for name, key in TOPIC_KEYS.items():
        synonym, value = _inherited(broker, name)
        problem = key.rule.check(synonym, value) if key.rule is not None and value is not None else None
        if problem is not None:
            raise ConfigError(problem)
    try:
        _check_consistency(MergedTopicConfigs(broker, {}))
    except Refused as refused:
        raise ConfigError(refused.detail) from refused


def _check_consistency(merged: MergedTopicConfigs) -> None:
    low, high = merged.int("min.compaction.lag.ms"), merged.int("max.compaction.lag.ms")
    if low > high:
        raise _refused(f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})")
    small = merged.optional_int("internal.segment.bytes")
    if small is not None and small < SEGMENT_BYTES_MIN:
        raise _refused(invalid("internal.segment.bytes", str(small), f"Value must be at least {SEGMENT_BYTES_MIN}"))
    if merged.bool("remote.storage.enable"):
        reason = "Tiered Storage functionality is disabled in the broker."
        raise _refused(f"{reason} Topic cannot be configured with remote log storage.")


def _refused(detail: str) -> Refused:
    return Refused(ErrorCode.INVALID_CONFIG, detail)


def invalid_values(overrides: Mapping[str, str]) -> list[str]:
    """Return a sentence for each invalid stored value of a known topic key."""
    problems = []
    for name, text in overrides.items():
        try:
            key = TOPIC_KEYS.get(name)
            if key is not None:
                key.parse(text)
        except ConfigError as error:
            if name != "segment.bytes" or not _is_small(text):
                problems.append(str(error))
    return problems


def invalid_overrides_message(topic: str, overrides: Mapping[str, str]) -> str | None:
    """Return the log line for a topic with invalid stored values; None without any."""
    problems = invalid_values(overrides)
    if not problems:
        return None
    names = [name for name, text in overrides.items() if invalid_values({name: text})]
    advice = f"odradek topic config {topic} " + " ".join(f"--delete {name}" for name in names)
    return (
        f"The stored configuration of topic {topic} is not valid: {'; '.join(problems)}. "
        f"No records of the topic are deleted until it is corrected: {advice}, or --set a valid value."
    )


def _usable(overrides: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_KEYS[name].parse(text)
        except (KeyError, ConfigError):
            if name == "segment.bytes" and _is_small(text):
                values[name] = int(text)
    return values


def _is_small(text: str) -> bool:
    """Return whether the text is a size that only Kafka before 4 allows.

    Its followers append no batch that is larger than their segments.
    """
    return text.isascii() and text.isdecimal() and len(text) <= _SMALL_DIGITS and int(text) >= SEGMENT_BYTES_MIN
