"""Fetch sessions: opened, continued, lost, evicted and closed, in every version that supports them (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from differential.base import BASE, fetch_part, fetch_topic, produce, topic
from differential.batches import batch
from differential.steps import BORDERLINE, NO_SUCH_ID, SESSION, VALID, WRONG, Ready, Scenario, Step, id_of, request_step
from odradek.base.units import INT32_MAX
from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic

VERSIONS = range(7, 19)


def scenarios() -> list[Scenario]:
    return [_scenario(version) for version in VERSIONS]


def _scenario(version: int) -> Scenario:
    name = f"session-{version}"
    return Scenario(
        f"Fetch v{version} sessions",
        [*_life(version, name), *_wrong(version, name), *_deleted(version, name)],
        [topic(name, 3)],
        [(name, 0, batch()), (name, 1, batch())],
    )


def _request(
    version: int, topics: list[FetchTopic], epoch: int, session: int = SESSION, forgotten: Sequence[ForgottenTopic] = ()
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=list(forgotten),
    )


def _life(version: int, name: str) -> Iterator[Step]:
    def step(text: str, epoch: int, *parts: tuple[int, int], session: int = SESSION, form: str = VALID) -> Step:
        partitions = [fetch_part(index, offset) for index, offset in parts]
        topics = [fetch_topic(version, partitions, name)] if parts else []
        return request_step(text, form, _request(version, topics, epoch, session), version)

    def forget(text: str, epoch: int, *indexes: int, also: tuple[int, int] | None = None) -> Step:
        topics = [fetch_topic(version, [fetch_part(*also)], name)] if also else []
        topic_id = id_of(name) if version >= 13 else ZERO_UUID
        forgotten = [ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(indexes))]
        return request_step(text, BORDERLINE, _request(version, topics, epoch, forgotten=forgotten), version)

    yield step("opens", 0, (0, 0), (1, 0), (2, 0), session=0)
    yield step("again the same", 1)
    yield step("one moves on", 2, (0, 2))
    yield step("both at the end", 3, (1, 2))
    yield step("nothing new", 4)
    yield request_step("a record comes", VALID, produce(9, [(2, batch())], name), 9)
    yield step("something new", 5)
    yield step("moved on again", 6, (2, 2))
    yield forget("forgets two", 7, 0, 1)
    yield request_step("records come", VALID, produce(9, [(0, batch()), (2, batch())], name), 9)
    yield step("only what it has not forgotten", 8)
    yield forget("forgets and wants the same", 9, 2, also=(2, 0))
    yield step("is anything left", 10, form=BORDERLINE)
    yield step("opens another", 0, (0, 0), session=0)
    yield step("a partition that is not there", 1, (77, 0), form=WRONG)
    yield step("it is told again", 2)
    yield step("out of range", 3, (0, 99), form=WRONG)
    yield step("and again", 4)
    yield step("back in range", 5, (0, 2))
    yield step("closes", -1, (0, 0), form=BORDERLINE)
    yield step("is gone", 6, form=WRONG)
    yield step("opens a third", 0, (0, 2), session=0)
    yield forget("forgets all", 1, 0)
    yield step("is it gone", 2, form=BORDERLINE)


def _wrong(version: int, name: str) -> Iterator[Step]:
    part = [fetch_topic(version, [fetch_part(0, 2)], name)]

    def step(text: str, epoch: int, session: int, topics: list[FetchTopic] = part, form: str = WRONG) -> Step:
        return request_step(text, form, _request(version, topics, epoch, session), version)

    yield step("opens to go wrong", 0, 0, form=VALID)
    yield step("epoch 2 too soon", 2, SESSION)
    yield step("epoch 1 after that", 1, SESSION, form=BORDERLINE)
    yield step("epoch 1 twice", 1, SESSION)
    yield step("epoch highest", INT32_MAX, SESSION)
    yield step("epoch -2", -2, SESSION)
    yield step("epoch 2", 2, SESSION, form=BORDERLINE)
    yield step("another id", 1, 12345)
    yield step("id -1", 1, -1)
    yield step("id 0 with epoch 1", 1, 0)
    yield step("no partitions, epoch 0", 0, 0, [], form=BORDERLINE)
    yield step("no partitions, epoch -1", -1, 0, [], form=BORDERLINE)
    yield step("epoch 0 with an id opens anew", 0, SESSION, form=BORDERLINE)
    other = 12 if version >= 13 else 13
    changed = [fetch_topic(other, [fetch_part(0, 2)], name)]
    yield request_step("names for ids", WRONG, _request(other, changed, 1), other)
    yield step("after that", 2, SESSION, form=BORDERLINE)
    if version >= 13:
        unknown = [FetchTopic(topic_id=NO_SUCH_ID, partitions=[fetch_part(0, 0)])]
    else:
        unknown = [FetchTopic(topic="nowhere", partitions=[fetch_part(0, 0)])]
    yield step("opens with the unknown", 0, 0, unknown)
    yield step("the unknown again", 1, SESSION, [])
    yield step("and a good one", 2, SESSION, [fetch_topic(version, [fetch_part(0, 18)], BASE)])


def _deleted(version: int, name: str) -> Iterator[Step | Ready]:
    topics = [fetch_topic(version, [fetch_part(0, 4)], name)]
    yield request_step("opens on what goes", VALID, _request(version, topics, 0, 0), version)
    yield request_step("deleted", VALID, DeleteTopicsRequest(topic_names=[name], timeout_ms=9000), 5)
    yield Ready(name, 0)
    yield request_step("after it went", WRONG, _request(version, [], 1), version)
