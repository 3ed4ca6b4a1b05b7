"""Inter-broker protocol of each inter.broker.protocol.version: request versions and stored formats.

Kafka's own brokers have the same table (MetadataVersion and ControllerChannelManager, 3.9), except for AlterPartition.
There a leader first queries the controller's supported versions; here the version is the one that each release from the
oldest possible member supports.  Features that Kafka has since added without ZooKeeper are enabled if all members are
Odradek brokers (see `protocol_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.core.configs.values import TypedValues
from odradek.core.kernel.metadata_version import METADATA_VERSIONS, NEWEST, OLDEST, MetadataVersion, metadata_version


class InterBrokerProtocol(NamedTuple):
    """All values that depend on the version; the defaults are those of 0.11.0-IV0."""

    version: MetadataVersion = OLDEST
    # Versions of requests of the controller and of coordinators.
    leader_and_isr: int = 0
    update_metadata: int = 3
    stop_replica: int = 0
    write_txn_markers: int = 0
    create_topics: int = 2
    controlled_shutdown: int = 1
    add_partitions_to_txn: int | None = None  # None: brokers do not send it to each other.
    # Versions of a follower's requests, and support for diverging epochs in fetch answers.
    fetch: int = 4
    list_offsets: int = 2
    offset_for_leader_epoch: int = 0
    truncates_on_fetch: bool = False
    # Version of a leader's request; None: it writes ISRs to the tree itself.
    alter_partition: int | None = None
    # Znodes.
    registration: int = 4
    has_log_dir_events: bool = False  # Notify the controller of offline replicas.
    has_topic_ids: bool = False
    has_leader_recovery: bool = False
    # Versions of the values of __consumer_offsets and __transaction_state.
    offset_value: int = 1
    group_value: int = 1
    transaction_value: int = 0
    # Levels of the features that clients use; 0 is none.
    group_version: int = 0
    transaction_version: int = 0

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized features, by name."""
        levels = {"group.version": self.group_version, "transaction.version": self.transaction_version}
        return {name: level for name, level in levels.items() if level}


class VersionChanges(NamedTuple):
    """Changes of a version, with their KIP or Kafka issue."""

    since: str
    why: str
    changes: Mapping[str, Any]


CHANGES = (
    VersionChanges("0.11.0-IV1", "KIP-107", {"fetch": 5}),
    VersionChanges("1.0-IV0", "KIP-112", {"leader_and_isr": 1, "update_metadata": 4, "has_log_dir_events": True}),
    VersionChanges("1.1-IV0", "KIP-227", {"fetch": 7}),
    VersionChanges("2.0-IV0", "KIP-219, KIP-279", {"create_topics": 3, "offset_for_leader_epoch": 1}),
    VersionChanges("2.0-IV1", "KIP-219", {"fetch": 8, "list_offsets": 3}),
    VersionChanges("2.1-IV0", "KIP-211", {"offset_value": 2, "group_value": 2}),
    VersionChanges("2.1-IV1", "KIP-320", {"offset_value": 3, "list_offsets": 4, "offset_for_leader_epoch": 2}),
    VersionChanges("2.1-IV2", "KIP-110", {"fetch": 10}),
    VersionChanges(
        "2.2-IV0", "KIP-380", {"leader_and_isr": 2, "update_metadata": 5, "stop_replica": 1, "controlled_shutdown": 2}
    ),
    VersionChanges("2.2-IV1", "KIP-207", {"list_offsets": 5}),
    VersionChanges("2.3-IV0", "KIP-345", {"group_value": 3}),
    VersionChanges("2.3-IV1", "KIP-392", {"fetch": 11, "offset_for_leader_epoch": 3}),
    VersionChanges("2.4-IV0", "KIP-455, KIP-525", {"leader_and_isr": 3, "create_topics": 5}),
    VersionChanges(
        "2.4-IV1", "KIP-482", {"leader_and_isr": 4, "update_metadata": 6, "stop_replica": 2, "controlled_shutdown": 3}
    ),
    VersionChanges("2.6-IV0", "KIP-570", {"stop_replica": 3}),
    VersionChanges("2.7-IV0", "KIP-584, KIP-599", {"registration": 5, "create_topics": 6}),
    VersionChanges("2.7-IV1", "KIP-595", {"fetch": 12, "truncates_on_fetch": True}),
    VersionChanges("2.7-IV2", "KIP-497", {"alter_partition": 0}),
    VersionChanges("2.8-IV0", "KIP-516", {"has_topic_ids": True, "create_topics": 7, "write_txn_markers": 1}),
    VersionChanges("2.8-IV0", "KIP-482", {"list_offsets": 6, "offset_for_leader_epoch": 4}),
    VersionChanges("2.8-IV1", "KIP-516", {"leader_and_isr": 5, "update_metadata": 7}),
    VersionChanges("3.0-IV1", "KIP-734", {"list_offsets": 7}),
    VersionChanges("3.1-IV0", "KIP-516", {"fetch": 13}),
    VersionChanges("3.2-IV0", "KIP-704", {"leader_and_isr": 6, "has_leader_recovery": True, "alter_partition": 1}),
    VersionChanges("3.3-IV0", "KIP-841", {"alter_partition": 2}),
    VersionChanges("3.4-IV0", "KIP-866", {"leader_and_isr": 7, "update_metadata": 8, "stop_replica": 4}),
    VersionChanges("3.5-IV0", "KIP-890", {"add_partitions_to_txn": 4}),
    VersionChanges("3.5-IV0", "KIP-405", {"fetch": 14, "list_offsets": 8}),
    VersionChanges("3.5-IV1", "KIP-903", {"fetch": 15, "alter_partition": 3}),
    VersionChanges("3.7-IV4", "KIP-951", {"fetch": 16}),
    VersionChanges("3.8-IV0", "KIP-890", {"add_partitions_to_txn": 5}),
    VersionChanges("3.9-IV0", "KIP-853, KIP-1005", {"fetch": 17, "list_offsets": 9}),
)
# Kafka has these since 4.0, the offsets with topic ids since 4.1.
ODRADEK_CHANGES = (
    VersionChanges("4.0", "KIP-848", {"group_version": 1}),
    VersionChanges("4.0", "KIP-890", {"transaction_version": 2, "transaction_value": 1}),
    VersionChanges("4.1", "KIP-848", {"offset_value": 4}),
    VersionChanges("4.2", "KIP-1228", {"write_txn_markers": 2}),
)


def _table() -> dict[MetadataVersion, InterBrokerProtocol]:
    table, known, applied = {}, InterBrokerProtocol(), 0
    for version in METADATA_VERSIONS:
        for change in CHANGES:
            if change.since == version.name:
                known = known._replace(**change.changes)
                applied += 1
        table[version] = known = known._replace(version=version)
    assert applied == len(CHANGES), "every change names a known version"
    return table


_PROTOCOLS = _table()


def protocol(version: MetadataVersion) -> InterBrokerProtocol:
    """Return the inter-broker protocol of Kafka's brokers of this version."""
    return _PROTOCOLS[version]


def protocol_of(configs: TypedValues) -> InterBrokerProtocol:
    """Return the inter-broker protocol of a broker with this configuration.

    Brokers of one cluster must agree on the finalized features.  So features newer than Kafka 3.9 require metadata in a
    local file, whose brokers share one configuration and one release.  An older configured version disables them, too.
    In a ZooKeeper ensemble they are never enabled: a broker of Apache Kafka may join at any time.
    """
    version = metadata_version(configs.str("inter.broker.protocol.version"))
    assert version is not None, "the rule of the key has validated the version"
    found = protocol(version)
    if version == NEWEST and not configs.optional_str("zookeeper.connect"):
        for change in ODRADEK_CHANGES:
            found = found._replace(**change.changes)
    assert found.version == version
    return found
