"""Fetch: positions, sizes, epochs, names and ids."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import BASE, fetch, fetch_part, fetch_topic, offsets, topic
from differential.batches import THEN_MS, batch, compressed
from differential.steps import BORDERLINE, CLUSTER, NO_SUCH_ID, VALID, WRONG, Scenario, Step, request_step
from odradek.base.units import INT32_MAX, INT64_MAX
from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

VERSIONS = range(4, 19)
NAME = "fetched"  # Ten batches of two records, then one of each codec; nothing in its second partition.
END = 28
UNWRITTEN = "unwritten"
BATCH_BYTES = len(batch())
OFFSETS = {"start": 0, "inside a batch": 5, "last": END - 1, "end": END}
WRONG_OFFSETS = {"end + 1": END + 1, "far": INT64_MAX, "-1": -1, "-2": -2, "lowest": -INT64_MAX - 1}
SIZES = (0, 1, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2 * BATCH_BYTES, INT32_MAX)


def scenarios() -> list[Scenario]:
    records = [batch(THEN_MS + 10 * number) for number in range(10)] + [compressed(codec) for codec in range(1, 5)]
    prepared = Scenario(
        "fetch prepared", [], [topic(NAME, 2)], [(NAME, 0, each) for each in records] + [(NAME, 1, batch())]
    )
    return [
        prepared,
        *(Scenario(f"Fetch v{version} reads", list(_steps(version))) for version in VERSIONS),
        Scenario("Fetch of a partition never written to", list(_unwritten()), [topic(UNWRITTEN)]),
    ]


def _unwritten() -> Iterator[Step]:
    """Fetch an empty partition, whose leader knows its epoch nevertheless."""
    for epoch, offset in ((0, 0), (0, 1), (1, 0), (-1, 0)):
        part = fetch_part(0, offset)
        part.last_fetched_epoch = epoch
        yield request_step(f"last fetched epoch {epoch} at {offset}", BORDERLINE, fetch(12, [part], UNWRITTEN), 12)
    for text, timestamp in (("latest", -1), ("earliest", -2), ("greatest", -3)):
        yield request_step(text, VALID, offsets([(0, timestamp)], UNWRITTEN), 7)


def _steps(version: int) -> Iterator[Step]:
    def read(text: str, form: str, *parts: tuple[int, int, int], **fields: int) -> Step:
        partitions = [fetch_part(index, offset, size) for index, offset, size in parts]
        return request_step(text, form, fetch(version, partitions, NAME, **fields), version)

    for text, offset in OFFSETS.items():
        yield read(f"offset {text}", VALID, (0, offset, 1 << 20))
    for text, offset in WRONG_OFFSETS.items():
        yield read(f"offset {text}", WRONG, (0, offset, 1 << 20))
    for size in SIZES:
        yield read(f"partition max bytes {size}", BORDERLINE, (0, 0, size))
        yield read(f"max bytes {size}", BORDERLINE, (0, 0, 1 << 20), (1, 0, 1 << 20), max_bytes=size)
    yield read("both, the first with 1 byte", BORDERLINE, (0, 0, 1), (1, 0, 1))
    yield read("more than there is", BORDERLINE, (0, END, 1 << 20), min_bytes=1 << 20)
    yield read("min bytes 0", BORDERLINE, (0, END, 1 << 20), min_bytes=0)
    yield read("min bytes -1", BORDERLINE, (0, END, 1 << 20), min_bytes=-1)
    yield read("max wait -1", BORDERLINE, (0, END, 1 << 20), max_wait_ms=-1)
    yield read("read committed", VALID, (0, 20, 1 << 20), isolation_level=1)
    yield read("read committed, partition 9", WRONG, (9, 0, 1 << 20), isolation_level=1)
    yield read("read committed, out of range", WRONG, (0, 99, 1 << 20), isolation_level=1)
    yield read("no partitions", BORDERLINE)
    yield read("partition twice", BORDERLINE, (0, 0, 200), (0, 18, 200))
    yield read("one partition not there", WRONG, (0, 26, 1 << 20), (7, 0, 1 << 20))
    yield request_step("no topics", BORDERLINE, _request([]), version)
    yield from _names(version)
    yield from _epochs(version)
    yield from _replicas(version)
    if version >= 12:
        for text, cluster in (("right", CLUSTER), ("wrong", "x" * 22), ("empty", "")):
            request = fetch(version, [fetch_part(0, 26)], NAME)
            request.cluster_id = cluster
            yield request_step(f"cluster id {text}", BORDERLINE, request, version)


def _request(topics: list[FetchTopic], **fields: object) -> FetchRequest:
    values: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return FetchRequest(topics=topics, **(values | fields))  # type: ignore[arg-type]


def _names(version: int) -> Iterator[Step]:
    parts = [fetch_part(0, 26)]
    if version >= 13:
        for text, topic_id in (("unknown", NO_SUCH_ID), ("zero", ZERO_UUID)):
            topics = [FetchTopic(topic_id=topic_id, partitions=parts)]
            yield request_step(f"id {text}", WRONG, _request(topics), version)
            mixed = [*topics, fetch_topic(version, parts, NAME)]
            yield request_step(f"id {text}, and a good one", WRONG, _request(mixed), version)
    else:
        for name in ("", "nowhere", "a/b", "x" * 250):
            yield request_step(
                f"topic {name[:20]!r}", WRONG, _request([FetchTopic(topic=name, partitions=parts)]), version
            )
    twice = [fetch_topic(version, parts, NAME), fetch_topic(version, [fetch_part(1, 0)], NAME)]
    yield request_step("topic twice", BORDERLINE, _request(twice), version)
    both = [fetch_topic(version, parts, NAME), fetch_topic(version, [fetch_part(0, 18)], BASE)]
    yield request_step("two topics", VALID, _request(both, max_bytes=150), version)
    no_parts = [fetch_topic(version, [], NAME), fetch_topic(version, [fetch_part(0, 26)], NAME)]
    yield request_step("a topic without partitions", BORDERLINE, _request(no_parts), version)
    if version >= 7:
        forgotten = [ForgottenTopic(topic="nowhere", topic_id=NO_SUCH_ID, partitions=[0])]
        topics = [fetch_topic(version, parts, NAME)]
        yield request_step(
            "forgets without a session", BORDERLINE, _request(topics, forgotten_topics_data=forgotten), version
        )


def _epochs(version: int) -> Iterator[Step]:
    if version >= 9:
        for epoch in (-1, 0):
            request = fetch(version, [fetch_part(0, 26, epoch=epoch)], NAME)
            yield request_step(f"leader epoch {epoch}", VALID, request, version)
        for epoch in (1, INT32_MAX, -2):
            request = fetch(version, [fetch_part(0, 26, epoch=epoch)], NAME)
            yield request_step(f"leader epoch {epoch}", WRONG, request, version)
    if version >= 12:
        for epoch, offset in ((0, 26), (0, END), (0, END + 1), (1, 26), (1, END), (-1, 26), (-2, 26), (99, 0)):
            part = fetch_part(0, offset)
            part.last_fetched_epoch = epoch
            yield request_step(
                f"last fetched epoch {epoch} at {offset}", BORDERLINE, fetch(version, [part], NAME), version
            )


def _replicas(version: int) -> Iterator[Step]:
    for replica in (1, 2, -2):
        request = fetch(version, [fetch_part(0, 26)], NAME)
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=replica, replica_epoch=-1)
        else:
            request.replica_id = replica
        yield request_step(f"as replica {replica}", WRONG, request, version)
