"""Generator of tests/golden/kafka-4.4.0/offsets: a __consumer_offsets partition, and Kafka's reading of it.

    PYTHONPATH=tests:tests/interop python tests/interop/capture_golden_offsets.py

Run once; the result is kept in the repository, so that tests need no java. It contains commits with and without a
timestamp, transactions that commit, abort, stay open and overtake each other, deletions of offsets, groups and topics,
and a group with members.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kafka_peer import VERSION, KafkaBroker

from odradek.base.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopics,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from support.raw_client import RawClient

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / f"kafka-{VERSION}" / "offsets"
LOG = "00000000000000000000.log"
HOUR_MS = 3_600_000
SECONDS_MAX = 30

Answer = TypeVar("Answer")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    with KafkaBroker(folder) as broker, RawClient(broker.port) as client:
        story = Story(client)
        story.play()
        kept = {"committed": story.committed(), "unstable": story.unstable(), "groups": story.groups()}
    GOLDEN.mkdir(parents=True, exist_ok=True)
    log = (folder / "data" / "__consumer_offsets-0" / LOG).read_bytes()
    (GOLDEN / LOG).write_bytes(log)
    (GOLDEN / "kept.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(folder)


class Story:
    def __init__(self, client: RawClient) -> None:
        self.client = client

    def play(self) -> None:
        for name in ("t", "u", "gone"):
            self.make_topic(name)
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            self.retry_until_successful(
                lambda find=request: self.client.request(find, 4, FindCoordinatorResponse).coordinators[0]
            )
        self.retry_until_successful(lambda: self.commit("first", "t", {0: 1}).topics[0].partitions[0])
        for version in range(2, 10):
            self.commit(f"v{version}", "t", {0: version, 1: 1 << 40}, version=version)
        self.commit("timed", "t", {0: 5}, version=4, retention_ms=HOUR_MS)
        self.commit("timed", "u", {0: 6}, version=4)
        self.commit("", "t", {0: 7})
        self.commit("dropped", "t", {0: 1, 1: 2})
        dropped = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        self.client.request(OffsetDeleteRequest(group_id="dropped", topics=[dropped]), 0, OffsetDeleteResponse)
        self.commit("deleted", "t", {0: 1})
        self.client.request(DeleteGroupsRequest(groups_names=["deleted"]), 2, DeleteGroupsResponse)
        self.commit("half", "gone", {0: 1})
        self.commit("half", "t", {0: 1})
        self.client.request(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5000), 5, DeleteTopicsResponse)
        self.join()
        self.transact()
        time.sleep(1)  # Markers, and tombstones of the topic.

    def transact(self) -> None:
        one, two, three = (self.begin(name) for name in ("one", "two", "three"))
        self.commit_in("one", one, "txn", {0: 1, 1: 1})
        one = self.end("one", one, commit=True)
        self.commit_in("one", one, "txn", {0: 2})
        one = self.end("one", one, commit=False)
        self.commit_in("one", one, "txn", {0: 3, 1: 3})
        self.commit_in("two", two, "txn", {0: 4})
        self.commit("txn", "t", {1: 5})
        self.end("two", two, commit=True)
        self.end("one", one, commit=True)
        self.commit("open", "t", {0: 1})
        self.commit_in("three", three, "open", {0: 2, 1: 2})

    def join(self) -> None:
        """Add a member that stays in its group."""
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id="members",
            session_timeout_ms=HOUR_MS // 2,
            rebalance_timeout_ms=1000,
            member_id="",
            protocol_type="worker",
            protocols=protocols,
        )
        joined = self.client.request(request, 3, JoinGroupResponse)
        sync = SyncGroupRequest(
            group_id="members",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        assert self.client.request(sync, 3, SyncGroupResponse).error_code == ErrorCode.NONE
        self.commit("members", "t", {0: 9}, generation=joined.generation_id, member_id=joined.member_id)

    # One request each.

    def make_topic(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        self.client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7, CreateTopicsResponse)

    def commit(
        self,
        group: str,
        topic: str,
        offsets: dict[int, int],
        *,
        version: int = 9,
        retention_ms: int = -1,
        generation: int = -1,
        member_id: str = "",
    ) -> OffsetCommitResponse:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=0,
                committed_metadata=f"m{offset}",
            )
            for index, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        return self.client.request(request, version, OffsetCommitResponse)

    def begin(self, name: str) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
        begun = self.retry_until_successful(lambda: self.client.request(request, 5, InitProducerIdResponse))
        return begun.producer_id, begun.producer_epoch

    def commit_in(self, name: str, producer: tuple[int, int], group: str, offsets: dict[int, int]) -> None:
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=None)
            for index, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
        )
        self.retry_until_successful(
            lambda: self.client.request(request, 5, TxnOffsetCommitResponse).topics[0].partitions[0]
        )

    def end(self, name: str, producer: tuple[int, int], *, commit: bool) -> tuple[int, int]:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        ended = self.client.request(request, 5, EndTxnResponse)
        assert ended.error_code == ErrorCode.NONE
        return ended.producer_id, ended.producer_epoch

    def retry_until_successful(self, send: Callable[[], Answer]) -> Answer:
        """Retry until the coordinator is ready, at first and after each transaction."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = send()
            code = ErrorCode(answer.error_code)  # type: ignore[attr-defined]
            if code == ErrorCode.NONE or time.monotonic() > deadline:
                assert code == ErrorCode.NONE
                return answer
            time.sleep(0.1)

    # The state at the end.

    def groups(self) -> list[str]:
        return sorted(one.group_id for one in self.client.request(ListGroupsRequest(), 5, ListGroupsResponse).groups)

    def committed(self) -> list[tuple[str, str, int, int, int, str | None]]:
        return sorted(
            (group, topic.name, part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata)
            for group in self.groups()
            for topic in self.fetched(group, is_stable=False)
            for part in topic.partitions
        )

    def unstable(self) -> list[tuple[str, str, int]]:
        return sorted(
            (group, topic.name, part.partition_index)
            for group in self.groups()
            for topic in self.fetched(group, is_stable=True)
            for part in topic.partitions
            if part.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        )

    def fetched(self, group: str, *, is_stable: bool) -> list[OffsetFetchResponseTopics]:
        group_request = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(groups=[group_request], require_stable=is_stable)
        return self.client.request(request, 9, OffsetFetchResponse).groups[0].topics


if __name__ == "__main__":
    main()
