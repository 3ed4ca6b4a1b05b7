"""What a broker spends as its logs grow from 1 MB to 50 GB, and as its partitions grow from one to 5,000.

    python bench/growth.py [--targets odradek,kafka] [--sizes 1MB,100MB,1GB,10GB,50GB] [--partitions 1,10,100,1000,5000]

Each figure is of a broker of its own.  The logs are sparse (sparse_logs.py), of batches of 64 KiB in segments of 1 GiB;
what is asked of them is asked at a thousand places drawn at random, each of which was asked before, so that nobody
waits for the disk.  Of many partitions it is always the same one that is written to, or read; `deliver` is a record
written to one of all, and what a fetch session of all of them is told of it.  `deliver whole` is that of a consumer
without a session, which names all partitions each time; in `whole fetch` there is nothing for it.

cpu is the broker's, in microseconds of a request; p50 and p99 are what the client waits.  What a new segment costs is
counted, in test_log_growth.py: file systems take long to make files where many were deleted.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, repeat
from pathlib import Path

import frames
import sparse_logs
from asking import Frame, RequestClient, measure_requests
from brokers import BROKERS, Broker, new_topic

from odradek.core.fetch.fetch_sessions import FINAL_EPOCH
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
SECONDS, IDLE_SECONDS = 1.5, 12
PLACES = 1000
MAX_TIMESTAMP = -3
RECORDS_EACH, PARTITIONS_PER_REQUEST = 3, 100

Numbers = dict[str, float]


def put(numbers: Numbers, name: str, found: Numbers) -> None:
    numbers |= {f"{name} {column}": number for column, number in found.items()}


def fill(broker: Broker, topic: str, partitions: int) -> None:
    data = frames.batch(100, 1).data
    with RequestClient(broker.port) as client:
        for start in range(0, partitions, PARTITIONS_PER_REQUEST):
            some = range(start, min(start + PARTITIONS_PER_REQUEST, partitions))
            layout = frames.ack_layout(topic, len(some))
            for _ in range(RECORDS_EACH):
                layout.check(client.request(frames.produce_to(topic, some, 1, data)), 1)


def restarted(broker: Broker, numbers: Numbers, topic: str, partitions: int) -> None:
    """Stops it cleanly and starts it, kills it with unsynced records in each partition and starts it."""
    broker.stop()
    numbers["start s"] = round(broker.start(), 2)
    broker.control.end_offsets(topic, partitions)  # Kafka leads its partitions a moment after it answers.
    fill(broker, topic, partitions)
    broker.kill()
    numbers["start after kill -9 s"] = round(broker.start(), 2)


def descriptors(broker: Broker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


# Logs of one partition, of many sizes.


def at_time(topic: str, timestamp: int) -> bytes:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    return frames.whole(request, 7)


def of_size(broker: Broker, size: int) -> Numbers:
    topic, numbers = new_topic(), Numbers()
    broker.start()
    broker.create(topic, 1, {"segment.bytes": str(sparse_logs.SEGMENT_BYTES)})
    small = frames.produce(topic, 0, 1, frames.batch(100, 1).data)
    with RequestClient(broker.port) as client:
        frames.ack_layout(topic).check(client.request(small), 1)  # The leader's epoch is on the disk.
    broker.stop()
    log = sparse_logs.fill(broker.data, topic, size)
    broker.start()
    if broker.control.end_offsets(topic, 1) != [log.end]:
        raise RuntimeError(f"{broker.name} does not take the log for what it is")
    draw = random.Random(1)
    places = [draw.randrange(log.end) for _ in range(PLACES)]
    by_time = [at_time(topic, log.time_of(offset)) for offset in places]
    numbers["first list offsets us"] = measure_requests(broker, iter(by_time), SECONDS, count_max=1)["p50_us"]
    put(numbers, "list offsets", measure_requests(broker, cycle(by_time), SECONDS, warmup=PLACES))
    put(numbers, "max timestamp", measure_requests(broker, repeat(at_time(topic, MAX_TIMESTAMP)), SECONDS, warmup=1))
    one = frames.Fetching(topic, 0, partition_bytes=1)
    put(
        numbers, "fetch", measure_requests(broker, (one.at(offset) for offset in cycle(places)), SECONDS, warmup=PLACES)
    )
    put(numbers, "produce", measure_requests(broker, repeat(small), SECONDS, warmup=1))
    put(numbers, "fetch end", measure_requests(broker, repeat(bytes(one.at(log.end + 1))), SECONDS, warmup=1))
    log_dirs = frames.whole(DescribeLogDirsRequest(topics=None), 2)
    put(numbers, "log dirs", measure_requests(broker, repeat(log_dirs), SECONDS, warmup=1))
    numbers["RSS MB"] = round(broker.resident_mb(), 1)
    numbers["descriptors"] = descriptors(broker)
    restarted(broker, numbers, topic, 1)
    return numbers


# Many partitions.


def deliveries(broker: Broker, topic: str, offsets: list[int]) -> Iterator[Frame]:
    """Yields a fetch of a session of all partitions, behind a record written to one of them."""
    with RequestClient(broker.port) as client:
        session = frames.SessionRequests(topic, frames.session_of(client.request(frames.session_begin(topic, offsets))))
    draw, data = random.Random(1), frames.batch(100, 1).data
    produced = {index: frames.produce(topic, index, 1, data) for index in range(len(offsets))}
    last: int | None = None
    with RequestClient(broker.port) as producer:
        while True:
            index = draw.randrange(len(offsets))
            producer.request(produced[index])
            yield session.next(last, 0 if last is None else offsets[last], 0)
            offsets[index] += 1
            last = index


def without_session(broker: Broker, topic: str, offsets: list[int]) -> Iterator[Frame]:
    """Yields a fetch that names all partitions, behind a record written to one of them.

    Each begins with the next partition, as librdkafka's do.
    """
    draw, data = random.Random(1), frames.batch(100, 1).data
    with RequestClient(broker.port) as producer:
        for first in cycle(range(len(offsets))):
            index = draw.randrange(len(offsets))
            producer.request(frames.produce(topic, index, 1, data))
            yield frames.session_begin(topic, offsets, epoch=FINAL_EPOCH, first=first)
            offsets[index] += 1


def of_partitions(broker: Broker, partitions: int) -> Numbers:
    topic, numbers = new_topic(), Numbers()
    broker.start()
    empty_mb, empty_descriptors = broker.resident_mb(), descriptors(broker)
    broker.create(topic, partitions, {})
    fill(broker, topic, partitions)
    one = partitions // 2
    small = frames.produce(topic, one, 1, frames.batch(100, 1).data)
    put(numbers, "produce", measure_requests(broker, repeat(small), SECONDS, warmup=1))
    fetching = frames.Fetching(topic, one, partition_bytes=1)
    put(numbers, "fetch", measure_requests(broker, repeat(bytes(fetching.at(1))), SECONDS, warmup=1))
    ends = broker.control.end_offsets(topic, partitions)
    put(numbers, "deliver", measure_requests(broker, deliveries(broker, topic, ends), SECONDS, warmup=1))
    ends = broker.control.end_offsets(topic, partitions)
    put(numbers, "deliver whole", measure_requests(broker, without_session(broker, topic, ends), SECONDS, warmup=1))
    ends = broker.control.end_offsets(topic, partitions)
    whole = frames.session_begin(topic, ends, epoch=FINAL_EPOCH)
    put(numbers, "whole fetch", measure_requests(broker, repeat(whole), SECONDS, warmup=1))
    numbers["RSS MB"] = round(broker.resident_mb(), 1)
    numbers["RSS kB each"] = round((broker.resident_mb() - empty_mb) * 1000 / partitions, 1)
    numbers["descriptors each"] = round((descriptors(broker) - empty_descriptors) / partitions, 2)
    cpu = broker.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    numbers["idle cpu ms a second"] = round((broker.cpu_seconds() - cpu) / IDLE_SECONDS * 1000, 1)
    restarted(broker, numbers, topic, partitions)
    numbers["RSS MB after start"] = round(broker.resident_mb(), 1)
    return numbers


def bytes_of(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


def show(rows: dict[str, Numbers]) -> None:
    """Prints a table with a column for each row: there are more figures than sizes."""
    names = list(dict.fromkeys(name for numbers in rows.values() for name in numbers))
    print(f"| {'':26} | " + " | ".join(f"{row:>9}" for row in rows) + " |")
    print(f"|{'-' * 28}|" + "|".join("-" * 10 + ":" for _ in rows) + "|")
    for name in names:
        print(f"| {name:26} | " + " | ".join(f"{numbers.get(name, ''):>9}" for numbers in rows.values()) + " |")
    print(flush=True)


def measured(target: str, kind: str, sizes: Sequence[str]) -> None:
    rows = dict[str, Numbers]()
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="odradek-growth-") as folder:
            broker = BROKERS[target](Path(folder) / target)
            try:
                rows[size] = of_size(broker, bytes_of(size)) if kind == "size" else of_partitions(broker, int(size))
            finally:
                broker.kill()
                shutil.rmtree(broker.folder, ignore_errors=True)
        print(f"{target}: {size}", file=sys.stderr, flush=True)
    print(f"{target}, by {kind}\n")
    show(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="odradek,kafka")
    parser.add_argument("--sizes", default="1MB,100MB,1GB,10GB,50GB", help="of the log; empty for none")
    parser.add_argument("--partitions", default="1,10,100,1000,5000", help="empty for none")
    arguments = parser.parse_args()
    for target in arguments.targets.split(","):
        if arguments.sizes:
            measured(target, "size", arguments.sizes.split(","))
        if arguments.partitions:
            measured(target, "partitions", arguments.partitions.split(","))
    return 0


if __name__ == "__main__":
    sys.exit(main())
