"""Generator of docs/CONFIGURATION.md from the tables of configuration keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.core.configs.broker_keys import BROKER_KEYS
from odradek.core.configs.definition import ConfigKey, to_text
from odradek.core.configs.docs import DOCS
from odradek.core.configs.topic_keys import TOPIC_KEYS, TOPIC_SYNONYMS

# Every other topic key has an effect if the broker's key for the same setting has one.
_TOPIC_ONLY = frozenset({"flush.messages", "flush.ms", "internal.segment.bytes"})

_HEAD = """\
# Configuration

Made by `python -m odradek.app.config.server_config`; do not edit.

A broker takes the names of Apache Kafka, from a properties file and from `--override key=value`:

    odradek serve server.properties --override num.partitions=4

Every name of Kafka 0.7 to 4.x is known and its value checked. What is wrong is told all at once and stops the start: a
value that can't be, keys that contradict each other, a key under the name that it had in an earlier release, a topic's
key, and a name that is a typing error of a key. Any other name that is no key, such as a vendor's (`confluent.*`), is
ignored and named in a warning at start. The keys below change something here; any other that is set is named in a
warning at start.
"""

_METRICS = """\

## Not of Kafka

| key | type | default | |
|---|---|---|---|
| `metrics.listener` | host:port | | Where Prometheus finds the metrics ([OPERATIONS.md](OPERATIONS.md)); \
where not set, nowhere. Another address than a loopback one needs `--insecure`. |"""

_COMPACTION = """\

## Compaction

With `compact` in `cleanup.policy` the last record of each key stays, in its place, and a record must have a key. A log
is compacted when more than `min.cleanable.dirty.ratio` of it was not before, or when something in it is older than
`max.compaction.lag.ms`; never its newest segment, an open transaction, or what is younger than `min.compaction.lag.ms`.
A record without a value deletes its key, and goes itself after `delete.retention.ms`. With `compact,delete` old
segments are deleted by retention too. How it works: [ARCHITECTURE.md](ARCHITECTURE.md#compaction); what to look at:
[OPERATIONS.md](OPERATIONS.md#compaction).
"""

_DURABILITY = """\

## When an acknowledged record is on disk

A partition with one replica has no other copy to lean on, so an `acks=all` request is answered after the data is
synced to disk; one sync serves everything that waits. Whoever sets `log.flush.interval.messages`,
`log.flush.interval.ms` (or `flush.messages`, `flush.ms` on a topic) has said when to sync, and answers no longer wait.
"""


def markdown(effective: Collection[str], defaults: Mapping[str, str]) -> str:
    broker = [key for name, key in sorted(BROKER_KEYS.items()) if name in effective]
    topic = [key for key in TOPIC_KEYS.values() if _is_effective(key.name, effective)]
    return "\n".join(
        [
            _HEAD,
            "## Broker",
            "",
            *_table(broker, defaults),
            "",
            "## Topic",
            "",
            "Set when a topic is made or altered; where a topic sets nothing, the broker's key counts.",
            "",
            *_table(topic, {}),
            _METRICS,
            _COMPACTION,
            _DURABILITY,
        ]
    )


def _is_effective(name: str, effective: Collection[str]) -> bool:
    return name in _TOPIC_ONLY or any(synonym in effective for synonym in TOPIC_SYNONYMS.get(name, ()))


def _table(keys: list[ConfigKey], defaults: Mapping[str, str]) -> list[str]:
    rows = ["| key | type | default | allowed | |", "|---|---|---|---|---|"]
    for key in keys:
        default = defaults.get(key.name, to_text(key.default))
        rule = key.rule.text if key.rule is not None else ""
        cells = [f"`{key.name}`", key.type.name.lower(), default or "", rule, DOCS[key.name]]
        rows.append("| " + " | ".join(cells) + " |")
    return rows
