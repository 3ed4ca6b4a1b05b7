"""Costs of a partition on a running broker: its memory and descriptors, before and after a restart.

The limits are several times the values in docs/OPERATIONS.md, so that they only find leaks.
"""

from __future__ import annotations

import re
from pathlib import Path

from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.asking import LEADER, PRODUCE, created, produce_request
from support.raw_client import RawClient
from support.serving import Serving, serving

PARTITIONS, AT_ONCE = 1000, 500
KIB = 1 << 10
BYTES_EACH_MAX = 40 * KIB
ROUNDS = 5


def resident_bytes(broker: Serving) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * KIB  # type: ignore[index]  # A process that runs has it.


def descriptors(broker: Serving) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def write_to_each(client: RawClient) -> None:
    one = produce_request("t", b"some value").topic_data[0].partition_data[0].records
    for start in range(0, PARTITIONS, AT_ONCE):
        data = [PartitionProduceData(index=index, records=one) for index in range(start, start + AT_ONCE)]
        topics = [TopicProduceData(name="t", partition_data=data)]
        request = ProduceRequest(acks=LEADER, timeout_ms=20_000, topic_data=topics)
        answer = client.request(request, PRODUCE, ProduceResponse)
        assert {part.error_code for part in answer.responses[0].partition_responses} == {0}


def test_a_partition_takes_little_memory_and_one_descriptor(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        created(client, "first")
        memory, files = resident_bytes(broker), descriptors(broker)
        created(client, "t", partitions=PARTITIONS)
        for _ in range(ROUNDS):
            write_to_each(client)
        assert (resident_bytes(broker) - memory) / PARTITIONS < BYTES_EACH_MAX
        assert PARTITIONS <= descriptors(broker) - files < PARTITIONS * 1.1
        empty_bytes = memory
    with serving(tmp_path) as broker:
        assert (resident_bytes(broker) - empty_bytes) / PARTITIONS < BYTES_EACH_MAX
        assert descriptors(broker) - files < PARTITIONS * 0.1, "a log that is not used has no file open"
