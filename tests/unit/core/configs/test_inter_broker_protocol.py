"""inter.broker.protocol.version: valid texts, and the features of each version."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.inter_broker_protocol import (
    CHANGES,
    OF_OURS_ALONE,
    InterBrokerProtocol,
    protocol,
    protocol_of,
)
from odradek.core.kernel.metadata_version import METADATA_VERSIONS, NEWEST, OLDEST, metadata_version
from odradek.wire.messages.alter_partition import AlterPartitionRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.wire.schema.schema import schema_of
from support.kafka_versions import KAFKAS, line_of

KEY = "inter.broker.protocol.version"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0.11.0", "0.11.0-IV2"),
        ("0.11.0-IV1", "0.11.0-IV1"),
        ("0.11.0.3", "0.11.0-IV2"),
        ("1.0.0", "1.0-IV0"),
        ("2.8", "2.8-IV1"),
        ("2.8-IV0", "2.8-IV0"),
        ("3.9.1", "3.9-IV0"),
    ],
)
def test_version_text_is_parsed_as_in_kafka(text: str, name: str) -> None:
    found = metadata_version(text)
    assert found is not None and found.name == name


@pytest.mark.parametrize("text", ["", "0.11", "0.10.2", "3", "2.8-IV2", "2.8-IV", "3.9-IV0-x", "4.0", "4.0-IV0", "new"])
def test_invalid_version_text_is_refused(text: str) -> None:
    assert metadata_version(text) is None
    with pytest.raises(ConfigError, match=rf"{KEY}: Version must be one from 0.11.0 to 3.9"):
        BrokerConfigs.parse({KEY: text})


@given(st.text(alphabet="0123456789.-IVx", max_size=12) | st.text(max_size=12))
def test_any_text_names_a_version_or_none(text: str) -> None:
    found = metadata_version(text)
    assert found is None or (found in METADATA_VERSIONS and text.startswith(found.name.partition("-")[0]))


def test_features_of_each_version_match_kafka() -> None:
    assert list(map(line_of, METADATA_VERSIONS)) == KAFKAS


@pytest.mark.parametrize(
    ("text", "version"), [("2.7-IV1", None), ("2.7", 0), ("3.1", 0), ("3.2", 1), ("3.3", 2), ("3.4", 2), ("3.5", 3)]
)
def test_alter_partition_version_depends_on_the_protocol_version(text: str, version: int | None) -> None:
    found = metadata_version(text)
    assert found is not None and protocol(found).alter_partition == version


def test_own_brokers_read_all_inter_broker_requests() -> None:
    newest = protocol(NEWEST)
    requests = (
        (FetchRequest, newest.fetch),
        (ListOffsetsRequest, newest.list_offsets),
        (OffsetForLeaderEpochRequest, newest.offset_for_leader_epoch),
        (AlterPartitionRequest, newest.alter_partition),
    )
    assert all(version in schema_of(message).versions for message, version in requests)


def test_each_version_includes_its_predecessors() -> None:
    for before, after in pairwise(METADATA_VERSIONS):
        older, newer = protocol(before), protocol(after)
        for name in InterBrokerProtocol._fields[1:]:
            assert (getattr(older, name) or 0) <= (getattr(newer, name) or 0), (after, name)
    assert (OLDEST.name, NEWEST.name) == ("0.11.0-IV0", "3.9-IV0")


def test_each_protocol_change_has_a_version_and_an_effect() -> None:
    for one in CHANGES:
        version = metadata_version(one.since)
        assert version is not None and version.name == one.since
        before = protocol(METADATA_VERSIONS[version.rank - 1])
        assert all(getattr(before, name) != value for name, value in one.changes.items()), one
    assert all(name in InterBrokerProtocol._fields for one in OF_OURS_ALONE for name in one.changes)


@pytest.mark.parametrize("texts", [{}, {KEY: "3.9"}, {KEY: "3.9-IV0"}])
def test_own_cluster_uses_all_features(texts: dict[str, str]) -> None:
    found = protocol_of(BrokerConfigs.parse(texts))
    assert found.features == {"group.version": 1, "transaction.version": 2}
    assert (found.offset_value, found.transaction_value, found.write_txn_markers) == (4, 1, 2)
    assert (found.leader_and_isr, found.update_metadata, found.stop_replica) == (7, 8, 4)


@pytest.mark.parametrize("version", [one.name for one in METADATA_VERSIONS])
def test_cluster_on_zookeeper_finalizes_only_its_protocol_version(version: str) -> None:
    ensemble = protocol_of(BrokerConfigs.parse({KEY: version, "zookeeper.connect": "zk1:2181/kafka"}))
    assert ensemble.version.name == version
    assert ensemble == protocol(ensemble.version)
    assert not ensemble.features
    assert ensemble.transaction_value == 0
    if version != NEWEST.name:
        assert protocol_of(BrokerConfigs.parse({KEY: version})) == ensemble
