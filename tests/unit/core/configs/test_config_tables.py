"""Configuration keys compared with every row of Kafka's tables (0.11, 3.9, trunk); the newest release is decisive."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from odradek.core.configs.broker_keys import BROKER_KEYS, DYNAMIC_ONLY, ZOOKEEPER_USER_KEYS
from odradek.core.configs.definition import ConfigKey, ConfigType, to_text
from odradek.core.configs.docs import DOCS
from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS

TABLE = Path(__file__).parents[3] / "protocol" / "configs.tsv"
ERAS = ("trunk", "3.9", "0.11")
# Update modes changed since 3.9, the release of the table; seen at a broker of 4.4.0 (describe_configs_4.4.0.tsv).
MODE_CHANGED = {
    "advertised.listeners",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
}
# Keys newer than the table, and our own.
EXTRA_KEYS = {"max.decompressed.message.bytes", "odradek.record.validation"}
Row = dict[str, str]


def rows(*scopes: str) -> list[Row]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    table = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [row for row in table if row["scope"] in scopes]


def newest(row: Row) -> str:
    return next(era for era in ERAS if row[f"default_{era}"] != "-")


def resolved(row: Row, column: str) -> str:
    text = row[f"{column}_{newest(row)}"]
    return row[f"{column}_3.9"] if text == "=" else text


def expected_type(row: Row) -> str:
    match = re.match(r"type=(\w+)", resolved(row, "valid"))
    return match[1] if match else row["type"]


def expected_rule(row: Row) -> str:
    rule = re.sub(r"^type=\w+ ?", "", resolved(row, "valid")) or "-"
    return "-" if rule.startswith("The default value of -1") else rule


def expected_default(row: Row) -> str:
    default = resolved(row, "default")
    # Required keys are not required here, so they have the default of an older release, or none.
    default = row["default_3.9"] if default == "<required>" else default
    return {"<required>": "null", "<jvm default>": "null", "-": "null", '""': "", "[]": ""}.get(default, default)


def shown_default(key: ConfigKey) -> str:
    text = to_text(key.default)
    return "null" if text is None else text


def as_number(text: str) -> str:
    """Return one spelling of a double: the table has two."""
    return str(float(text))


BROKER_ROWS = rows("broker", "broker-dynamic-only")
TOPIC_ROWS = rows("topic")


@pytest.mark.parametrize(
    "row", BROKER_ROWS + TOPIC_ROWS, ids=[f"{row['scope']}:{row['name']}" for row in BROKER_ROWS + TOPIC_ROWS]
)
def test_key_matches_its_row_in_kafkas_table(row: Row) -> None:
    key = (TOPIC_KEYS if row["scope"] == "topic" else BROKER_KEYS)[row["name"]]
    assert key.type.name == expected_type(row)
    assert (key.rule.text if key.rule else "-") == expected_rule(row)
    default = expected_default(row).strip("[]") if key.type is ConfigType.LIST else expected_default(row)
    if key.type is ConfigType.DOUBLE:
        assert as_number(shown_default(key)) == as_number(default)
    else:
        assert shown_default(key) == default
    assert key.importance.value == row["importance"]
    assert key.internal == (row["internal"] == "internal")
    assert key.retired == (newest(row) != "trunk")


@pytest.mark.parametrize("row", BROKER_ROWS, ids=[row["name"] for row in BROKER_ROWS])
def test_update_mode_matches_kafkas_table(row: Row) -> None:
    mode = {"dynamic": "cluster-wide"}.get(row["update_mode_3.9"], row["update_mode_3.9"])
    if mode != "-" and row["name"] not in MODE_CHANGED:
        assert BROKER_KEYS[row["name"]].mode.value == mode


def test_few_keys_are_not_in_the_table() -> None:
    authorizers = {"super.users", "allow.everyone.if.no.acl.found"}
    users = {key.name for key in ZOOKEEPER_USER_KEYS}
    assert set(BROKER_KEYS) - authorizers - users - EXTRA_KEYS == {row["name"] for row in BROKER_ROWS}
    assert set(TOPIC_KEYS) - EXTRA_KEYS == {row["name"] for row in TOPIC_ROWS}
    assert {row["name"] for row in rows("broker-dynamic-only")} == DYNAMIC_ONLY


def test_topic_key_synonyms_match_kafkas_table() -> None:
    table = {row["name"]: tuple(row["broker_synonyms"].split(",")) for row in TOPIC_ROWS}
    known = {name: names for name, names in table.items() if names != ("-",)}
    assert known | {name: (name,) for name in EXTRA_KEYS} == TOPIC_SYNONYMS


def test_defaults_satisfy_their_rules() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        text = to_text(key.default)
        if text and key.name != "node.id":  # Required by Kafka 4; -1 stands for a generated one.
            assert key.parse(text) == key.default, key.name


def test_documented_keys_are_exactly_the_known_keys() -> None:
    assert set(TOPIC_KEYS) - {"errors.deadletterqueue.group.enable"} <= set(DOCS)
    extra = set(DOCS) - set(TOPIC_KEYS) - set(BROKER_KEYS)
    assert not extra, extra
