"""Rules for offsets, applied to partitions with given starts and ends, and plan files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.cli import offset_rules as rules
from odradek.app.cli.offset_rules import Scope, clamp, plan_lines, read_plan
from odradek.app.terminal.command_failed import CommandFailed
from odradek.base.units import INT64_MAX, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from support.scripted_broker import ScriptedBroker

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
AT = {EARLIEST: [10, 0], LATEST: [20, 5], 1_000: [15, -1]}  # Offsets of t-0 and t-1 by timestamp.


class RecordingScope:
    """A scope that records its warnings."""

    def __init__(self, cluster: Cluster, committed: dict[TopicPartition, int]) -> None:
        self.warnings: list[str] = []
        self.scope = Scope(cluster, "g", [T0, T1], committed, self.warnings.append)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        error_code=0,
                        offset=AT[part.timestamp][part.partition_index],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    with ScriptedBroker() as broker, Cluster(ClientConfig(broker.address)) as connected:
        broker.topics["t"] = 2
        broker.on(ListOffsetsRequest, answer)
        yield connected


@pytest.mark.waits
@pytest.mark.parametrize(
    ("rule", "expected", "warnings"),
    [
        (rules.to_earliest, [10, 0], []),
        (rules.to_latest, [20, 5], []),
        (rules.to_current, [12, 5], []),
        (rules.to_time(1_000), [15, 5], ["t-1 has no record at or after this time: using its end, 5"]),
        (rules.to_offset(12), [12, 5], ["new offset 12 is higher than the latest offset of t-1: using 5"]),
        (rules.to_offset(5), [10, 5], ["new offset 5 is lower than the earliest offset of t-0: using 10"]),
        (rules.to_planned({T0: 11, T1: 3}), [11, 3], []),
    ],
)
def test_rule_returns_its_offsets(
    cluster: Cluster, rule: rules.Rule, expected: Sequence[int], warnings: Sequence[str]
) -> None:
    recording = RecordingScope(cluster, {T0: 12})
    assert list(rule(recording.scope).values()) == expected
    assert recording.warnings == warnings


def test_records_appended_during_the_lookup_are_not_skipped(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """An end offset requested after the lookup would be beyond them."""
    timestamps: list[int] = []

    def offsets_at(_cluster: Cluster, partitions: Sequence[TopicPartition], when: int) -> rules.Offsets:
        timestamps.append(when)
        return dict(zip(partitions, AT[when], strict=True))

    monkeypatch.setattr(rules, "offsets_at", offsets_at)
    rules.to_time(1_000)(RecordingScope(cluster, {}).scope)
    assert timestamps == [LATEST, 1_000]


@pytest.mark.waits
@pytest.mark.parametrize(
    ("distance", "expected", "warnings"),
    [
        (3, [15, 4], []),
        (-1, [11, 0], []),
        (
            -3,
            [10, 0],
            [
                "new offset 9 is lower than the earliest offset of t-0: using 10",
                "new offset -2 is lower than the earliest offset of t-1: using 0",
            ],
        ),
        (
            100,
            [20, 5],
            [
                "new offset 112 is higher than the latest offset of t-0: using 20",
                "new offset 101 is higher than the latest offset of t-1: using 5",
            ],
        ),
    ],
)
def test_shift_is_limited_to_the_partition(
    cluster: Cluster, distance: int, expected: Sequence[int], warnings: Sequence[str]
) -> None:
    recording = RecordingScope(cluster, {T0: 12, T1: 1})
    assert list(rules.shift_by(distance)(recording.scope).values()) == expected
    assert recording.warnings == warnings


def test_uncommitted_partition_cannot_be_shifted(cluster: Cluster) -> None:
    with pytest.raises(CommandFailed, match="cannot shift t-1: group g has no committed offset for it"):
        rules.shift_by(1)(RecordingScope(cluster, {T0: 12}).scope)


@given(st.integers(), st.integers(0, 100), st.integers(0, 100))
def test_clamping_warns_only_if_it_changes_the_offset(offset: int, start: int, length: int) -> None:
    warnings: list[str] = []
    taken = clamp(T0, offset, start, start + length, warnings.append)
    assert start <= taken <= start + length
    assert (taken != offset) == bool(warnings)


PLANS = st.dictionaries(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8),
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["a.b", "c_d-e"]).map(TopicName), st.integers(0, 99)),
        st.integers(0, INT64_MAX),
        min_size=1,
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@given(plans=PLANS)
def test_written_plan_is_read_back(tmp_path_factory: pytest.TempPathFactory, plans: dict[str, rules.Offsets]) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(plan_lines(plans))
    assert read_plan(path, list(plans)) == plans


def write_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.csv"
    path.write_text(text)
    return path


def test_plans_of_kafkas_tool_are_read(tmp_path: Path) -> None:
    assert read_plan(write_file(tmp_path, "t,0,7\r\n\r\nt, 1, 8\r\n"), ["g"]) == {"g": {T0: 7, T1: 8}}
    assert read_plan(write_file(tmp_path, "\ufefft,0,7\n"), ["g"]) == {"g": {T0: 7}}, "as spreadsheets save it"
    several = write_file(tmp_path, "g,t,0,7\nh,t,1,8\nother,t,0,9\n")
    assert read_plan(several, ["g", "h"]) == {"g": {T0: 7}, "h": {T1: 8}}
    assert read_plan(several, ["h"]) == {"h": {T1: 8}}


@pytest.mark.parametrize("line", ["t,0", "t,x,7", "t,-1,7", "t,0,-7", "t,0,7.5", "a,b,c,d,e", f"t,0,{2**63}", "g,,0,7"])
def test_invalid_line_is_named(tmp_path: Path, line: str) -> None:
    path = write_file(tmp_path, f"t,0,1\n{line}\n")
    with pytest.raises(CommandFailed, match=r"invalid line 2 of .*plan\.csv: use topic,partition,offset"):
        read_plan(path, ["g"])


def test_group_missing_in_the_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="has no line for group h"):
        read_plan(write_file(tmp_path, "g,t,0,7\n"), ["g", "h"])
    with pytest.raises(CommandFailed, match="use group,topic,partition,offset"):
        read_plan(write_file(tmp_path, "t,0,7\n"), ["g", "h"])


@given(content=st.binary(max_size=60) | st.text('tg,019\r\n"', max_size=40).map(str.encode))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.csv"
    path.write_bytes(content)
    try:
        plan = read_plan(path, ["g"])
    except CommandFailed:
        return
    assert all(at.partition >= 0 and offset >= 0 for at, offset in plan["g"].items())


def test_plan_of_one_group_omits_the_group() -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(plan_lines({"g": {T0: 7, T1: 8}}))
    assert out.getvalue() == "t,0,7\nt,1,8\n"
