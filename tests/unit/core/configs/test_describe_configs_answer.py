"""DescribeConfigs responses, compared key by key with those of Apache Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigEntry

GOLDEN = Path(__file__).parents[3] / "protocol" / "describe_configs_4.4.0.tsv"
# The configuration of the broker that gave the responses.
STATIC = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "kafka-data",
    "num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.hours": "100",
    "log.roll.ms": "7200000",
    "compression.type": "lz4",
    "log.cleanup.policy": "compact,delete",
    "log.flush.interval.ms": "5000",
    "sasl.jaas.config": "secret",
    "log.cleaner.min.cleanable.ratio": "1e-4",
    "log.preallocate": "TRUE",
}
OVERRIDES = {
    "retention.ms": "+1000",
    "compression.type": " zstd ",
    "min.cleanable.dirty.ratio": "2e-5",
    "segment.jitter.ms": "7",
}
DIFFERENT = {
    "node.id": "Required by Kafka 4, so without a default to show.",
    "process.roles": "Required by Kafka 4, so without a default to show.",
    "group.consumer.migration.policy": "Internal since 4.4.",
    "retention.ms": "Kafka tells of a default where log.retention.hours is set.",
    "min.insync.replicas": "Kafka 4 writes it into the cluster's dynamic configuration (KIP-966).",
}


def golden(resource: str) -> dict[str, list[str]]:
    lines = (line.split("\t") for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    return {line[1]: line[2:] for line in lines if line[0] == resource}


def row(entry: ConfigEntry) -> list[str]:
    def text(value: str | None) -> str:
        return r"\N" if value is None else value

    return [
        text(entry.value),
        str(entry.source.value),
        str(entry.type_code.value),
        str(entry.read_only).lower(),
        str(entry.sensitive).lower(),
        ";".join(f"{synonym.name}={text(synonym.value)}:{synonym.source.value}" for synonym in entry.synonyms),
    ]


def answers(resource: str) -> dict[str, list[str]]:
    broker = BrokerConfigs.parse(STATIC)
    if resource == "broker":
        return {entry.name: row(entry) for entry in broker.describe()}
    overrides = OVERRIDES if resource == "topic-with-overrides" else {}
    return {entry.name: row(entry) for entry in broker.for_topic(overrides).describe()}


@pytest.mark.parametrize("resource", ["broker", "topic", "topic-with-overrides"])
def test_described_configs_match_kafkas_response(resource: str) -> None:
    ours, theirs = answers(resource), golden(resource)
    wrong = {name: (ours.get(name), row) for name, row in theirs.items() if ours.get(name) != row}
    assert len(theirs) > 30
    assert set(wrong) <= set(DIFFERENT), wrong


def test_secret_is_never_described() -> None:
    entries = BrokerConfigs.parse(
        {"ssl.key.password": "hunter2", "config.providers.vault.param.token": "s3"}
    ).describe()
    by_name = {entry.name: entry for entry in entries}
    assert "hunter2" not in repr(entries)
    assert "s3" not in repr(entries)
    assert by_name["ssl.key.password"].sensitive
    assert by_name["config.providers.vault.param.token"].sensitive


def test_only_requested_keys_are_described() -> None:
    broker = BrokerConfigs.parse({})
    assert [entry.name for entry in broker.describe(["num.partitions", "nope"])] == ["num.partitions"]
    assert [entry.name for entry in broker.for_topic({}).describe(["segment.ms", "nope"])] == ["segment.ms"]


def test_listener_secret_is_described_as_sensitive() -> None:
    broker = BrokerConfigs.parse({"listener.name.outside.scram-sha-256.sasl.jaas.config": "secret"})
    entry = next(entry for entry in broker.describe() if entry.name.startswith("listener.name."))
    assert (entry.value, entry.sensitive) == (None, True)


def test_dynamic_configuration_precedes_static_configuration() -> None:
    broker = BrokerConfigs.parse({"log.retention.hours": "100"}).with_dynamic(
        {"log.retention.ms": "5000"}, {"log.retention.ms": "6000", "log.segment.bytes": "2000000"}
    )
    by_name = {entry.name: entry for entry in broker.for_topic({}).describe()}
    # Seen at 4.3.0 after the same changes.
    assert row(by_name["retention.ms"])[:2] == ["5000", "2"]
    assert row(by_name["retention.ms"])[5] == (
        "log.retention.ms=5000:2;log.retention.ms=6000:3;log.retention.hours=100:4;log.retention.hours=168:5"
    )
    assert row(by_name["segment.bytes"])[5] == "log.segment.bytes=2000000:3;log.segment.bytes=1073741824:5"
