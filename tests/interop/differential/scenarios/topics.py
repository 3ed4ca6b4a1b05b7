"""CreateTopics, CreatePartitions and DeleteTopics: refused, executed, and repeated."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import create, delete, grow, topic
from differential.steps import BORDERLINE, NO_SUCH_ID, VALID, WRONG, Ready, Scenario, Step, id_of, request_step
from odradek.base.units import INT32_MAX
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

THERE = "there.to-stay"

TOPICS: dict[str, list[CreatableTopic]] = {
    "good": [topic("good", 3, retention_ms="1000")],
    "defaults": [topic("good", -1, -1)],
    "there": [topic(THERE), topic("good")],
    "names": [topic(name) for name in ("", ".", "..", "a/b", "a b", "\u00e9", "x" * 250, "x" * 249)],
    "collides": [topic("there_to-stay"), topic("there.to_stay"), topic("there.to.stay")],
    "collides with another in the request": [topic("new.one"), topic("new_one")],
    "internal": [topic("__consumer_offsets"), topic("__transaction_state"), topic("__share_group_state")],
    "metadata log": [topic("__cluster_metadata")],
    "twice": [topic("good"), topic("good")],
    "twice, and another": [topic("good"), topic("good"), topic("better")],
    "none": [],
    "counts": [topic("good", 0), topic("better", -2), topic("best", 10_000)],
    "too many": [topic("good", 10_001)],
    "too many together": [topic("good", 6_000), topic("better", 6_000)],
    "far too many": [topic("good", INT32_MAX), topic("better", INT32_MAX)],
    "copies": [topic("a", 1, 2), topic("b", 1, 0), topic("c", 1, -2), topic("d", 1, 32767), topic("e", -1, 1)],
    "wrong in every way": [
        topic("a/b", 0, 5, no_such="1"),
        topic(THERE, 0, 5, no_such="1"),
        topic("good", 0, 5, no_such="1"),
    ],
    "by hand": [topic("good", -1, -1, {0: [1], 1: [1]}), topic("better", -1, -1, {1: [1], 0: [1]})],
    "by a bad hand": [
        topic("unknown-broker", -1, -1, {0: [9]}),
        topic("gap", -1, -1, {0: [1], 2: [1]}),
        topic("not-from-0", -1, -1, {1: [1]}),
        topic("negative", -1, -1, {-1: [1]}),
        topic("broker-twice", -1, -1, {0: [1, 1]}),
        topic("nobody", -1, -1, {0: []}),
        topic("uneven", -1, -1, {0: [1], 1: [1, 9]}),
        topic("counted-too", 1, 1, {0: [1]}),
        topic("partitions-too", 1, -1, {0: [1]}),
        topic("copies-too", -1, 1, {0: [1]}),
        topic("negative-broker", -1, -1, {0: [-1]}),
    ],
    "configured": [
        topic(
            "good",
            cleanup_policy="compact,delete",
            compression_type="zstd",
            max_message_bytes="2000000",
            min_insync_replicas="1",
            segment_bytes="1048576",
            message_timestamp_type="LogAppendTime",
        )
    ],
    "configured badly": [
        topic("unknown", no_such="1"),
        topic("no-number", retention_ms="soon"),
        topic("no-value", retention_ms=None),
        topic("no-value-unknown", no_such=None),
        topic("empty", retention_ms=""),
        topic("spaces", retention_ms=" 1000 "),
        topic("out-of-range", segment_bytes="1"),
        topic("no-choice", cleanup_policy="burn"),
        topic("no-codec", compression_type="rar"),
        topic("no-bool", preallocate="perhaps"),
        topic("no-list", leader_replication_throttled_replicas="x"),
        topic("broker-key", num_partitions="1"),
    ],
}


def scenarios() -> list[Scenario]:
    return [
        Scenario("topics prepared", [], [topic(THERE)]),
        *(_validated(version) for version in range(2, 8)),
        *(_made(version) for version in range(2, 8)),
        *(_grown(version) for version in range(4)),
        *(_deleted(version) for version in range(1, 7)),
        *_timed(),
    ]


def _validated(version: int) -> Scenario:
    steps = [
        request_step(text, VALID if text in ("good", "configured") else WRONG, create(*created, dry=True), version)
        for text, created in TOPICS.items()
    ]
    for key, value in (("retention.ms", "1"), ("retention.ms", None)):
        config = CreatableTopicConfig(name=key, value=value)
        created = topic("configured-twice")
        created.configs = [CreatableTopicConfig(name="retention.ms", value="5"), config]
        steps.append(request_step(f"configured twice, then {value}", BORDERLINE, create(created, dry=True), version))
    created = topic("assigned-twice", -1, -1)
    created.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1]) for _ in range(2)]
    steps.append(request_step("partition assigned twice", WRONG, create(created, dry=True), version))
    return Scenario(f"CreateTopics v{version} asked", steps)


def _made(version: int) -> Scenario:
    name = f"made-{version}"
    good = create(topic(name, 2, retention_ms="5000", cleanup_policy="compact"), topic(f"{name}/"))
    return Scenario(
        f"CreateTopics v{version} made",
        [
            request_step("made, and one that can not be", VALID, good, version),
            Ready(name, 2),
            request_step("made again", WRONG, good, version),
            request_step("made again, asked only", WRONG, create(topic(name), dry=True), version),
            request_step("by hand", VALID, create(topic(f"{name}-hand", -1, -1, {0: [1], 1: [1], 2: [1]})), version),
            Ready(f"{name}-hand", 3),
        ],
    )


def _grown(version: int) -> Scenario:
    name = f"grown-{version}"

    def step(text: str, form: str, count: int, *assignments: list[int], dry: bool = False, at: str = name) -> Step:
        return request_step(text, form, grow(at, count, *assignments, dry=dry), version)

    no_assignments = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=4, assignments=[])], timeout_ms=9000, validate_only=True
    )
    empty = [CreatePartitionsAssignment(broker_ids=[])]
    unassigned = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=3, assignments=empty)], timeout_ms=9000, validate_only=True
    )
    twice = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for count in (5, 6)]
        + [CreatePartitionsTopic(name="nowhere", count=2, assignments=None)],
        timeout_ms=9000,
        validate_only=False,
    )
    none = CreatePartitionsRequest(topics=[], timeout_ms=9000, validate_only=False)
    steps: list[Step | Ready] = [
        step("as many", WRONG, 2),
        step("fewer", WRONG, 1),
        step("none", WRONG, 0),
        step("negative", WRONG, -1),
        step("10,000 more, asked only", BORDERLINE, 10_002, dry=True),
        step("10,001 more", WRONG, 10_003, dry=True),
        step("any number more", WRONG, INT32_MAX, dry=True),
        step("an unknown broker", WRONG, 3, [9]),
        step("too few assignments", WRONG, 4, [1]),
        step("too many assignments", WRONG, 3, [1], [1]),
        step("a broker twice", WRONG, 3, [1, 1]),
        step("other copies", WRONG, 3, [1, 2]),
        request_step("an empty list of assignments", BORDERLINE, no_assignments, version),
        request_step("nobody assigned", WRONG, unassigned, version),
        request_step("twice", WRONG, twice, version),
        request_step("no topics", BORDERLINE, none, version),
        step("nowhere", WRONG, 2, at="nowhere"),
        step("a bad name", WRONG, 2, at="a/b"),
        step("asked only", VALID, 4, dry=True),
        step("asked only, by hand", VALID, 4, [1], [1], dry=True),
        step("grown", VALID, 4, [1], [1]),
        Ready(name, 4),
        step("grown again", VALID, 5),
        Ready(name, 5),
    ]
    return Scenario(f"CreatePartitions v{version} grown", steps, [topic(name, 2)])


def _deleted(version: int) -> Scenario:
    name = f"deleted-{version}"
    steps: list[Step | Ready] = [
        request_step("nowhere", WRONG, delete(version, "nowhere"), version),
        request_step("bad names", WRONG, delete(version, "", "a/b", "x" * 250), version),
        request_step("nowhere twice", WRONG, delete(version, "nowhere", "nowhere"), version),
        request_step("twice", WRONG, delete(version, name, name), version),
        request_step("no topics", BORDERLINE, delete(version), version),
        request_step("deleted, and one that is not there", VALID, delete(version, name, "nowhere"), version),
        Ready(name, 0),
        request_step("deleted again", WRONG, delete(version, name), version),
    ]
    if version >= 6:
        steps += _by_state(version, f"{name}-id")
    return Scenario(f"DeleteTopics v{version} deleted", steps, [topic(name, 2), topic(f"{name}-id")])


def _by_state(version: int, name: str) -> Iterator[Step | Ready]:
    def step(text: str, form: str, *states: tuple[str | None, Uuid]) -> Step:
        topics = [DeleteTopicState(name=each, topic_id=topic_id) for each, topic_id in states]
        return request_step(text, form, DeleteTopicsRequest(topics=topics, timeout_ms=9000), version)

    known = id_of(name)
    yield step("unknown id", WRONG, (None, NO_SUCH_ID))
    yield step("unknown id twice", WRONG, (None, NO_SUCH_ID), (None, NO_SUCH_ID))
    yield step("neither", WRONG, (None, ZERO_UUID))
    yield step("neither, twice", WRONG, (None, ZERO_UUID), (None, ZERO_UUID))
    yield step("both", WRONG, (name, known))
    yield step("by name and by id", WRONG, (name, ZERO_UUID), (None, known))
    yield step("id twice", WRONG, (None, known), (None, known))
    yield step("an empty name", WRONG, ("", ZERO_UUID))
    yield step("by id, and one by name", VALID, (None, known), ("nowhere", ZERO_UUID))
    yield Ready(name, 0)
    yield step("by id again", WRONG, (None, known))


def _timed() -> Iterator[Scenario]:
    """Send timeouts without any time to complete: invalid requests are still refused for their errors."""
    for timeout_ms in (0, -1):
        refused = create(topic("a/b"), topic(THERE), timeout_ms=timeout_ms)
        grown = grow("nowhere", 3)
        grown.timeout_ms = timeout_ms
        deletion = delete(5, "nowhere")
        deletion.timeout_ms = timeout_ms
        steps = [
            request_step("create", BORDERLINE, refused, 7),
            request_step("grow", BORDERLINE, grown, 3),
            request_step("delete", BORDERLINE, deletion, 5),
        ]
        yield Scenario(f"topics with timeout {timeout_ms}", steps)
