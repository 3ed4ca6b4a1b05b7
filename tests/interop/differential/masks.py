"""An answer as a tree that can be compared and written down, without what may differ between two brokers.

What may differ is declared here, once, by the name of the field or of the configuration key.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from differential.steps import CLUSTER, SESSION, id_of
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import ZERO_UUID
from odradek.record.batch import HEADER, HEADER_BYTES, BatchHeader, iter_batches
from odradek.wire.layout import FieldLayout, StructLayout, layout

Tree = Any  # JSON.
SOME_TIME = "a time"
TIMES_FROM = 1_750_000_000_000  # Later than any time that the scenarios send, but for those "of the future".
TIMES_TO = 9_000_000_000_000

# Lists whose order the protocol leaves open; the elements are named by the first of these fields they have.
UNORDERED = {
    "api_keys",
    "brokers",
    "configs",
    "finalized_features",
    "node_endpoints",
    "partition_responses",
    "partitions",
    "responses",
    "results",
    "supported_features",
    "topics",
}
NAMED_BY = ("name", "api_key", "topic", "broker_id", "resource_name", "topic_id", "partition_index", "index")

# Configuration values that say where a broker lives.
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
    """What one broker calls the things that have placeholders in the requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cluster_id = CLUSTER
        self.session_id = SESSION
        self.topics: dict[bytes, str] = {}  # Every id there ever was.
        self.ids: dict[str, bytes] = {}  # Those of now.

    def learn(self, topic: str, topic_id: bytes) -> None:
        self.topics[topic_id] = topic
        self.ids[topic] = topic_id

    def put_into(self, frame: bytes) -> bytes:
        frame = frame.replace(CLUSTER.encode(), self.cluster_id.encode())
        frame = frame.replace(SESSION.to_bytes(4), self.session_id.to_bytes(4, signed=True))
        for topic, topic_id in self.ids.items():
            frame = frame.replace(id_of(topic), topic_id)
        return frame

    def tree(self, message: object, version: int) -> Tree:
        """Fields that have their default are left out."""
        return self._struct(layout(type(message), version), message)

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
            return None if value is None else _batches(value)
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
        if name == "error_code":
            return ErrorCode(value).name
        if name == "session_id" and value:
            self.session_id = value
            return "a session"
        if name == "port" and value == self.port:
            return "its port"
        if name == "cluster_id" and value == self.cluster_id:
            return "its cluster"
        if name in ("error_message", "batch_index_error_message") and value:
            return "a sentence"
        if name == "finalized_features_epoch":
            return "an epoch"
        if name == "documentation" and value:
            return "a text"
        if name == "log_append_time_ms" and TIMES_FROM <= value <= TIMES_TO:
            return SOME_TIME
        return value

    def _plain(self, value: Any) -> Tree:
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            if data == ZERO_UUID:
                return "zero"
            return f"id of {self.topics[data]}" if data in self.topics else data.hex()
        return value


def label(tree: Tree) -> object:
    """The name of an element of a list without an order."""
    if isinstance(tree, dict):
        return next((tree[name] for name in NAMED_BY if tree.get(name) not in (None, "", "zero")), "")
    return tree


def _batches(records: memoryview | bytes) -> Tree:
    """Every batch with its header; what is behind the last whole one by its size."""
    trees: list[Tree] = []
    end = 0
    try:
        for batch in iter_batches(records):
            trees.append(_batch(batch, bytes(batch.view)))
            end += batch.size
    except Refused as refused:
        trees.append(refused.code.name)
    if end < len(records):
        trees.append(f"and {len(records) - end} bytes of the next")
    return trees


def _batch(header: BatchHeader, data: bytes) -> str:
    fields = list(HEADER.unpack_from(data))
    if TIMES_FROM <= header.max_timestamp <= TIMES_TO:
        fields[8], fields[4] = SOME_TIME, "its crc"
    body = hashlib.md5(data[HEADER_BYTES:]).hexdigest()[:8]
    return " ".join(map(str, fields)) + " " + body


def labelled(elements: list[Tree], is_ordered: bool) -> dict[str, Tree]:
    """The elements of a list by their number, or by name where they have no order; a second one of a name is name#2."""
    if is_ordered:
        return {str(number): tree for number, tree in enumerate(elements)}
    named: dict[str, Tree] = {}
    times: Counter[object] = Counter()
    for tree in elements:
        name = label(tree)
        times[name] += 1
        named[f"{name}" if times[name] == 1 else f"{name}#{times[name]}"] = tree
    return named
