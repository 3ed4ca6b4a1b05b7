"""Responses as trees that can be compared and stored, without values that may differ between two brokers.

These values are declared only here, by the name of the field or of the config key.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from differential.assigned_ids import Learned
from differential.batches import FIELDS
from differential.steps import CLUSTER, SESSION, id_of
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import ZERO_UUID
from odradek.record.record_batch import HEADER, HEADER_BYTES, BatchHeader, iter_batches
from odradek.wire.schema.layout import FieldLayout, StructLayout, layout

Tree = Any  # JSON.
SOME_TIME = "a time"
TEXT_CHARACTERS_MAX = 500  # Of values that are stored unchanged.
TIMES_FROM = 1_750_000_000_000  # Later than any timestamp of the scenarios, except those "of the future".
TIMES_TO = 9_000_000_000_000
TIMES = {"log_append_time_ms", "timestamp", "last_timestamp", "transaction_start_time_ms"}

# Unordered lists in the protocol; elements are named by the first of these fields that they have.
UNORDERED = {
    "active_producers",
    "api_keys",
    "brokers",
    "config_resources",
    "configs",
    "finalized_features",
    "groups",
    "markers",
    "members",
    "node_endpoints",
    "partition_responses",
    "partitions",
    "responses",
    "results",
    "results_by_partition",
    "results_by_topic_v3_and_below",
    "results_by_transaction",
    "supported_features",
    "topic_partitions",
    "topic_results",
    "topics",
    "transaction_states",
    "unknown_state_filters",
}
NAMED_BY = (
    "name",
    "api_key",
    "topic",
    "topic_name",
    "broker_id",
    "resource_name",
    "topic_id",
    "partition_index",
    "index",
    "group_id",
    "transactional_id",
    "member_id",
    "group_instance_id",
    "producer_id",
)

# Lists of all objects: those of other scenarios are omitted, since they may disappear at any time.
LISTED = "listed-"
MEASURED = "trimmed-"
LISTS = {
    "ListGroupsResponse": ("groups", "group_id"),
    "ListTransactionsResponse": ("transaction_states", "transactional_id"),
}

MEMBERS = {"member_id", "leader"}
WORDS = {
    "error_message": "a sentence",
    "batch_index_error_message": "a sentence",
    "finalized_features_epoch": "an epoch",
    "documentation": "a text",
    "log_dir": "a folder",
    "total_bytes": "a size",
    "usable_bytes": "a size",
}

# Config values that contain a broker's address or directory.
PLACES = {
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "process.roles",
}


class Names:
    """A broker's names for the placeholders in requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cluster_id = CLUSTER
        self.session_id = SESSION
        self.topics: dict[bytes, str] = {}  # All ids ever assigned.
        self.ids: dict[str, bytes] = {}  # Those of now.
        self.learned = Learned()

    def learn(self, topic: str, topic_id: bytes) -> None:
        self.topics[topic_id] = topic
        self.ids[topic] = topic_id

    def put_into(self, frame: bytes) -> bytes:
        frame = frame.replace(CLUSTER.encode(), self.cluster_id.encode())
        frame = frame.replace(SESSION.to_bytes(4), self.session_id.to_bytes(4, signed=True))
        for topic, topic_id in self.ids.items():
            frame = frame.replace(id_of(topic), topic_id)
        return self.learned.put_into(frame)

    def learn_from(self, name: str, answer: object) -> None:
        self.learned.learn(name, answer)

    def forget(self) -> None:
        """Forget members and producers, which belong to one scenario."""
        self.learned = Learned()

    def tree(self, message: object, version: int) -> Tree:
        """Return the message as a tree, without default values."""
        tree = self._struct(layout(type(message), version), message)
        if type(message).__name__ in LISTS:
            of_all, name = LISTS[type(message).__name__]
            tree[of_all] = [each for each in tree[of_all] if each[name].startswith(LISTED)]
        if type(message).__name__ == "DescribeLogDirsResponse":
            for result in tree["results"]:
                result["topics"] = [each for each in result["topics"] if each["name"].startswith(MEASURED)]
        return tree

    def _struct(self, struct: StructLayout, message: object) -> Tree:
        tree: dict[str, Tree] = {}
        for field in (*struct.fields, *struct.tagged):
            value = getattr(message, field.name)
            if field.field.is_required or value != field.field.default:
                tree[field.name] = self._value(field, value)
        if tree.get("name") in PLACES and "value" in tree:
            tree["value"] = "a place"
            for synonym in tree.get("synonyms", ()):
                synonym["value"] = "a place"
        return tree

    def _value(self, field: FieldLayout, value: Any) -> Tree:
        masked = self._masked(field.name, value)
        if masked is not value:
            return masked
        kind = field.type
        if field.name == "records":
            return None if value is None else self._batches(value)
        if field.is_array and value is not None:
            struct_of: Callable[[Any], Tree] = (
                (lambda each: self._struct(kind, each)) if isinstance(kind, StructLayout) else self._plain
            )
            trees = [struct_of(each) for each in value]
            if field.name in UNORDERED:
                trees.sort(key=lambda tree: (str(label(tree)), repr(tree)))
            return trees
        return self._struct(kind, value) if isinstance(kind, StructLayout) and value is not None else self._plain(value)

    def _masked(self, name: str, value: Any) -> Any:
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name == "session_id" and value:
            self.session_id = value
            return "a session"
        if name == "port" and value == self.port:
            return "its port"
        if name == "cluster_id" and value == self.cluster_id:
            return "its cluster"
        if name in WORDS:
            return value if value in (None, "") else WORDS[name]
        if name in TIMES and _is_now(value):
            return SOME_TIME
        return self._learned(name, value)

    def _learned(self, name: str, value: Any) -> Any:
        if name.endswith("producer_id"):
            return self.learned.any_producer(value)
        if isinstance(value, str):
            return self.learned.member(value, is_id=name in MEMBERS)
        return value

    def _plain(self, value: Any) -> Tree:
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            if data == ZERO_UUID:
                return "zero"
            return f"id of {self.topics[data]}" if data in self.topics else data.hex()
        if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
            return f"{len(value)} characters, {hashlib.md5(value.encode()).hexdigest()[:8]}"
        return value

    def _batches(self, records: memoryview | bytes) -> Tree:
        """Return every batch with its header; the rest after the last whole one by its size."""
        trees: list[Tree] = []
        end = 0
        try:
            for batch in iter_batches(records):
                trees.append(self._batch(batch, bytes(batch.view)))
                end += batch.size
        except Refused as refused:
            trees.append(refused.code.name)
        if end < len(records):
            trees.append(f"and {len(records) - end} bytes of the next")
        return trees

    def _batch(self, header: BatchHeader, data: bytes) -> str:
        fields = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True))
        masked = {name: SOME_TIME for name in ("base_timestamp", "max_timestamp") if _is_now(fields[name])}
        if self.learned.producer(header.producer_id) != header.producer_id:
            masked["producer_id"] = self.learned.producer(header.producer_id)
        if masked:
            masked["crc"] = "its crc"
        body = hashlib.md5(data[HEADER_BYTES:]).hexdigest()[:8]
        return " ".join(map(str, (fields | masked).values())) + " " + body


def _is_now(timestamp: int) -> bool:
    return TIMES_FROM <= timestamp <= TIMES_TO


def label(tree: Tree) -> object:
    """Return the name of an element of an unordered list."""
    if isinstance(tree, dict):
        return next((tree[name] for name in NAMED_BY if tree.get(name) not in (None, "", "zero")), "")
    return tree


def labelled(elements: list[Tree], is_ordered: bool) -> dict[str, Tree]:
    """Return the elements of a list by position, or by name in unordered lists; a repeated name becomes name#2."""
    if is_ordered:
        return {str(number): tree for number, tree in enumerate(elements)}
    named: dict[str, Tree] = {}
    times: Counter[object] = Counter()
    for tree in elements:
        name = label(tree)
        times[name] += 1
        named[f"{name}" if times[name] == 1 else f"{name}#{times[name]}"] = tree
    return named
