"""Access control: requests that combine permitted and forbidden resources.

A step's connection is the user who sends it, "" a user with all permissions. The tester has no permission on resources
named `hidden`, may describe `seen`, and has all permissions on `mine`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from differential import base, base_groups, base_transactions, recording
from differential.base_groups import LONG_MS, UNKNOWN_MEMBER, beat, commit, describe, fetch_offsets, find
from differential.base_transactions import add, add_offsets, commit_offsets, end, init, mark, marker, numbered
from differential.batches import batch
from differential.steps import (
    NO_SUCH_ID,
    NO_SUCH_PRODUCER,
    VALID,
    Ready,
    Scenario,
    Step,
    Taken,
    id_of,
    producer,
    request_step,
)
from differential.waits import ConsumerGroupIs, Coordinators, TransactionIs, Wait
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.raw_client import RawClient
from support.rights import Rule, on, on_cluster

RECORDED = recording.PATH.with_name("access.jsonl")
TESTER, STRANGER = "tester", "stranger"
MINE, SEEN, HIDDEN, NOWHERE = "listed-mine", "listed-seen", "listed-hidden", "nowhere-hidden"
THREE, FOUR = (MINE, SEEN, HIDDEN), (MINE, SEEN, HIDDEN, NOWHERE)
FRESH, FRESH_SEEN, FRESH_HIDDEN = "fresh-mine", "fresh-seen", "fresh-hidden"
DOOMED = ("doomed-mine", "doomed-seen", "doomed-hidden")
TOO_DOOMED = tuple(f"{name}-too" for name in DOOMED)  # By id.
PATTERN = "listed-.*"

_TOPIC = [operation for operation in Operation if 3 <= operation <= 11 and operation != Operation.CLUSTER_ACTION]
_GROUP = [Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS]
_MINE_TOPICS = (MINE, FRESH, "fresh-mine-too", DOOMED[0], TOO_DOOMED[0])
_SEEN_TOPICS = (SEEN, FRESH_SEEN, DOOMED[1], TOO_DOOMED[1], "fresh-by-creator")
_SEES = [Operation.DESCRIBE]

USERS: Mapping[str, Collection[Rule]] = {
    STRANGER: (),
    TESTER: (
        *on(ResourceType.TOPIC, *_MINE_TOPICS, may=_TOPIC),
        *on(ResourceType.TOPIC, *_SEEN_TOPICS, may=_SEES),
        *on(ResourceType.GROUP, MINE, "consumers-mine", DOOMED[0], may=_GROUP),
        *on(ResourceType.GROUP, SEEN, "consumers-seen", DOOMED[1], may=_SEES),
        *on(ResourceType.TRANSACTIONAL_ID, MINE, may=[Operation.WRITE, Operation.DESCRIBE]),
        *on(ResourceType.TRANSACTIONAL_ID, SEEN, may=_SEES),
    ),
    "creator": (
        *on_cluster(Operation.CREATE),
        *on(ResourceType.TOPIC, FRESH_SEEN, may=_SEES),
    ),
    "describer": tuple(on_cluster(Operation.DESCRIBE)),
    "configurer": tuple(on_cluster(Operation.DESCRIBE_CONFIGS)),
    "cluster-configurer": tuple(on_cluster(Operation.ALTER_CONFIGS)),
    "actor": tuple(on_cluster(Operation.CLUSTER_ACTION)),
    "alterer": tuple(on_cluster(Operation.ALTER)),
    "numberer": tuple(on_cluster(Operation.IDEMPOTENT_WRITE)),
    "writer": tuple(on(ResourceType.TOPIC, MINE, may=[Operation.WRITE])),
}

Errors = dict[str, str]  # The error code by resource name; "" for the whole response, if it is refused.
DENIED_TOPIC, DENIED_GROUP = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
DENIED_ID, DENIED_CLUSTER = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"


class Row(NamedTuple):
    """One request, and the error codes of its response."""

    step: Step
    expected: Errors


class PatternIsResolved(NamedTuple):
    """A wait until a group reaches that epoch because of its pattern, or returns at once."""

    group: str
    epoch: int

    def is_over(self, client: RawClient) -> bool:
        request = base_groups.describe_consumers(self.group)
        (group,) = client.request(request, 1, ConsumerGroupDescribeResponse).groups
        return group.group_epoch >= self.epoch or any(one.assignment.topic_partitions for one in group.members)


Part = Row | Step | Ready | Taken | Wait


def _row(name: str, message: object, version: int, errors: Errors, *, by: str = TESTER) -> Row:
    errors = {part: code for part, code in errors.items() if part or code != "NONE"}
    api = type(message).__name__.removesuffix("Request")
    suffix = "" if by == TESTER else f", by the {by}"
    return Row(request_step(f"{api} v{version} / {name}{suffix}", VALID, message, version, on=by), errors)


def _first(name: str, message: object, version: int, *, learns: str = "") -> Step:
    """Yield the requests about resources that exist before the first step."""
    return request_step(f"first / {name}", VALID, message, version, learns=learns)


def _same(names: Sequence[str], code: str) -> Errors:
    return dict.fromkeys(names, code)


def _ids(names: Sequence[str]) -> list[Uuid]:
    return [NO_SUCH_ID if name == NOWHERE else id_of(name) for name in names]


# What is there.


def _preparations() -> list[Part]:
    parts: list[Part] = [Coordinators()]
    for name in THREE:
        places = [(topic, 0, 1, f"in {topic}") for topic in THREE]
        parts.append(_first(f"offsets of {name}", commit(9, name, *places), 9))
        parts.append(_first(f"transactional id {name}", init(name), 4, learns=name))
    parts += [_first(f"offsets of {name}", commit(9, name, (MINE, 0, 1, "")), 9) for name in DOOMED]
    # Its transaction contains a topic that others may not describe.
    parts.append(_first("adds", add(3, _transaction(MINE, (MINE, [0]), (HIDDEN, [0]))), 3))
    for group, topic in (("consumers-seen", HIDDEN), ("consumers-hidden", HIDDEN)):
        joins = beat(group, base_groups.UNKNOWN_MEMBER, 0, rebalance_ms=LONG_MS, names=[topic], owned=[])
        parts += [_first(f"{group} joins", joins, 1), ConsumerGroupIs(group, 1)]
    return parts


def _transaction(name: str, *topics: tuple[str, list[int]]) -> Any:
    return base_transactions.transaction(name, producer(name), 0, *topics)


# Topics.


def _produce(version: int, names: Sequence[str], records: bytes, **fields: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=records)]
    by_id = version >= 13
    return ProduceRequest(
        acks=-1,
        timeout_ms=9000,
        topic_data=[
            TopicProduceData(name="" if by_id else name, topic_id=topic_id if by_id else ZERO_UUID, partition_data=data)
            for name, topic_id in zip(names, _ids(names), strict=True)
        ],
        **fields,
    )


def _of_transaction(name: str, sequence: int = 0) -> bytes:
    return numbered(producer(name), 0, sequence, transactional=True)


def _produces() -> list[Part]:
    served = {MINE: "NONE", SEEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC}
    unserved = _same(THREE, DENIED_ID)
    return [
        _row("topics", _produce(9, FOUR, batch()), 9, served | {NOWHERE: DENIED_TOPIC}),
        _row("topics", _produce(3, FOUR, batch()), 3, served | {NOWHERE: DENIED_TOPIC}),
        _row("ids", _produce(13, FOUR, batch()), 13, served | {"id of nothing": "UNKNOWN_TOPIC_ID"}),
        *(
            _row(f"transaction {name}", _produce(11, THREE, _of_transaction(name), transactional_id=name), 11, unserved)
            for name in (SEEN, HIDDEN)
        ),
        _row(
            "a transaction",
            _produce(11, [MINE, HIDDEN], _of_transaction(MINE), transactional_id=MINE),
            11,
            {MINE: "NONE", HIDDEN: DENIED_TOPIC},
        ),
        _row(
            "another's id, no transaction", _produce(11, [MINE], batch(), transactional_id=HIDDEN), 11, {MINE: "NONE"}
        ),
        _row(
            "another's id",
            _produce(11, [MINE], _of_transaction(HIDDEN), transactional_id=HIDDEN),
            11,
            {MINE: DENIED_ID},
        ),
    ]


def _fetch(version: int, names: Sequence[str], **fields: Any) -> FetchRequest:
    by_id = version >= 13
    topics = [base.fetch_topic(version, [base.fetch_part(offset=0)], name) for name in names]
    for topic, topic_id in zip(topics, _ids(names), strict=True):
        topic.topic, topic.topic_id = ("", topic_id) if by_id else (topic.topic, ZERO_UUID)
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | fields
    return FetchRequest(topics=topics, forgotten_topics_data=[], **limits)


def _fetches() -> list[Part]:
    served = {MINE: "NONE", SEEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC}
    return [
        _row("topics", _fetch(12, FOUR), 12, served | {NOWHERE: DENIED_TOPIC}),
        _row("topics", _fetch(4, FOUR), 4, served | {NOWHERE: DENIED_TOPIC}),
        _row("ids", _fetch(13, FOUR), 13, served | {"id of nothing": "UNKNOWN_TOPIC_ID"}),
        _row("as a replica", _fetch(12, FOUR, replica_id=9), 12, _same(FOUR, DENIED_TOPIC)),
    ]


def _offsets() -> list[Part]:
    parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts) for name in FOUR])
    ends = base.ends_of_epochs([(0, 0)], *FOUR)
    named = {MINE: "NONE", SEEN: "NONE", HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC}
    return [
        _row("topics", request, 7, named),
        _row("topics", request, 1, named),
        _row("topics", request, 7, _same(FOUR, DENIED_TOPIC), by=STRANGER),
        _row("topics", ends, 4, named),
        _row("topics", ends, 2, named),
        _row("topics", ends, 3, _same(FOUR, DENIED_TOPIC), by=STRANGER),
        _row("topics", ends, 3, _same(THREE, "NONE") | {NOWHERE: "UNKNOWN_TOPIC_OR_PARTITION"}, by="actor"),
    ]


def _by_id(name: str) -> MetadataRequest:
    (topic_id,) = _ids([name])
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=topic_id)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def _metadata() -> list[Part]:
    named = {MINE: "NONE", SEEN: "NONE", HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC}
    every = _same((MINE, SEEN, *DOOMED[:2], *TOO_DOOMED[:2]), "NONE")
    fresh = {FRESH: "NONE", FRESH_SEEN: DENIED_TOPIC, FRESH_HIDDEN: DENIED_TOPIC}
    everything = MetadataRequest(topics=None, allow_auto_topic_creation=True)
    return [
        _row("topics", base.metadata(12, *FOUR), 12, named),
        _row("topics", base.metadata(9, *FOUR), 9, named),
        _row("topics", base.metadata(1, *THREE), 1, {MINE: "NONE", SEEN: "NONE", HIDDEN: DENIED_TOPIC}),
        _row("all", everything, 12, every),
        _row("all", everything, 13, every),
        _row("all", MetadataRequest(topics=[], allow_auto_topic_creation=True), 0, every),
        _row("all", everything, 12, {}, by=STRANGER),
        *(
            _row(f"id of {name}", _by_id(name), 12, {error: code})
            for name, error, code in (
                (MINE, MINE, "NONE"),
                (SEEN, SEEN, "NONE"),
                (HIDDEN, HIDDEN, DENIED_TOPIC),
                (NOWHERE, "id of nothing", "UNKNOWN_TOPIC_ID"),
            )
        ),
        _row("the cluster", base.metadata(9), 9, {}, by="describer"),
        _row("creates", base.metadata(12, FRESH, FRESH_SEEN, FRESH_HIDDEN, creates=True), 12, fresh),
        Ready(FRESH, 1),
        _row(
            "creates all",
            base.metadata(12, FRESH_SEEN, FRESH_HIDDEN, creates=True),
            12,
            {FRESH_SEEN: "NONE", FRESH_HIDDEN: DENIED_TOPIC},
            by="creator",
        ),
        Ready(FRESH_SEEN, 1),
    ]


def _topics() -> list[Part]:
    fresh = [base.topic(name) for name in ("fresh-mine-too", FRESH_HIDDEN, HIDDEN, MINE)]
    errors = {"fresh-mine-too": "NONE", FRESH_HIDDEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC, MINE: "TOPIC_ALREADY_EXISTS"}
    grown = [
        CreatePartitionsTopic(name=name, count=2, assignments=None)
        for name in ("fresh-mine-too", SEEN, HIDDEN, NOWHERE)
    ]
    by_id = [DeleteTopicState(name=None, topic_id=one) for one in [*map(id_of, TOO_DOOMED), NO_SUCH_ID]]
    deleted = base.delete_records(*((name, 0, 0) for name in FOUR))
    return [
        _row("records", deleted, 2, {MINE: "NONE"} | _same((SEEN, HIDDEN, NOWHERE), DENIED_TOPIC)),
        _row("records", deleted, 0, _same(FOUR, DENIED_TOPIC), by=STRANGER),
        _row("topics", base.create(*fresh), 7, errors),
        Ready("fresh-mine-too", 1),
        _row(
            "topics",
            base.create(base.topic("fresh-by-creator"), base.topic(HIDDEN)),
            7,
            {"fresh-by-creator": "NONE", HIDDEN: "TOPIC_ALREADY_EXISTS"},
            by="creator",
        ),
        Ready("fresh-by-creator", 1),
        _row(
            "topics",
            CreatePartitionsRequest(topics=grown, timeout_ms=9000, validate_only=False),
            3,
            {"fresh-mine-too": "NONE", SEEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC},
        ),
        Ready("fresh-mine-too", 2),
        _row(
            "topics",
            base.delete(6, *DOOMED, NOWHERE),
            6,
            {DOOMED[0]: "NONE", NOWHERE: DENIED_TOPIC} | _same(DOOMED[1:], DENIED_TOPIC),
        ),
        _row("topics", base.delete(5, HIDDEN, SEEN), 5, _same((HIDDEN, SEEN), DENIED_TOPIC)),
        _row(
            "ids",
            DeleteTopicsRequest(topics=by_id, timeout_ms=9000),
            6,
            {TOO_DOOMED[0]: "NONE", "id of nothing": "UNKNOWN_TOPIC_ID"} | _same(TOO_DOOMED[1:], DENIED_TOPIC),
        ),
        Ready(DOOMED[0], 0),
        Ready(TOO_DOOMED[0], 0),
    ]


def _descriptions() -> list[Part]:
    one = ["retention.ms"]
    resources = [(2, name, one) for name in FOUR]
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    named = {MINE: "NONE", SEEN: "NONE", HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC}
    producers = base_transactions.producers_of(*((name, [0]) for name in FOUR))
    of_broker = (4, "1", [("log.cleaner.threads", base.SET, "1")])
    edits = [*((2, name, [("segment.ms", base.SET, "604800000")]) for name in FOUR), of_broker]
    replaced = [*((2, name, [("segment.ms", "604800000")]) for name in FOUR), (4, "1", [("log.cleaner.threads", "1")])]
    altered = {MINE: "NONE", "1": DENIED_CLUSTER} | _same((SEEN, HIDDEN, NOWHERE), DENIED_TOPIC)
    return [
        _row(
            "resources",
            base.configs(4, *resources, (4, "1", ["log.retention.ms"])),
            4,
            {MINE: "NONE", SEEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC, "1": DENIED_CLUSTER},
        ),
        _row(
            "resources",
            base.configs(4, (4, "1", ["log.retention.ms"]), (2, HIDDEN, one)),
            4,
            {"1": "NONE", HIDDEN: DENIED_TOPIC},
            by="configurer",
        ),
        _row("topics, asked only", base.alter(*edits, dry=True), 1, altered),
        _row("topics", base.alter(*edits), 1, altered),
        _row("topics", base.replace(*replaced), 2, altered),
        _row("the broker", base.alter(of_broker, dry=True), 1, {"1": "NONE"}, by="cluster-configurer"),
        _row("types", base.resources(1, 4, 8), 1, {"": DENIED_CLUSTER}),
        _row("types", base.resources(1, 4, 8), 1, {"1": "NONE"}, by="configurer"),
        _row("folders", base.log_dirs((MINE, [0]), (HIDDEN, [0])), 5, {"": DENIED_CLUSTER}),
        _row("folders", base.log_dirs((MINE, [0]), (HIDDEN, [0])), 1, {}),
        _row("folders", base.log_dirs((MINE, [0]), (HIDDEN, [0])), 5, {}, by="describer"),
        _row("elsewhere", base.move(MINE, HIDDEN), 2, _same([MINE, HIDDEN], DENIED_CLUSTER)),
        _row("elsewhere", base.move(MINE, HIDDEN), 1, _same([MINE, HIDDEN], "LOG_DIR_NOT_FOUND"), by="alterer"),
        _row("leaders", base.elect({MINE: [0]}), 2, {"": DENIED_CLUSTER, MINE: DENIED_CLUSTER}),
        _row("leaders", base.elect({MINE: [0]}), 0, {MINE: DENIED_CLUSTER}, by=STRANGER),
        _row("leaders", base.elect({MINE: [0]}), 2, {MINE: "ELECTION_NOT_NEEDED"}, by="alterer"),
        _row("operations", cluster, 1, {}),
        _row("operations", cluster, 1, {}, by="describer"),
        _row("topics", base.partitions(list(FOUR)), 0, named),
        _row(
            "a page",
            base.partitions(list(FOUR), limit=1),
            0,
            {MINE: "NONE", HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC},
        ),
        _row("all", base.partitions([], limit=1, cursor=(HIDDEN, 0)), 0, {MINE: "NONE"}),
        _row("all", base.partitions([]), 0, {}, by=STRANGER),
        _row("topics", producers, 0, named | {SEEN: DENIED_TOPIC}),
        _row("anybody", base.software(), 3, {}, by=STRANGER),
    ]


# Groups.


def _groups() -> list[Part]:
    of_group = {MINE: "UNKNOWN_MEMBER_ID", SEEN: DENIED_GROUP, HIDDEN: DENIED_GROUP}
    messages: list[tuple[Callable[[str], object], int]] = [
        (lambda name: base_groups.sync(5, name, UNKNOWN_MEMBER, 1), 5),
        (lambda name: base_groups.heartbeat(name, UNKNOWN_MEMBER, 1), 4),
        (lambda name: base_groups.leave(2, name, (UNKNOWN_MEMBER, None)), 2),
        (lambda name: base_groups.join(9, name, UNKNOWN_MEMBER), 9),
        (lambda name: base_groups.join(5, name, UNKNOWN_MEMBER), 5),
    ]
    described = {MINE: "NONE", SEEN: "NONE", HIDDEN: DENIED_GROUP, NOWHERE: DENIED_GROUP}
    return [
        *(
            _row(f"group {name}", message(name), version, {"": code})
            for message, version in messages
            for name, code in of_group.items()
        ),
        *(
            _row(f"group {name}", base_groups.leave(5, name, (UNKNOWN_MEMBER, None)), 5, errors)
            for name, errors in (
                (MINE, {UNKNOWN_MEMBER: "UNKNOWN_MEMBER_ID"}),
                (SEEN, {"": DENIED_GROUP}),
                (HIDDEN, {"": DENIED_GROUP}),
            )
        ),
        _row("groups", find(4, *FOUR), 4, described),
        _row("ids", find(4, *FOUR, kind=1), 4, _same((MINE, SEEN), "NONE") | _same((HIDDEN, NOWHERE), DENIED_ID)),
        *(
            _row(f"{name}, kind {kind}", find(3, name, kind=kind), 3, {"": code})
            for name, kind, code in ((SEEN, 0, "NONE"), (HIDDEN, 0, DENIED_GROUP), (HIDDEN, 1, DENIED_ID))
        ),
        _row("groups", describe(5, *FOUR, operations=True), 5, described),
        _row(
            "groups", describe(6, MINE, HIDDEN, NOWHERE), 6, {MINE: "NONE", HIDDEN: DENIED_GROUP, NOWHERE: DENIED_GROUP}
        ),
        _row("groups", base_groups.listed(), 4, {MINE: "NONE", SEEN: "NONE"}),
        _row("groups", base_groups.listed(), 4, _same(THREE, "NONE"), by="describer"),
        _row("groups", base_groups.listed(), 4, {}, by=STRANGER),
        _row(
            "groups",
            base_groups.delete_groups(*DOOMED, NOWHERE),
            2,
            {DOOMED[0]: "NONE", NOWHERE: DENIED_GROUP} | _same(DOOMED[1:], DENIED_GROUP),
        ),
    ]


def _consumers() -> list[Part]:
    def joins(group: str, names: Sequence[str] | None, regex: str | None = None) -> object:
        return beat(group, UNKNOWN_MEMBER, 0, rebalance_ms=LONG_MS, names=names, regex=regex, owned=[])

    return [
        _row("a hidden group", joins("consumers-hidden", [MINE]), 1, {"": DENIED_GROUP}),
        _row("a seen group", joins("consumers-seen", [MINE]), 1, {"": DENIED_GROUP}),
        _row("a hidden topic", joins("consumers-mine", [MINE, HIDDEN]), 1, {"": DENIED_TOPIC}),
        _row("no such topic", joins("consumers-mine", [NOWHERE]), 0, {"": DENIED_TOPIC}),
        _row("topics", joins("consumers-mine", [MINE, SEEN]), 1, {MINE: "NONE", SEEN: "NONE"}),
        _row("leaves", beat("consumers-mine", UNKNOWN_MEMBER, -1), 1, {}),
        _row("a pattern", joins("consumers-mine", None, PATTERN), 1, {MINE: "NONE", SEEN: "NONE"}),
        PatternIsResolved("consumers-mine", 4),
        _row("a pattern again", joins("consumers-mine", None, PATTERN), 1, {MINE: "NONE", SEEN: "NONE"}),
        _row(
            "groups",
            base_groups.describe_consumers("consumers-mine", "consumers-seen", "consumers-hidden", operations=True),
            1,
            {
                "consumers-mine": "NONE",
                MINE: "NONE",
                SEEN: "NONE",
                "consumers-seen": DENIED_TOPIC,
                "consumers-hidden": DENIED_GROUP,
            },
        ),
    ]


def _group_offsets() -> list[Part]:
    places = [(name, 0, 7, "told") for name in FOUR]
    read = {MINE: "NONE", SEEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC}
    # A group with the same name as a topic: both are returned.
    places_requested = [(name, [0]) for name in FOUR]
    seen = {SEEN: "NONE", HIDDEN: DENIED_TOPIC, NOWHERE: DENIED_TOPIC}
    return [
        _row("topics", commit(9, MINE, *places), 9, read),
        _row("topics", commit(2, MINE, *places), 2, read),
        *(
            _row(f"group {name}", commit(9, name, *places), 9, _same(FOUR, DENIED_GROUP))
            for name in (SEEN, HIDDEN, NOWHERE)
        ),
        _row("ids", commit(10, MINE, *places[:3]), 10, {name: read[name] for name in THREE}),
        _row("topics", fetch_offsets(9, (MINE, places_requested)), 9, {MINE: "NONE"} | seen),
        _row("topics", fetch_offsets(7, (MINE, places_requested)), 7, {MINE: "NONE"} | seen),
        _row(
            "ids",
            fetch_offsets(10, (MINE, places_requested[:3])),
            10,
            {MINE: "NONE", SEEN: "NONE", HIDDEN: DENIED_TOPIC},
        ),
        _row(
            "groups",
            fetch_offsets(9, ("doomed-seen", places_requested[:1]), (HIDDEN, places_requested[:1])),
            9,
            {MINE: "NONE", HIDDEN: DENIED_GROUP},
        ),
        _row(
            "all", fetch_offsets(9, (SEEN, None), (HIDDEN, None)), 9, {SEEN: "NONE", MINE: "NONE", HIDDEN: DENIED_GROUP}
        ),
        _row("all", fetch_offsets(10, (SEEN, None)), 10, {SEEN: "NONE", MINE: "NONE"}),
        _row("group", fetch_offsets(7, (HIDDEN, places_requested[:1])), 7, {"": DENIED_GROUP}),
        _row("group", fetch_offsets(1, (HIDDEN, places_requested[:1])), 1, {MINE: DENIED_GROUP}),
        _row("topics", base_groups.delete_offsets(MINE, *((name, [0]) for name in FOUR)), 0, read),
        *(
            _row(f"group {name}", base_groups.delete_offsets(name, (MINE, [0])), 0, {"": DENIED_GROUP})
            for name in (SEEN, HIDDEN)
        ),
    ]


# Transactions.


def _transactions() -> list[Part]:
    ids = [*THREE, NOWHERE]
    of_brokers = [base_transactions.transaction(name, NO_SUCH_PRODUCER, 0, (HIDDEN, [0])) for name in THREE]
    marked = mark(marker(NO_SUCH_PRODUCER, 3, (NOWHERE, [0])))
    refused = {SEEN: DENIED_TOPIC, HIDDEN: DENIED_TOPIC}
    return [
        _row(
            "ids",
            base_transactions.describe_transactions(*ids),
            0,
            _same((MINE, SEEN), "NONE") | _same((HIDDEN, NOWHERE), DENIED_ID),
        ),
        _row("ids", base_transactions.list_transactions(), 1, {MINE: "NONE", SEEN: "NONE"}),
        _row("ids", base_transactions.list_transactions(), 1, {}, by=STRANGER),
        *(_row(f"id {name}", end(name, producer(name), 0), 3, {"": DENIED_ID}) for name in (SEEN, HIDDEN)),
        _first("ends", end(MINE, producer(MINE), 0), 3),
        TransactionIs(MINE, "CompleteCommit"),
        *(
            _row(
                f"id {name}",
                add(3, _transaction(name, (MINE, [0]), (HIDDEN, [0]))),
                3,
                _same((MINE, HIDDEN), DENIED_ID),
            )
            for name in (SEEN, HIDDEN)
        ),
        _row(
            "topics",
            add(3, _transaction(MINE, (MINE, [0]), (SEEN, [0]), (HIDDEN, [0]), (NOWHERE, [0]))),
            3,
            _same((SEEN, HIDDEN, NOWHERE), DENIED_TOPIC) | {MINE: "OPERATION_NOT_ATTEMPTED"},
        ),
        _row("a topic", add(3, _transaction(MINE, (MINE, [0]))), 3, {MINE: "NONE"}),
        _row("as a broker", add(4, *of_brokers), 4, {"": DENIED_CLUSTER}),
        _row("as a broker", add(4, *of_brokers), 4, {HIDDEN: "INVALID_PRODUCER_ID_MAPPING"}, by="actor"),
        *(
            _row(f"{name}, {group}", add_offsets(name, producer(name), 0, group), 3, {"": code})
            for name, group, code in (
                (HIDDEN, MINE, DENIED_ID),
                (SEEN, MINE, DENIED_ID),
                (MINE, HIDDEN, DENIED_GROUP),
                (MINE, SEEN, DENIED_GROUP),
                (MINE, MINE, "NONE"),
            )
        ),
        *(
            _row(
                f"{name}, {group}",
                commit_offsets(name, producer(name), 0, group, *((one, 0, 9, "") for one in FOUR)),
                3,
                errors,
            )
            for name, group, errors in (
                (HIDDEN, MINE, _same(FOUR, DENIED_ID)),
                (MINE, SEEN, _same(FOUR, DENIED_GROUP)),
                (MINE, MINE, {MINE: "NONE", NOWHERE: DENIED_TOPIC} | refused),
            )
        ),
        _row("ends", end(MINE, producer(MINE), 0), 3, {}),
        TransactionIs(MINE, "CompleteCommit"),
        *(
            _row(f"{name}", init(name), 4, {"": code})
            for name, code in ((SEEN, DENIED_ID), (HIDDEN, DENIED_ID), (MINE, "NONE"))
        ),
        _row("two phases", init(MINE, two_phase=True), 6, {"": DENIED_ID}),
        *(
            _row("no id", init(None), 4, {"": code}, by=user)
            for user, code in ((STRANGER, DENIED_CLUSTER), ("numberer", "NONE"), ("writer", "NONE"))
        ),
        _row("marks", marked, 1, {NOWHERE: DENIED_CLUSTER}),
        _row("marks", marked, 1, {NOWHERE: "UNKNOWN_TOPIC_OR_PARTITION"}, by="alterer"),
        _row("marks", marked, 1, {NOWHERE: "UNKNOWN_TOPIC_OR_PARTITION"}, by="actor"),
    ]


@cache
def table() -> list[Part]:
    return [
        *_preparations(),
        *_fetches(),
        *_produces(),
        *_transactions(),
        *_offsets(),
        *_descriptions(),
        *_metadata(),
        *_topics(),
        *_groups(),
        *_group_offsets(),
        *_consumers(),
    ]


@cache
def rows() -> list[Row]:
    return [part for part in table() if isinstance(part, Row)]


@cache
def scenario() -> Scenario:
    steps = [part.step if isinstance(part, Row) else part for part in table()]
    topics = [base.topic(name) for name in (*THREE, *DOOMED, *TOO_DOOMED)]
    return Scenario("access", steps, topics, [(name, 0, batch()) for name in THREE])
