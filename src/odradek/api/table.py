"""All APIs and versions that this broker supports; dispatch and ApiVersions both use this table.

Each row names the module of its handler. The messages are in wire/messages, in the module with the API's name. Both are
imported when first needed, so that a broker starts before the code of every API is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib import import_module
from typing import Any, cast

from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode
from odradek.core.configs.inter_broker_protocol import InterBrokerProtocol
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.api_versions import ApiVersion
from odradek.wire.schema.api_keys import OWN_KEYS_FROM, ApiKey

# Bodies of all kinds meet only here: each handler is typed for its own message.
Handler = Callable[[Call, Any], object | ParkedRequest[object] | None]
Refuser = Callable[[Call, Any, ErrorCode], object | None]


class Api:
    """One API and the module that handles it.

    `versions` are supported; ApiVersions reports `advertised_from` in place of the first of them.
    """

    def __init__(self, key: ApiKey, module: str, first: int, last: int, advertised_from: int | None = None) -> None:
        self.key = key
        self.module = module
        self.versions = range(first, last + 1)
        self.advertised_from = advertised_from

    @cached_property
    def request(self) -> type:
        messages = import_module(f"odradek.wire.messages.{self.key.name.lower()}")
        return cast(type, getattr(messages, f"{self.key.title}Request"))

    @cached_property
    def handle(self) -> Handler:
        return cast(Handler, import_module(self.module).handle)

    @cached_property
    def refuse(self) -> Refuser:
        return cast(Refuser, import_module(self.module).refuse)

    def up_to(self, last: int) -> Api:
        """Return the API with its versions limited to `last`."""
        return Api(self.key, self.module, self.versions.start, last, self.advertised_from)

    def load(self) -> None:
        """Load the API's code now, so that its first request neither waits for it nor runs out of descriptors.

        A module with more to load defines a function `load`.
        """
        _ = self.request, self.handle, self.refuse
        getattr(import_module(self.module), "load", _nothing)()

    @property
    def is_own(self) -> bool:
        """Return whether Kafka does not have this API; ApiVersions omits such an API."""
        return self.key >= OWN_KEYS_FROM

    @property
    def advertisement(self) -> ApiVersion:
        first = self.versions.start if self.advertised_from is None else self.advertised_from
        return ApiVersion(api_key=self.key, min_version=first, max_version=self.versions.stop - 1)


def _nothing() -> None:
    """Do nothing: the module has no `load` function."""


_APIS = (
    # librdkafka before 2.11 assumes that a broker without Produce v0 has no compression, so Kafka 4 and this broker
    # advertise 0 (KAFKA-18659). Versions 0 to 2 are not supported yet.
    Api(ApiKey.PRODUCE, "odradek.api.produce.produce", 3, 13, advertised_from=0),
    Api(ApiKey.FETCH, "odradek.api.fetch.fetch", 4, 18),
    Api(ApiKey.LIST_OFFSETS, "odradek.api.fetch.list_offsets", 1, 11),
    Api(ApiKey.METADATA, "odradek.api.topics.metadata", 0, 13),
    Api(ApiKey.API_VERSIONS, "odradek.api.api_versions", 0, 5),
    Api(ApiKey.CREATE_TOPICS, "odradek.api.topics.create_topics", 2, 7),
    Api(ApiKey.DELETE_TOPICS, "odradek.api.topics.delete_topics", 1, 6),
    Api(ApiKey.DELETE_RECORDS, "odradek.api.topics.delete_records", 0, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, "odradek.api.configs.describe_configs", 1, 4),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "odradek.api.configs.alter_replica_log_dirs", 1, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "odradek.api.configs.describe_log_dirs", 1, 5),
    Api(ApiKey.CREATE_PARTITIONS, "odradek.api.topics.create_partitions", 0, 3),
    Api(ApiKey.ELECT_LEADERS, "odradek.api.topics.elect_leaders", 0, 2),
    Api(ApiKey.ALTER_CONFIGS, "odradek.api.configs.alter_configs", 0, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "odradek.api.configs.incremental_alter_configs", 0, 1),
    Api(ApiKey.LIST_CONFIG_RESOURCES, "odradek.api.configs.list_config_resources", 0, 1),
    Api(ApiKey.DESCRIBE_CLUSTER, "odradek.api.cluster.describe_cluster", 0, 2),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "odradek.api.topics.describe_topic_partitions", 0, 0),
    Api(ApiKey.JOIN_GROUP, "odradek.api.groups.join_group", 0, 9),
    Api(ApiKey.SYNC_GROUP, "odradek.api.groups.sync_group", 0, 5),
    Api(ApiKey.HEARTBEAT, "odradek.api.groups.heartbeat", 0, 4),
    Api(ApiKey.LEAVE_GROUP, "odradek.api.groups.leave_group", 0, 5),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "odradek.api.groups.consumer_group_heartbeat", 0, 1),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "odradek.api.groups.consumer_group_describe", 0, 1),
    Api(ApiKey.DESCRIBE_GROUPS, "odradek.api.groups.describe_groups", 0, 6),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, "odradek.api.transactions.add_offsets_to_txn", 0, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, "odradek.api.transactions.add_partitions_to_txn", 0, 5),
    Api(ApiKey.DESCRIBE_PRODUCERS, "odradek.api.transactions.describe_producers", 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, "odradek.api.transactions.describe_transactions", 0, 0),
    Api(ApiKey.END_TXN, "odradek.api.transactions.end_txn", 0, 5),
    Api(ApiKey.FIND_COORDINATOR, "odradek.api.groups.find_coordinator", 0, 6),
    Api(ApiKey.INIT_PRODUCER_ID, "odradek.api.transactions.init_producer_id", 0, 6),
    Api(ApiKey.LIST_TRANSACTIONS, "odradek.api.transactions.list_transactions", 0, 2),
    Api(ApiKey.WRITE_TXN_MARKERS, "odradek.api.transactions.write_txn_markers", 1, 2),
    Api(ApiKey.OFFSET_COMMIT, "odradek.api.groups.offset_commit", 2, 10),
    Api(ApiKey.OFFSET_FETCH, "odradek.api.groups.offset_fetch", 1, 10),
    Api(ApiKey.OFFSET_DELETE, "odradek.api.groups.offset_delete", 0, 0),
    # Kafka 4 advertises 2, and so does this broker. Older brokers send versions 0 and 1 without checking ApiVersions.
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "odradek.api.fetch.offset_for_leader_epoch", 0, 4, advertised_from=2),
    Api(ApiKey.LIST_GROUPS, "odradek.api.groups.list_groups", 0, 5),
    Api(ApiKey.DELETE_GROUPS, "odradek.api.groups.delete_groups", 0, 3),
    Api(ApiKey.TXN_OFFSET_COMMIT, "odradek.api.groups.txn_offset_commit", 0, 6),
    Api(ApiKey.COMPACT_PARTITIONS, "odradek.api.topics.compact_partitions", 0, 0),
)

# Requests between the brokers of a cluster; a single broker does not support them.
_INTER_BROKER = (
    Api(ApiKey.LEADER_AND_ISR, "odradek.api.cluster.leader_and_isr", 0, 7),
    Api(ApiKey.STOP_REPLICA, "odradek.api.cluster.stop_replica", 0, 4),
    Api(ApiKey.UPDATE_METADATA, "odradek.api.cluster.update_metadata", 0, 8),
    Api(ApiKey.CONTROLLED_SHUTDOWN, "odradek.api.cluster.controlled_shutdown", 0, 3),
    Api(ApiKey.ALTER_PARTITION, "odradek.api.cluster.alter_partition", 0, 3),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, "odradek.api.transactions.allocate_producer_ids", 0, 0),
    # Brokers with inter.broker.protocol.version below 2.8 send version 0.
    Api(ApiKey.WRITE_TXN_MARKERS, "odradek.api.transactions.write_txn_markers", 0, 2),
)


def _by_key(apis: Iterable[Api]) -> dict[int, Api]:
    return {int(api.key): api for api in sorted(apis, key=lambda api: api.key)}


BY_KEY = _by_key(_APIS)
IN_CLUSTER = _by_key((*_APIS, *_INTER_BROKER))

# Last versions for clients of a cluster whose transactions have no epochs of their own (KIP-890). In later versions,
# partitions join a transaction implicitly, or a transaction is prepared elsewhere (KIP-939).
_LAST_WITHOUT_EPOCHS = {
    ApiKey.PRODUCE: 11,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
    ApiKey.INIT_PRODUCER_ID: 5,
}
_EPOCHS_SINCE = 2  # A level of transaction.version.
_OF_CONSUMER_GROUPS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)


class Table:
    """The APIs that a broker supports, and the versions that ApiVersions reports for them."""

    def __init__(self, apis: dict[int, Api]) -> None:
        self.by_key = apis
        self.advertised = [api.advertisement for api in apis.values() if not api.is_own]


def table_of(protocol: InterBrokerProtocol, *, in_cluster: bool) -> Table:
    """Return the APIs of a single broker or of a broker in a cluster, given the finalized features."""
    return _table(in_cluster, protocol.transaction_version >= _EPOCHS_SINCE, protocol.group_version > 0)


@cache
def _table(in_cluster: bool, has_epochs: bool, has_consumer_groups: bool) -> Table:
    apis = IN_CLUSTER if in_cluster else BY_KEY
    if not has_consumer_groups:
        apis = {key: api for key, api in apis.items() if key not in _OF_CONSUMER_GROUPS}
    if not has_epochs:
        lasts = {int(key): last for key, last in _LAST_WITHOUT_EPOCHS.items()}
        apis = {key: api.up_to(lasts[key]) if key in lasts else api for key, api in apis.items()}
    return Table(apis)
