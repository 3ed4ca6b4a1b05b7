"""Topics named in a request, and removal of a topic from it.

Requests contain their topics in one field, answers in another. Entries are names, or have a name, an id, or both. A
Fetch session also contains topics that the request does not name again.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.broker import Broker
from odradek.wire.schema.api_keys import ApiKey


class Fields(NamedTuple):
    """The fields that contain topics."""

    request: tuple[str, ...]
    response: str


FIELDS: dict[ApiKey, Fields] = {
    ApiKey.PRODUCE: Fields(("topic_data",), "responses"),
    ApiKey.FETCH: Fields(("topics",), "responses"),
    ApiKey.LIST_OFFSETS: Fields(("topics",), "topics"),
    ApiKey.METADATA: Fields(("topics",), "topics"),
    ApiKey.CREATE_TOPICS: Fields(("topics",), "topics"),
    ApiKey.DELETE_TOPICS: Fields(("topics", "topic_names"), "responses"),
    ApiKey.DELETE_RECORDS: Fields(("topics",), "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Fields(("topics",), "topics"),
    ApiKey.CREATE_PARTITIONS: Fields(("topics",), "results"),
    ApiKey.DESCRIBE_CONFIGS: Fields(("resources",), "results"),
    ApiKey.ALTER_CONFIGS: Fields(("resources",), "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Fields(("resources",), "responses"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Fields(("topics",), "topics"),
}
_NAMES = ("name", "topic", "resource_name")


def name_of(broker: Broker, entry: Any) -> str:
    """Return the topic name of one entry, or "" if it is unknown."""
    if isinstance(entry, str):
        return entry
    for field in _NAMES:
        name = getattr(entry, field, None)
        if name:
            return str(name)
    topic_id = Uuid(getattr(entry, "topic_id", ZERO_UUID))
    return broker.view.names.get(topic_id, "")


def topics_of(broker: Broker, api: ApiKey, body: Any) -> tuple[str, ...]:
    """Return the topics in the order of the request, without duplicates."""
    if api not in FIELDS:
        return ()
    entries = [entry for field in FIELDS[api].request for entry in getattr(body, field) or ()]
    names = [name_of(broker, entry) for entry in entries]
    if api is ApiKey.METADATA and body.topics is None:
        names = list(broker.view.topics)
    elif api is ApiKey.FETCH:
        session = broker.sessions.find_session(body.session_id)
        names += [] if session is None else [_name(broker, key.topic) for key in session.partitions]
    return tuple(dict.fromkeys(name for name in names if name))


def _name(broker: Broker, topic: str | Uuid) -> str:
    return broker.view.names.get(Uuid(topic), "") if isinstance(topic, bytes) else topic


def split_by_topic(broker: Broker, api: ApiKey, body: Any, topic: str) -> tuple[Any, Any]:
    """Split a request into one for this topic and one for all others."""
    affected, rest = copy.copy(body), copy.copy(body)
    for field in FIELDS[api].request:
        entries = getattr(body, field) or []
        setattr(affected, field, [entry for entry in entries if name_of(broker, entry) == topic])
        setattr(rest, field, [entry for entry in entries if name_of(broker, entry) != topic])
    return affected, rest


def has_topics(api: ApiKey, body: Any) -> bool:
    return any(getattr(body, field) for field in FIELDS[api].request)
