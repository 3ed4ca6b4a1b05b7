"""Effective topic configurations; the error messages are those of Apache Kafka 4.3.0."""

from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import DAY_MS, HOUR_MS, INT64_MAX
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError, ConfigSource
from odradek.core.configs.topic_configs import invalid_overrides_message
from odradek.core.partition.storage import log_config

PLAIN = BrokerConfigs.parse({})

REPLICAS = (
    "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)
LISTS_WITH_GAPS = ("compact,", ",compact", "compact,,delete", ",")
REFUSED: list[tuple[dict[str, str | None], str]] = [
    ({"nope": "1"}, "Unknown topic config name: nope"),
    ({"retention.ms": "x", "nope": "2"}, "Unknown topic config name: nope"),
    ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
    ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ({"segment.bytes": "10"}, "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576"),
    (
        {"cleanup.policy": "foo"},
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        {"compression.type": "GZIP"},
        "Invalid value GZIP for configuration compression.type: "
        "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        {"compression.gzip.level": "0"},
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        {"min.cleanable.dirty.ratio": "2"},
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    ),
    (
        {"leader.replication.throttled.replicas": "*,*"},
        f"Invalid value [*, *] for configuration leader.replication.throttled.replicas: {REPLICAS}",
    ),
    *(
        ({"cleanup.policy": text}, "Configuration 'cleanup.policy' values must not be empty.")
        for text in LISTS_WITH_GAPS
    ),
    (
        {"leader.replication.throttled.replicas": "0:x"},
        f"Invalid value [0:x] for configuration leader.replication.throttled.replicas: {REPLICAS}",
    ),
    (
        {"internal.segment.bytes": "-5"},
        "Invalid value -5 for configuration internal.segment.bytes: Value must be at least 14",
    ),
    (
        {"remote.storage.enable": "true"},
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
]
ACCEPTED: list[dict[str, str | None]] = [
    {},
    {"cleanup.policy": ""},
    {"cleanup.policy": " compact , delete"},
    {"retention.bytes": "-5"},
    {"leader.replication.throttled.replicas": "*"},
    {"leader.replication.throttled.replicas": "0:1,1:2"},
    *({"leader.replication.throttled.replicas": text} for text in ("0:1,", ",0:1", "0:1,,1:1", ",", "", "*,")),
    *({"cleanup.policy": text} for text in ("", "compact,compact", " compact , delete ")),
    {"internal.segment.bytes": "1000"},
    {"remote.log.delete.on.disable": "true"},
    {"message.format.version": "2.8-IV1"},  # Kafka 3.9 accepts it, 4 does not.
]


@pytest.mark.parametrize(("overrides", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_invalid_topic_override_is_refused_with_kafkas_message(overrides: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        PLAIN.check_topic(overrides)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.detail == sentence


@pytest.mark.parametrize("overrides", ACCEPTED, ids=str)
def test_valid_topic_override_is_accepted(overrides: dict[str, str | None]) -> None:
    PLAIN.check_topic(overrides)


def test_topic_defaults_match_kafka() -> None:
    topic = PLAIN.for_topic({})
    assert topic.retention_ms == 7 * DAY_MS
    assert topic.segment_bytes == 1 << 30
    assert topic.cleanup_policy == ("delete",)
    assert topic.message_timestamp_after_max_ms == HOUR_MS
    assert topic.flush.messages == topic.flush.ms == INT64_MAX
    assert not topic.is_log_append_time


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "30"}, HOUR_MS // 2),
        ({"log.retention.minutes": "30", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_finest_time_unit_has_precedence(static: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfigs.parse(static).for_topic({}).retention_ms == retention_ms
    assert BrokerConfigs.parse(static).for_topic({"retention.ms": "1"}).retention_ms == 1


@pytest.mark.parametrize(
    ("static", "overrides", "waits"),
    [
        ({}, {}, True),
        ({}, {"flush.ms": "1000"}, False),
        ({}, {"flush.messages": str(INT64_MAX)}, False),  # Set explicitly, though it is the default.
        ({"log.flush.interval.messages": "10000"}, {}, False),
        ({"log.flush.interval.ms": "1000"}, {}, False),
        ({"log.flush.offset.checkpoint.interval.ms": "1000"}, {}, True),
    ],
)
def test_responses_wait_for_the_disk_unless_flushing_is_configured(
    static: dict[str, str], overrides: dict[str, str], waits: bool
) -> None:
    assert BrokerConfigs.parse(static).for_topic(overrides).flush.before_acknowledging is waits


def test_a_flush_is_due_by_count() -> None:
    flush = PLAIN.for_topic({"flush.messages": "3"}).flush
    assert not flush.is_due(2)
    assert flush.is_due(3)


def test_older_timestamp_bound_applies_where_the_newer_is_unset() -> None:
    topic = PLAIN.for_topic({"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "9"})
    assert (topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms) == (5, 9)


def test_internal_segment_bytes_allows_small_segments() -> None:
    assert PLAIN.for_topic({"internal.segment.bytes": "1000"}).segment_bytes == 1000
    assert PLAIN.for_topic({"internal.segment.bytes": "-1000"}).segment_bytes == 1 << 30


@pytest.mark.parametrize(
    ("static", "sentence"),
    [
        ({"log.roll.ms": "0"}, "Invalid value 0 for configuration log.roll.ms: Value must be at least 1"),
        (
            {"log.flush.interval.ms": "-1"},
            "Invalid value -1 for configuration log.flush.interval.ms: Value must be at least 0",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
    ],
    ids=range(3),
)
def test_broker_default_that_is_invalid_for_topics_is_refused(static: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfigs.parse(static)
    assert str(error.value) == sentence


def test_negative_retention_means_no_limit() -> None:
    topic = BrokerConfigs.parse({"log.retention.hours": "-7"}).for_topic({"retention.bytes": "-5"})
    assert (topic.retention_ms, topic.retention_bytes) == (-1, -1)


def test_invalid_stored_overrides_are_ignored() -> None:
    """A znode written by another broker must not prevent this one from starting."""
    topic = PLAIN.for_topic({"retention.ms": "x", "of.the.future": "1", "segment.ms": "7"})
    assert (topic.retention_ms, topic.segment_ms) == (7 * DAY_MS, 7)
    for text, size in (("2000", 2000), ("13", 1 << 30), ("1e3", 1 << 30), ("-5", 1 << 30), ("99999999999", 1 << 30)):
        assert PLAIN.for_topic({"segment.bytes": text}).segment_bytes == size  # Values of Kafka before 4.
    assert "of.the.future" not in {entry.name for entry in topic.describe()}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0:1,0:1", "0:1,0:1"), (" 0:1 , 1:1 ", "0:1,1:1"), ("0:1,", "0:1,"), (",0:1", ",0:1"), ("*,", "*,"), (" ", "")],
)
def test_throttled_replicas_are_shown_as_they_were_written(text: str, shown: str) -> None:
    name = "leader.replication.throttled.replicas"
    (entry,) = BrokerConfigs.parse({}).for_topic({name: text}).describe([name])
    assert entry.value == shown


@pytest.mark.parametrize(
    ("name", "text"),
    [("retention.ms", "seven"), ("retention.bytes", "1e9"), ("cleanup.policy", "keep"), ("segment.ms", "0")],
)
def test_invalid_stored_topic_retention_deletes_nothing(name: str, text: str) -> None:
    """The invalid value is shown, so that it can be repaired."""
    topic = BrokerConfigs.parse({"log.cleanup.policy": "compact,delete"}).for_topic({name: text, "flush.ms": "5"})
    logs = log_config(topic)
    assert not (logs.cleanup_delete or logs.cleanup_compact)
    assert topic.flush.ms == 5
    (entry,) = topic.describe([name])
    assert (entry.value, entry.source) == (text, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    message = invalid_overrides_message("seven", {name: text, "flush.ms": "5"}) or ""
    assert f"topic seven is not valid: Invalid value {text} for configuration {name}: " in message
    assert f"odradek topic config seven --delete {name}" in message
    assert "flush.ms" not in message


def test_overrides_stored_by_another_release_are_valid() -> None:
    stored = {"a.newer.key": "x", "segment.bytes": "1000"}
    assert invalid_overrides_message("t", stored) is None
    assert log_config(BrokerConfigs.parse({}).for_topic(stored)).cleanup_delete
