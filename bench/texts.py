"""What the page says of each group of cases, and of how it is measured."""

from __future__ import annotations

TITLES = {
    "start": "Start, memory, first seconds",
    "small": "One small record per request",
    "produce": "Produce",
    "validated": "Produce, with every record read",
    "consume": "Consume",
    "latency": "From producer to consumer",
    "partitions": "Many partitions",
    "many": "Many connections",
    "sessions": "Several partitions",
    "librdkafka": "Through librdkafka",
    "groups": "Groups",
    "commits": "Produce, while groups commit",
    "idempotent": "Idempotent producers",
    "transactions": "Transactions",
}

INTRODUCTIONS = {
    "start": """
From the start of the process to the first answered ApiVersions and Metadata, on an empty directory (Kafka's was
formatted before). Memory is what is resident; idle is some seconds after the start, without any client. The first
seconds are those of a broker that has just been started: a JVM is then still interpreting, and tests meet brokers in
this state.""",
    "small": """
One record of 100 B in each request, on one connection unless it says otherwise. Apache Kafka reads the next request of
a connection only when the one before is answered, so requests in flight on one connection help it little, and more
connections help it more.""",
    "produce": """
Requests of one batch of about 1 MB before compression (librdkafka's limit; the last lines have the Java producer's
default of 16 KiB), five in flight on each connection. Half of each value is random. With six producers each has a
partition of its own. `synced` means: on disk before the answer. Odradek does so by default when acks=all and there is
no follower, and Kafka when told with flush.messages=1; without `synced` neither does.""",
    "validated": """
The same requests to a topic with `odradek.record.validation=records` (`odradek-validated`), where each batch is
unpacked and all of its records are read, as Kafka does, and to one without. acks=1, five in flight on each connection,
and 50 where each record has a batch of its own.""",
    "consume": """
Batches of 64 KiB, at most 1 MiB for each partition and fetch (the consumer's default), one fetch in flight for each
connection. Hot is read from the page cache, again and again; cold is read once, after the segment files were written
out and dropped from the page cache (`posix_fadvise`, DONTNEED).""",
    "latency": """
One producer sends 1,000 records of 100 B a second, one by one, on a schedule that does not wait for answers; one
consumer long-polls. The time is from before the producer's `send` to after the consumer's `recv`, both on one
clock.""",
    "partitions": """
Batches of 10 records of 100 B to one partition after the other, 50 requests in flight on one connection. Each partition
was written once before.""",
    "many": """
As many connections as the line says, on one partition, with acks=1. Each that produces sends a record of 100 B when the
one before is acknowledged. Those that wait long-poll, and one more connection sends the next record when all have the
one before, or on a schedule; a record counts for each that got it, and the time is from `send` to each one's `recv`.
All connections are those of one process with one thread, which takes a core or nearly so where there are many.""",
    "sessions": """
One consumer with a fetch session (KIP-227) of as many partitions as the line says, and a producer that sends a record
of 100 B to any of them when the consumer has the one before: the time is from `send` to `recv`, and the processor time
that of both requests. Or there is nothing, and the consumer asks again and again, without waiting. And a producer each
of whose requests, five in flight, has a record for each of so many partitions.""",
    "librdkafka": """
confluent-kafka from Python with its default settings, acks=1, one partition. The client takes most of a core, so that
the rate says more about it than about the broker; the processor time is the broker's. One setting is not the default:
with fetch.queue.backoff.ms=0 a consumer whose queue is full fetches again as soon as there is room. By default it
rests for a second, the longer the faster the broker has filled the queue.""",
    "groups": """
A group of 200 members, each on a connection of its own: the time from the first request until each has its share, when
all join, when one then leaves, and when 50 leave together. Members do nothing but that. Groups wait for nobody
(group.initial.rebalance.delay.ms=0, group.consumer.assignment.interval.ms=0), and a member that has its share asks
every 50 ms whether that still holds, at once when another has left: with the defaults, which are seconds, there would
be little else in these times. In the classic protocol the leader shares out (a few bytes to each); with KIP-848 the
broker does, a topic of 200 partitions. CPU is the broker's for all three together, the end of the group included.""",
    "commits": """
One producer sends records of 100 B, one at a time, on a schedule; the time is from `send` to the acknowledgement, or
from when a record was due, if it had to wait for the answer before. Meanwhile 1,000 groups without members commit one
offset a second each, each at a moment of its own, over ten other connections. `alone` is the same without them;
`elsewhere` has them commit to another Odradek beside this one, which tells what the machine's two cores add, and what
one broker that does both; `ratio` is of `here` to `alone`. A commit is answered when it is as safe as acks=all makes a
record: Odradek syncs it before, Kafka does not. odradek-relaxed is told not to (log.flush.interval.messages), and
kafka-strict to sync whatever is written (the same setting), acks=1 included.""",
    "idempotent": """
What sequence numbers cost: one producer with five requests in flight and acks=all, with them and without, in turns (the
load patches each request in both). Neither broker syncs. `without` is the rate of the same load without sequence
numbers; the ratios beside it are with to without, of the rate and of the broker's processor time for a record.""",
    "transactions": """
One producer, one transaction after the other, each of 100 records of 100 B in equal parts to all partitions, acks=all.
`offsets`: each transaction commits an offset of a group, too. `frames` is two requests for each transaction, Produce
and EndTxn, as clients of 4.0 and later have it, and no client around it; librdkafka and the Java client have their
default settings. The lines without a remark compare an Odradek that does not sync, as Kafka doesn't; `synced` ones an
Odradek with its defaults, which has records, decision and markers on disk before it answers, with a Kafka that is told
to sync whatever is written (log.flush.interval.messages=1). Kafka answers EndTxn before the markers are
written, and a transaction that begins sooner than they are has to wait until its broker looks again: after 1 ms here
(add.partitions.to.txn.retry.backoff.ms), after 20 by default, which is then nearly all that is seen. librdkafka
registers partitions itself, and when it is too early asks again after as long as it likes. So the rate of one producer
that never pauses says much about that wait; the processor time is work.""",
}

BEHIND = """
## Where Kafka is ahead

The cases above in which Kafka's rate is higher, its p99 lower or its processor time lower (by more than 3 %)."""

# By group, a part of the case's name, and what is behind: "rate", "p99" or "CPU".
REASONS: dict[tuple[str, str, str], str] = {
    ("small", "one at a time", "rate"): (
        "Until 558a69a a connection that had sent 1 MiB in all was read as one of very many. Since then it is 1.99"
        " times Kafka's rate with acks=1 (another run)."
    ),
    ("small", "synced", "CPU"): (
        "A thread syncs, so that nobody else waits for the disk, and wakes the loop when it has; Kafka's handler thread"
        " syncs itself."
    ),
    ("produce", "100 B, acks=1", "p99"): (
        "One of the first cases of the run, in which memory is touched for the first time; the same with acks=all,"
        " later in the run, has 0.49 to 0.82 times Kafka's p99."
    ),
}

METHOD = """
## How it is measured

    (source scripts/venv)                # makes .venv
    .venv/bin/python bench/run.py        # about 40 minutes; --quick for the cases that matter most
    bench/report

- The load comes from requests that are encoded once and sent as they are, by one process for each client; it counts
  answers by their size. The error code of every Produce and Fetch answer is looked at, and after each measurement
  ListOffsets must say that the log has exactly the records that were acknowledged.
- Each number is the median of three repetitions, taken in turns (Odradek, Kafka, lower bound, Odradek, ...), each on a
  new topic that is deleted afterwards. All data lies on one file system.
- Every broker is warmed up with several seconds of small and large requests after its start, and before each case.
- Only one broker is under load at a time; the others stay up. Stopping them would throw away what the JVM has compiled,
  and a KRaft node that is suspended loses its session; an idle Odradek takes no processor time, an idle Kafka the
  few percent of a core that the first table tells, which the others have to do without.
- CPU is the processor time of all threads of the broker's process from /proc, for a million records. The ratios of CPU
  are for the same records, not for the same time.
- A topic of 2,000 partitions takes Kafka long to make, so there all repetitions are on one topic; the first write to
  each partition, which costs Kafka some milliseconds, is not measured. Groups and commits keep their topic, too.
- Kafka runs as its `kafka-server-start.sh` has it (1 GB heap, G1 with its flags), one KRaft node, default settings but
  for how soon the files of deleted topics go and that groups and transactions hardly wait; Odradek has the same.
- What is compared with and without something else (commits, sequence numbers) is measured there and back (without,
  with, with, without), so that what changes on the machine meanwhile changes for both.
- The lower bound is one thread in Python that writes whatever it receives to a file, acknowledges it with constant
  bytes, and answers fetches with sendfile. It checks nothing, keeps no index and no offsets.
- Clients and brokers share the machine, so a broker that uses more than its share of the cores also slows its clients.
"""
