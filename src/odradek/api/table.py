"""Every API that this broker answers, in the versions it answers.  Dispatch and ApiVersions both come from here.

What answers an API is in the module of its name, and its messages are in another: they are imported when they are first
needed, so that a broker is there before its code for everything is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib import import_module
from typing import Any, cast

from odradek.api.call import Call
from odradek.base.errors import ErrorCode
from odradek.core.inter_broker_protocol import InterBrokerProtocol
from odradek.core.parked import Parked
from odradek.wire.api_keys import OWN_KEYS_FROM, ApiKey
from odradek.wire.messages.api_versions import ApiVersion

# The one place where bodies of all kinds meet: each handler is typed for its own message.
Handler = Callable[[Call, Any], object | Parked[object] | None]
Refuser = Callable[[Call, Any, ErrorCode], object | None]


class Api:
    """One API.  `versions` are those answered; `advertised_from` is what ApiVersions says instead of their first."""

    def __init__(self, key: ApiKey, first: int, last: int, advertised_from: int | None = None) -> None:
        self.key = key
        self.versions = range(first, last + 1)
        self.advertised_from = advertised_from

    @cached_property
    def request(self) -> type:
        return cast(type, getattr(import_module(f"odradek.wire.messages.{self._module}"), f"{self.key.title}Request"))

    @cached_property
    def handle(self) -> Handler:
        return cast(Handler, import_module(f"odradek.api.{self._module}").handle)

    @cached_property
    def refuse(self) -> Refuser:
        return cast(Refuser, import_module(f"odradek.api.{self._module}").refuse)

    def up_to(self, last: int) -> Api:
        """Returns the API in the versions up to `last`."""
        return Api(self.key, self.versions.start, last, self.advertised_from)

    def load(self) -> None:
        """Loads the API's code now: its first request does not wait for that, nor fail for want of a descriptor.

        A module with more to load has a function `load` of its own.
        """
        _ = self.request, self.handle, self.refuse
        getattr(import_module(f"odradek.api.{self._module}"), "load", _nothing)()

    @property
    def _module(self) -> str:
        return self.key.name.lower()

    @property
    def is_own(self) -> bool:
        """True for an API that Kafka does not have: ApiVersions does not tell of it."""
        return self.key >= OWN_KEYS_FROM

    @property
    def advertisement(self) -> ApiVersion:
        first = self.versions.start if self.advertised_from is None else self.advertised_from
        return ApiVersion(api_key=self.key, min_version=first, max_version=self.versions.stop - 1)


def _nothing() -> None:
    """Does nothing: the module has no `load` of its own."""


_APIS = (
    # librdkafka before 2.11 takes a broker without Produce v0 for one without compression, so Kafka 4 and we say 0
    # (KAFKA-18659).  What comes in v0 to v2 is not answered yet.
    Api(ApiKey.PRODUCE, 3, 13, advertised_from=0),
    Api(ApiKey.FETCH, 4, 18),
    Api(ApiKey.LIST_OFFSETS, 1, 11),
    Api(ApiKey.METADATA, 0, 13),
    Api(ApiKey.API_VERSIONS, 0, 5),
    Api(ApiKey.CREATE_TOPICS, 2, 7),
    Api(ApiKey.DELETE_TOPICS, 1, 6),
    Api(ApiKey.DELETE_RECORDS, 0, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3),
    Api(ApiKey.ELECT_LEADERS, 0, 2),
    Api(ApiKey.ALTER_CONFIGS, 0, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    Api(ApiKey.JOIN_GROUP, 0, 9),
    Api(ApiKey.SYNC_GROUP, 0, 5),
    Api(ApiKey.HEARTBEAT, 0, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
    Api(ApiKey.END_TXN, 0, 5),
    Api(ApiKey.FIND_COORDINATOR, 0, 6),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 6),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2),
    Api(ApiKey.OFFSET_COMMIT, 2, 10),
    Api(ApiKey.OFFSET_FETCH, 1, 10),
    Api(ApiKey.OFFSET_DELETE, 0, 0),
    # Kafka 4 says 2, and so do we; older brokers ask in versions 0 and 1 without having been told.
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, advertised_from=2),
    Api(ApiKey.LIST_GROUPS, 0, 5),
    Api(ApiKey.DELETE_GROUPS, 0, 3),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 6),
    Api(ApiKey.COMPACT_PARTITIONS, 0, 0),
)

# What brokers of a cluster ask each other; a broker that is alone has none of them.
_INTER_BROKER = (
    Api(ApiKey.LEADER_AND_ISR, 0, 7),
    Api(ApiKey.STOP_REPLICA, 0, 4),
    Api(ApiKey.UPDATE_METADATA, 0, 8),
    Api(ApiKey.CONTROLLED_SHUTDOWN, 0, 3),
    Api(ApiKey.ALTER_PARTITION, 0, 3),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0),
    # Version 0 is that of brokers whose inter.broker.protocol.version is below 2.8.
    Api(ApiKey.WRITE_TXN_MARKERS, 0, 2),
)


def _by_key(apis: Iterable[Api]) -> dict[int, Api]:
    return {int(api.key): api for api in sorted(apis, key=lambda api: api.key)}


BY_KEY = _by_key(_APIS)
IN_CLUSTER = _by_key((*_APIS, *_INTER_BROKER))

# The last versions for clients of a cluster where transactions have no epochs of their own (KIP-890): with later ones
# partitions join a transaction unasked, or a transaction is prepared elsewhere (KIP-939).
_LAST_WITHOUT_EPOCHS = {
    ApiKey.PRODUCE: 11,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
    ApiKey.INIT_PRODUCER_ID: 5,
}
_EPOCHS_SINCE = 2  # A level of transaction.version.
_OF_CONSUMER_GROUPS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)


class Table:
    """The APIs that a broker answers, and what ApiVersions says of them."""

    def __init__(self, apis: dict[int, Api]) -> None:
        self.by_key = apis
        self.advertised = [api.advertisement for api in apis.values() if not api.is_own]


def table_of(protocol: InterBrokerProtocol, *, in_cluster: bool) -> Table:
    """Returns what is answered by a broker that is alone, or in a cluster, where these features are finalized."""
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
