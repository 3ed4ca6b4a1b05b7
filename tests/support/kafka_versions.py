"""Features of each inter.broker.protocol.version in Kafka 3.9.1 and in Odradek, one line for each.

tests/interop/java/MetadataVersions.java prints them for Kafka.
"""

from __future__ import annotations

from odradek.core.configs.inter_broker_protocol import protocol
from odradek.core.kernel.metadata_version import MetadataVersion
from support.golden import GOLDEN

KAFKAS = (GOLDEN / "metadata_versions.txt").read_text().splitlines()


def line_of(version: MetadataVersion) -> str:
    ours = protocol(version)
    values = (
        *(ours.registration >= 5, ours.has_topic_ids, ours.has_leader_recovery, ours.offset_value, ours.group_value),
        *(ours.fetch, ours.list_offsets, ours.offset_for_leader_epoch),
        *(ours.truncates_on_fetch, ours.alter_partition is not None),
    )
    return " ".join([version.name, *(str(value).lower() for value in values)])
