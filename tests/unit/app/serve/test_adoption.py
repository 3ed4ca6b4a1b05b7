"""Adoption of topics whose logs another broker wrote: the resulting topics, and log messages about them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.app.serve.adoption import KEPT, NAMED_MAX, Adoption
from odradek.app.serve.kraft_topics import KnownTopic
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE, PartitionInfo
from odradek.core.partition.storage import FoundTopic
from odradek.log.files.disk import RealDisk

US = BrokerId(7)
OWN, OTHER, NEW = Uuid(b"o" * 16), Uuid(b"x" * 16), Uuid(b"n" * 16)
T, U = TopicName("t"), TopicName("u")


def read(folder: Path) -> Adoption:
    return Adoption.read(RealDisk(), [folder], BrokerConfigs.parse({}), US)


def found(*epochs: int, topic_id: Uuid | None = None, first: int = 0) -> FoundTopic:
    return FoundTopic(topic_id, {index: LeaderEpoch(epoch) for index, epoch in enumerate(epochs, first)})


def leader(epoch: int) -> PartitionInfo:
    return PartitionInfo(US, LeaderEpoch(epoch), (US,), (US,))


def known(configs: dict[str, str], *epochs: int) -> KnownTopic:
    return KnownTopic(OTHER, {index: LeaderEpoch(epoch) for index, epoch in enumerate(epochs)}, configs)


def test_topic_with_unknown_configs_retains_all_records(tmp_path: Path) -> None:
    (topic,) = read(tmp_path).topics({T: found(4, NO_EPOCH, topic_id=OWN)}, US, lambda: NEW)
    assert topic == (T, OWN, (leader(4), leader(0)), KEPT)
    configs = BrokerConfigs.parse({"log.cleanup.policy": "compact", "log.retention.bytes": "1"}).for_topic(
        topic.configs
    )
    assert (configs.cleanup_policy, configs.retention_ms, configs.retention_bytes) == (("delete",), -1, -1)
    (topic,) = read(tmp_path).topics({T: found(0)}, US, lambda: NEW)
    assert topic.id == NEW, "Kafka has given ids since 2.8"


def test_topic_compacted_by_kafka_is_not_compacted_further(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 77\n")
    topics = read(tmp_path).topics({T: found(0), U: found(0)}, US, lambda: NEW)
    assert [topic.configs for topic in topics] == [KEPT, KEPT]


def test_damaged_cleaner_checkpoint_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n9\nt 0 77\n")
    adoption, there = read(tmp_path), {T: found(0)}
    adoption.log_adopted(adoption.topics(there, US, lambda: NEW), there)
    assert "the configuration of these topics is unknown" in caplog.text
    assert "compacted" not in caplog.text


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_internal_topics_get_their_usual_configs(tmp_path: Path, name: TopicName) -> None:
    configs = read(tmp_path).configs(name)
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", "104857600")


def test_metadata_log_determines_the_topics() -> None:
    adoption = Adoption({T: known({"a": "b"}, 3, 9, 0)}, [T], lambda _: {})
    there = {T: found(5, 2, topic_id=OWN), U: found(0)}
    topics = adoption.topics(there, US, lambda: NEW)
    assert topics == [(T, OTHER, (leader(5), leader(9), leader(0)), {"a": "b"})], "what it does not know was deleted"
    assert adoption.configs(U) == KEPT


def test_partitions_without_a_log_start_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    adoption, there = read(tmp_path), {T: found(1, first=2)}
    topics = adoption.topics(there, US, lambda: NEW)
    assert topics[0].partitions == (leader(0), leader(0), leader(1))
    adoption.log_adopted(topics, there)
    assert "topic t: partitions without a log in the data directories start empty: 0, 1" in caplog.text


def test_folder_with_an_implausible_partition_number_is_ignored(tmp_path: Path) -> None:
    there = {T: FoundTopic(None, {0: LeaderEpoch(0), 20_261_124: NO_EPOCH}), U: found(0, first=20_261_124)}
    (topic,) = read(tmp_path).topics(there, US, lambda: NEW)
    assert (topic.name, len(topic.partitions)) == (T, 1)


def test_assumed_configs_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 77\n")
    there = {T: found(0), CONSUMER_OFFSETS: found(0)} | {TopicName(f"k{n:02d}"): found(0) for n in range(30)}
    adoption = read(tmp_path)
    with caplog.at_level(logging.INFO):
        adoption.log_adopted(adoption.topics(there, US, lambda: NEW), there)
    assumed, kept, compacted = (record.getMessage() for record in caplog.records)
    assert "k00, k01" in assumed and assumed.endswith(f"and {32 - NAMED_MAX} more")
    assert "(retention.ms=-1)" in kept and ": k00, k01" in kept
    assert "TOPIC --set cleanup.policy=compact`" in compacted and compacted.endswith(": t")


def test_known_configs_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    adoption, there = Adoption({T: known({}, 0)}, [], lambda _: {}), {T: found(0)}
    adoption.log_adopted(adoption.topics(there, US, lambda: NEW), there)
    assert not caplog.records


def test_unreadable_metadata_log_counts_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert read(tmp_path).configs(T) == KEPT
    assert "cannot read the metadata log" in caplog.text
