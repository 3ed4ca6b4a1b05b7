"""Effects: work for the shell, as values; each ends in an event for `Broker.on_event`.

An effect of a single part of the core is defined in that part.  Changes of topics go to the metadata tree, which may
take milliseconds and be on another machine; they end in Changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerId, TopicName
from odradek.base.uuids import Uuid
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.edits import ConfigEdit
from odradek.core.coordinators.shards import Load, Loaded
from odradek.core.disks.flushes import Sync, Synced
from odradek.core.disks.log_dir_moves import Copying
from odradek.core.kernel.chores import Chores, ChoresRun
from odradek.core.kernel.cluster_view import PartitionInfo, TopicInfo
from odradek.core.kernel.work import Work
from odradek.core.partition.log_starts import WriteStarts
from odradek.core.partition.lookups import Lookup, LookupCompleted

ClientLogFields = Mapping[str, object]  # Log fields of the client that sent the request; empty for the broker itself.
NO_CLIENT: ClientLogFields = MappingProxyType({})


class CreateTopics(NamedTuple):
    """Write new topics to the metadata tree."""

    token: int
    topics: tuple[TopicInfo, ...]
    client: ClientLogFields = NO_CLIENT
    is_auto_created: bool = False


class NewPartitions(NamedTuple):
    """Partitions to append to one topic, the first of them with index `first`."""

    first: int
    added: tuple[PartitionInfo, ...]


class CreatePartitions(NamedTuple):
    """Append partitions to topics of the metadata tree."""

    token: int
    topics: Mapping[TopicName, NewPartitions]
    client: ClientLogFields = NO_CLIENT


class DeleteTopics(NamedTuple):
    """Remove topics from the metadata tree."""

    token: int
    topics: Mapping[TopicName, Uuid]
    client: ClientLogFields = NO_CLIENT


class ConfigOwner(NamedTuple):
    """Owner of a configuration: a topic, a broker by its id, or all brokers, with an empty name."""

    is_topic: bool
    name: str


class AlterConfigs(NamedTuple):
    """Change configurations in the metadata tree, or only validate the change; ends in Altered."""

    token: int
    edits: Mapping[ConfigOwner, ConfigEdit]
    client: ClientLogFields = NO_CLIENT
    is_dry: bool = False


class AllocateProducerIds(NamedTuple):
    """Take the next block of producer ids from the metadata tree; ends in `ProducerIds.on_block_allocated`.

    Ids below `at_least` are in use: the logs may come from another cluster.
    """

    at_least: ProducerId


Change = CreateTopics | CreatePartitions | DeleteTopics
Effect = (
    Sync | Clean | Chores | Load | Lookup | WriteStarts | Copying | AllocateProducerIds | Work | Change | AlterConfigs
)


class Changed(NamedTuple):
    """Result of a change: the current state of each topic (None: deleted), or the reason of a refusal."""

    token: int
    topics: Mapping[TopicName, TopicInfo | None] = MappingProxyType({})
    refused: Mapping[TopicName, Refused] = MappingProxyType({})


Event = Synced | Cleaned | ChoresRun | Loaded | LookupCompleted | Copying | Changed


def all_refused(change: Change) -> Changed:
    """Return the result of a change that the broker could not apply, through no fault of the client."""
    names = [topic.name for topic in change.topics] if isinstance(change, CreateTopics) else list(change.topics)
    return Changed(change.token, refused={name: Refused(ErrorCode.UNKNOWN_SERVER_ERROR) for name in names})


class Altered(NamedTuple):
    """Result of an AlterConfigs: the overrides of topics, the broker's new values, and the refusals.

    `appliers` apply the changes outside the core: certificates, limits of listeners.
    """

    token: int
    topics: Mapping[TopicName, Mapping[str, str]] = MappingProxyType({})
    broker: BrokerConfigs | None = None
    appliers: Sequence[Callable[[], None]] = ()
    refused: Mapping[ConfigOwner, Refused] = MappingProxyType({})


def none_altered(change: AlterConfigs) -> Altered:
    """Return the result of an AlterConfigs that could not be applied, through no fault of the client."""
    return Altered(change.token, refused=dict.fromkeys(change.edits, Refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
