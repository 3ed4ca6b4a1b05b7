"""Metadata: of all topics, by name, by id, and with automatic creation."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import metadata, topic
from differential.steps import BORDERLINE, NO_SUCH_ID, VALID, WRONG, Ready, Scenario, Step, id_of, request_step
from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

VERSIONS = range(14)
NAME = "described"
BAD_NAMES = ("", ".", "..", "a/b", "a b", "\u00e9", "x" * 250)


def first() -> list[Scenario]:
    """Return the request for all topics, which is sent while only these exist."""
    steps = [step for version in VERSIONS for step in _all(version)]
    return [Scenario("Metadata of all", steps, [topic(NAME, 3)])]


def scenarios() -> list[Scenario]:
    return [
        *(Scenario(f"Metadata v{version} names", list(_steps(version))) for version in VERSIONS),
        *(Scenario(f"Metadata v{version} creates", list(_creates(version))) for version in VERSIONS),
    ]


def _all(version: int) -> Iterator[Step]:
    if version >= 1:
        yield request_step(f"v{version} null", VALID, _request(version, None), version)
    yield request_step(f"v{version} empty", VALID if version == 0 else BORDERLINE, _request(version, []), version)


def _request(version: int, topics: list[MetadataRequestTopic] | None, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=version < 4,
        include_topic_authorized_operations=operations and version >= 8,
        include_cluster_authorized_operations=operations and 8 <= version <= 10,
    )


def _steps(version: int) -> Iterator[Step]:
    yield request_step("one", VALID, metadata(version, NAME), version)
    yield request_step("an internal one", VALID, metadata(version, "__consumer_offsets"), version)
    yield request_step("two and one twice", BORDERLINE, metadata(version, NAME, "base", NAME), version)
    for name in BAD_NAMES:
        yield request_step(f"name {name[:20]!r}", WRONG, metadata(version, name), version)
    if version >= 4:
        for name in ("nowhere", "x" * 249, "__transaction_state", "__share_group_state", "__cluster_metadata"):
            yield request_step(f"name {name[:30]!r}", BORDERLINE, metadata(version, name), version)
        yield request_step(
            "unknown twice, bad, good", WRONG, metadata(version, "nowhere", "a/b", "nowhere", NAME), version
        )
    if version >= 8:
        without = _request(version, [MetadataRequestTopic(name=NAME)])
        yield request_step("without operations", VALID, without, version)
    if version >= 10:
        yield from _by_id(version)


def _by_id(version: int) -> Iterator[Step]:
    ids = {"known": id_of(NAME), "unknown": NO_SUCH_ID, "zero": ZERO_UUID}
    for text, topic_id in ids.items():
        for also, name in (("no name", None), ("its name", NAME), ("another name", "base"), ("an empty name", "")):
            topics = [MetadataRequestTopic(topic_id=topic_id, name=name)]
            form = VALID if text == "known" and name is None else WRONG
            yield request_step(f"id {text}, {also}", form, _request(version, topics, operations=True), version)
    mixed = [MetadataRequestTopic(topic_id=id_of(NAME), name=None), MetadataRequestTopic(name="base")]
    yield request_step("one by id, one by name", BORDERLINE, _request(version, mixed), version)
    twice = [MetadataRequestTopic(topic_id=id_of(NAME), name=None)] * 2
    yield request_step("id twice", BORDERLINE, _request(version, twice), version)
    unknown = [MetadataRequestTopic(topic_id=NO_SUCH_ID, name=None)] * 2
    yield request_step("unknown id twice", WRONG, _request(version, unknown), version)
    both = [MetadataRequestTopic(topic_id=id_of(NAME), name=None), MetadataRequestTopic(name=NAME)]
    yield request_step("the same by id and name", BORDERLINE, _request(version, both), version)


def _creates(version: int) -> Iterator[Step | Ready]:
    name = f"on.sight-{version}"
    yield request_step("made on sight", VALID, metadata(version, name, creates=True), version)
    yield Ready(name, 1)
    yield request_step("there", VALID, metadata(version, name, creates=True), version)
    yield request_step("collides", BORDERLINE, metadata(version, name.replace(".", "_"), creates=True), version)
    yield request_step("never to be made", WRONG, metadata(version, "__cluster_metadata", creates=True), version)
