"""How long a broker takes until it answers for all its groups, after many commits.

    python bench/loading.py [--targets odradek,kafka] [--commits 10000000] [--groups 200] [--partitions 100]

Each request commits an offset of every partition of a topic for one group; the groups take turns, a few at a time.
Then the broker is stopped and started, killed and started; the seconds are from the start of the process until each
group has told what it committed last.  `log_mb` is what is kept of the commits then, in all partitions of
__consumer_offsets.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import frames
from asking import RequestClient
from brokers import BROKERS, Broker, new_topic
from compaction import peak, print_measured

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

AT_A_TIME = 8
COMMIT_VERSION, FETCH_VERSION = 9, 7
POLL_SECONDS = 0.01
SECONDS_MAX = 600
LENGTH_BYTES = 4
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Numbers = dict[str, float]


def committing(group: str, topic: str, partitions: int, offset: int) -> bytes:
    of_partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=0, committed_metadata=""
        )
        for index in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=of_partitions)]
    return frames.whole(OffsetCommitRequest(group_id=group, topics=topics), COMMIT_VERSION)


def commit(broker: Broker, groups: list[str], topic: str, partitions: int, rounds: int) -> None:
    """Every group commits `rounds` times, on a connection of its own, at last the offset `rounds`; some at a time."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RequestClient(broker.port)) for _ in groups]
        for offset, times in ((1, rounds - 1), (rounds, 1)):
            requests = [
                (client, committing(group, topic, partitions, offset))
                for client, group in zip(clients, groups, strict=True)
            ]
            for _ in range(times):
                for at in range(0, len(requests), AT_A_TIME):
                    some = requests[at : at + AT_A_TIME]
                    for client, request in some:
                        client.send(request)
                    responses = [client.receive() for client, _ in some]
            check(responses)


def check(responses: list[bytes]) -> None:
    for response in responses:
        _, message = decode_response(OffsetCommitResponse, COMMIT_VERSION, response[LENGTH_BYTES:])
        errors = {one.error_code for topic in message.topics for one in topic.partitions}
        if errors != {ErrorCode.NONE}:
            raise RuntimeError(f"commits are refused: {errors}")


def wait_for(broker: Broker, groups: list[str], topic: str, offset: int) -> None:
    """Until each group has told that it got to `offset`."""
    end = time.monotonic() + SECONDS_MAX
    with RequestClient(broker.port) as client:
        for group in groups:
            topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
            request = frames.whole(OffsetFetchRequest(group_id=group, topics=topics), FETCH_VERSION)
            while not has_committed(client.request(request), group, offset):
                if time.monotonic() > end:
                    raise RuntimeError(f"{broker.name} does not load {group}")
                time.sleep(POLL_SECONDS)


def has_committed(response: bytes, group: str, offset: int) -> bool:
    _, message = decode_response(OffsetFetchResponse, FETCH_VERSION, response[LENGTH_BYTES:])
    if message.error_code in NOT_YET:
        return False
    found = [one.committed_offset for topic in message.topics for one in topic.partitions]
    if message.error_code or found != [offset]:
        raise RuntimeError(f"{group} is at {found} instead of {offset}, error {message.error_code}")
    return True


def log_mb(broker: Broker) -> float:
    return round(sum(path.stat().st_size for path in broker.data.glob("__consumer_offsets-*/*.log")) / 1e6, 1)


def measured(broker: Broker, arguments: argparse.Namespace) -> Numbers:
    numbers, topic = Numbers(), new_topic()
    broker.start()
    broker.create(topic, arguments.partitions, {})
    groups = [f"group-{number:04}" for number in range(arguments.groups)]
    broker.control.wait_for_groups(groups)
    rounds = arguments.commits // arguments.groups // arguments.partitions
    begun, cpu = time.monotonic(), broker.cpu_seconds()
    with peak(broker, numbers):
        commit(broker, groups, topic, arguments.partitions, rounds)
    numbers["commits_k_per_s"] = round(arguments.commits / (time.monotonic() - begun) / 1000, 1)
    numbers["cpu_s"] = round(broker.cpu_seconds() - cpu, 1)
    for name, end in (("stop", broker.stop), ("kill", broker.kill)):
        end()
        numbers[f"after_{name}_log_mb"] = log_mb(broker)
        begun = time.monotonic()
        numbers[f"after_{name}_start_s"] = round(broker.start(), 2)
        wait_for(broker, groups, topic, rounds)
        numbers[f"after_{name}_s"] = round(time.monotonic() - begun, 2)
        numbers[f"after_{name}_cpu_s"] = round(broker.cpu_seconds(), 2)
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="odradek,kafka")
    parser.add_argument("--commits", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=100, help="that one request commits")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-loading-") as folder:
        for name in arguments.targets.split(","):
            print_measured(BROKERS[name](Path(folder) / name), lambda broker: measured(broker, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
