"""Configuration changes at run time: operations on keys, and Kafka's rules for the result."""

from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.config_validation import DynamicConfigTexts, altered_broker, altered_topic, started_with
from odradek.core.configs.definition import ConfigSource
from odradek.core.configs.edits import ConfigEdit, KeyEdit, Operation
from odradek.core.configs.topic_keys import TOPIC_KEYS

SET, DELETE, APPEND, SUBTRACT = Operation
POLICY = "cleanup.policy"
THROTTLED = "leader.replication.throttled.replicas"
STATIC = BrokerConfigs.parse({"log.retention.hours": "5"})
NOTHING = DynamicConfigTexts({}, {})


def edit(*keys: tuple[str, Operation, str], replaces_all: bool = False) -> ConfigEdit:
    return ConfigEdit(tuple(KeyEdit(*key) for key in keys), replaces_all)


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        (None, (POLICY, SET, "compact"), "compact"),
        ("compact", (POLICY, DELETE, ""), None),
        (None, (POLICY, DELETE, ""), None),
        (None, (POLICY, APPEND, "compact"), "delete,compact"),
        ("compact", (POLICY, APPEND, "compact"), "compact"),
        ("compact", (POLICY, APPEND, "compact, delete"), "compact, delete"),
        ("", (POLICY, APPEND, "compact"), "compact"),
        ("compact,delete", (POLICY, SUBTRACT, "compact"), "delete"),
        ("compact", (POLICY, SUBTRACT, "delete"), "compact"),
        ("compact", (POLICY, SUBTRACT, "compact"), ""),
        (None, (POLICY, SUBTRACT, "delete"), ""),
        (" compact , delete ", (POLICY, SUBTRACT, "compact"), " compact , delete "),
        (None, (THROTTLED, APPEND, "0:1,"), "0:1"),
        (None, (THROTTLED, SUBTRACT, "0:1"), ""),
        ("0:1,", (THROTTLED, APPEND, "1:1"), "0:1,1:1"),
        ("0:1,0:1", (THROTTLED, APPEND, "1:1"), "0:1,0:1,1:1"),
        ("0:1,0:1", (THROTTLED, SUBTRACT, "0:1"), "0:1"),
        ("0:1", (THROTTLED, APPEND, "1:1,1:1"), "0:1,1:1"),
        ("0:1", (THROTTLED, APPEND, ""), "0:1,"),
        ("0:1", (THROTTLED, SUBTRACT, "0:1,"), ""),
        ("0:1,1:1", (THROTTLED, SUBTRACT, " 0:1 "), "0:1,1:1"),
        ("0:1, 1:1", (THROTTLED, APPEND, "1:1"), "0:1, 1:1,1:1"),
    ],
)
def test_operation_changes_one_key(before: str | None, key: tuple[str, Operation, str], after: str | None) -> None:
    texts = {} if before is None else {key[0]: before}
    assert edit(key).applied(texts, TOPIC_KEYS.get).get(key[0]) == after


def test_other_keys_are_kept_unless_all_are_replaced() -> None:
    texts, key = {"retention.ms": "1", "segment.ms": "2"}, ("segment.ms", SET, "3")
    assert altered_topic(STATIC, texts, edit(key)) == {"retention.ms": "1", "segment.ms": "3"}
    assert altered_topic(STATIC, texts, edit(key, replaces_all=True)) == {"segment.ms": "3"}
    assert texts == {"retention.ms": "1", "segment.ms": "2"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
def test_append_requires_a_list_key(operation: Operation, name: str) -> None:
    with pytest.raises(Refused, match="its type is not LIST") as refused:
        altered_topic(STATIC, {}, edit((name, operation, "1")))
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "keys",
    [
        [("no.such", SET, "1")],
        [("num.partitions", SET, "1")],
        [("retention.ms", SET, "soon")],
        [("segment.bytes", SET, "1")],
        [(POLICY, APPEND, "burn")],
        [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")],
    ],
)
def test_invalid_topic_configuration_is_refused(keys: list[tuple[str, Operation, str]]) -> None:
    with pytest.raises(Refused) as refused:
        altered_topic(STATIC, {}, edit(*keys))
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_unknown_key_can_be_deleted() -> None:
    assert altered_topic(STATIC, {"no.such": "1"}, edit(("no.such", DELETE, ""))) == {}


def _altered(
    *keys: tuple[str, Operation, str], for_all: bool = False, before: DynamicConfigTexts = NOTHING
) -> BrokerConfigs:
    return altered_broker(STATIC, before, edit(*keys), for_all=for_all)[1]


REFUSED_OF_BROKERS: dict[str, tuple[str, bool]] = {
    "num.partitions=2": (r"Cannot update these configs dynamically: \[num.partitions\]", False),
    "log.retention.hours=2": (r"Cannot update these configs dynamically", True),
    "listener.name.x.num.partitions=2": (r"Cannot update these configs dynamically", False),
    "ssl.keystore.location=/x": ("only per-listener using the listener prefix", False),
    "ssl.truststore.password=x": ("only per-listener using the listener prefix", True),
    "listener.name.x.ssl.keystore.location=/x": ("default cluster level, broker id must be specified", True),
    "ssl.client.auth=none": ("default cluster level, broker id must be specified", True),
    "listeners=PLAINTEXT://:9": ("restart the broker", False),
    "advertised.listeners=PLAINTEXT://x:9": ("Cannot update these configs dynamically", False),
    "no.such=1": ("Unknown configuration key 'no.such'", False),
    "log.retention.msx=1": ("Did you mean 'log.retention.ms'", True),
    "log.cleaner.threads=soon": ("Not a number of type INT", False),
    "log.cleaner.threads=-1": ("Value must be at least 0", False),
    "num.io.threads=17": ("not be greater than double the current value 8", False),
    "num.io.threads=3": ("at least half the current value 8", False),
    "log.retention.ms=0": ("must be unlimited", True),
    "log.cleaner.dedupe.buffer.size=1048575": ("at least 1MB per cleaner thread", False),
    "max.connections.per.ip=0": ("can be set to zero only if", False),
    "max.connections.per.ip.overrides=localhost:many": ("host:count", False),
    "log.cleaner.max.compaction.lag.ms=1,log.cleaner.min.compaction.lag.ms=2": ("conflict", True),
}


@pytest.mark.parametrize("text", REFUSED_OF_BROKERS)
def test_invalid_broker_configuration_is_refused(text: str) -> None:
    sentence, for_all = REFUSED_OF_BROKERS[text]
    keys = [pair.partition("=") for pair in text.split(",")]
    with pytest.raises(Refused, match=sentence) as refused:
        _altered(*((name, SET, value) for name, _, value in keys), for_all=for_all)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value", "for_all"),
    [
        ("num.io.threads", "16", False),
        ("num.io.threads", "4", False),
        ("log.retention.ms", "-1", True),
        ("message.max.bytes", "5", False),
        ("listener.name.x.ssl.keystore.location", "/x", False),
        ("max.connections", "5", True),
        ("max.connections.per.ip.overrides", "localhost:5, 127.0.0.1:7", True),
        ("leader.replication.throttled.rate", "5", False),
        ("sasl.jaas.config", "x", False),
    ],
)
def test_valid_broker_configuration_is_applied(name: str, value: str, for_all: bool) -> None:
    assert _altered((name, SET, value), for_all=for_all).is_set(name)


def test_most_specific_configuration_has_precedence() -> None:
    name = "log.retention.ms"
    for_all, configs = altered_broker(STATIC, NOTHING, edit((name, SET, "3000")), for_all=True)
    assert configs.for_topic({}).retention_ms == 3000
    both, configs = altered_broker(STATIC, for_all, edit((name, SET, "2000")), for_all=False)
    assert configs.for_topic({}).retention_ms == 2000
    assert configs.for_topic({"retention.ms": "1000"}).retention_ms == 1000
    (entry,) = configs.for_topic({}).describe(["retention.ms"])
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (name, "2000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        (name, "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "5", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG
    assert [(one.name, one.value, one.source) for one in configs.describe_for_all()] == [
        (name, "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]
    _, configs = altered_broker(STATIC, both, edit((name, DELETE, "")), for_all=False)
    assert configs.for_topic({}).retention_ms == 3000


def test_shared_configs_show_the_new_values() -> None:
    configs = BrokerConfigs.parse({})
    before = configs.for_topic({})
    configs.replace_values(altered_broker(configs, NOTHING, edit(("message.max.bytes", SET, "5")), for_all=True)[1])
    assert configs.int("message.max.bytes") == 5
    assert configs.for_topic({}).max_message_bytes == 5
    assert before.max_message_bytes == 1_048_588
    (entry,) = configs.for_topic({}).describe(["max.message.bytes"])
    assert entry.value == "5"


def test_secret_is_absent_from_described_configs() -> None:
    configs = _altered(("listener.name.x.ssl.keystore.password", SET, "hush"))
    assert "hush" not in repr(configs.describe())


def test_broker_starts_with_the_valid_stored_values() -> None:
    texts = {"log.retention.ms": "7", "no.such": "1", "num.partitions": "9", "log.cleaner.threads": "many"}
    configs, problems = started_with(STATIC, DynamicConfigTexts({}, texts))
    assert (configs.int("log.retention.ms"), configs.int("num.partitions")) == (7, 1)
    unused = "ignored invalid dynamic configuration:"
    assert problems == [
        f"{unused} Invalid value many for configuration log.cleaner.threads: Not a number of type INT",
        f"{unused} Unknown configuration key 'no.such'.",
        f"{unused} num.partitions cannot be updated dynamically",
    ]
    assert configs.for_topic({}).retention_ms == 7


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    "name", ["log.retention.ms", "log.retention.bytes", "log.cleanup.policy", "log.cleaner.min.compaction.lag.ms"]
)
def test_invalid_stored_retention_deletes_nothing(name: str, is_own: bool) -> None:
    part = {name: "seven", "message.max.bytes": "5"}
    static = BrokerConfigs.parse({"log.retention.hours": "5", "log.cleanup.policy": "compact"})
    configs, problems = started_with(static, DynamicConfigTexts(part, {}) if is_own else DynamicConfigTexts({}, part))
    topic = configs.for_topic({})
    assert (topic.retention_ms, topic.retention_bytes, topic.cleanup_policy) == (-1, -1, ("delete",))
    assert topic.min_compaction_lag_ms == INT64_MAX
    assert topic.max_message_bytes == 5
    (problem,) = problems
    assert f"Invalid value seven for configuration {name}" in problem
    assert "no records of topics that inherit it are deleted until it is corrected" in problem


def test_deleted_dynamic_value_shows_the_static_source_again() -> None:
    """The unit of the static key does not matter: a value in hours was once shown as a default."""
    name = "log.retention.ms"
    dynamic, _ = altered_broker(STATIC, NOTHING, edit((name, SET, "3000")), for_all=True)
    _, configs = altered_broker(STATIC, dynamic, edit((name, DELETE, "")), for_all=True)
    (entry,) = configs.for_topic({}).describe(["retention.ms"])
    assert (entry.value, entry.source) == ("18000000", ConfigSource.STATIC_BROKER_CONFIG)
    (entry,) = BrokerConfigs.parse({}).for_topic({}).describe(["retention.ms"])
    assert (entry.source, entry.synonyms) == (ConfigSource.DEFAULT_CONFIG, ())


def test_broker_starts_without_conflicting_stored_values() -> None:
    lags = {"log.cleaner.max.compaction.lag.ms": "1", "log.cleaner.min.compaction.lag.ms": "2"}
    configs, (problem,) = started_with(STATIC, DynamicConfigTexts({}, lags))
    assert not configs.is_set("log.cleaner.max.compaction.lag.ms")
    assert "conflict" in problem


def test_invalid_stored_values_do_not_block_other_changes() -> None:
    before = DynamicConfigTexts({"no.such": "1", "num.partitions": "9"}, {})
    after, configs = altered_broker(STATIC, before, edit(("log.retention.ms", SET, "7")), for_all=False)
    assert after.broker == {**before.broker, "log.retention.ms": "7"}
    assert (configs.int("log.retention.ms"), configs.int("num.partitions")) == (7, 1)
