"""Texts of the page: an introduction to each group of cases, and the method."""

from __future__ import annotations

TITLES = {
    "start": "Startup, memory and first seconds",
    "small": "One small record per request",
    "produce": "Produce",
    "validated": "Produce with record validation",
    "consume": "Consume",
    "latency": "From producer to consumer",
    "partitions": "Many partitions",
    "many": "Many connections",
    "sessions": "Several partitions",
    "librdkafka": "Through librdkafka",
    "groups": "Groups",
    "commits": "Produce during offset commits",
    "idempotent": "Idempotent producers",
    "transactions": "Transactions",
}

INTRODUCTIONS = {
    "start": """
Time from the start of the process to the first responses to ApiVersions and Metadata, with an empty directory
(formatted for Kafka). Memory is resident memory. Idle values are measured some seconds after the start, without
clients. The first seconds show a freshly started broker, as tests use it, while a JVM still interprets its code.""",
    "small": """
Each request contains one record of 100 B. There is one connection unless the case names more. Apache Kafka reads the
next request of a connection only after it has answered the previous one. Requests in flight on one connection
therefore help it little, and more connections help it more.""",
    "produce": """
Each request contains one batch of about 1 MB before compression (librdkafka's limit). The last rows use the Java
producer's default of 16 KiB. Each connection has five requests in flight. Half of each value is random. Six
producers write to one partition each. `synced` means that the records are on disk before the response: Odradek's
default for acks=all without followers, and Kafka's behavior with flush.messages=1. Without `synced`, neither broker
syncs.""",
    "validated": """
The same requests go to a topic with `odradek.record.validation=records` (`odradek-validated`) and to one without.
With validation, the broker decompresses each batch and reads all of its records, as Kafka does. The producers use
acks=1 and five requests in flight on each connection, or 50 if each record has its own batch.""",
    "consume": """
Batches of 64 KiB, at most 1 MiB per partition and fetch (the consumer's default), one fetch in flight per
connection. Hot data is read from the page cache repeatedly. Cold data is read once, after the segment files were
written to disk and dropped from the page cache (`posix_fadvise`, DONTNEED).""",
    "latency": """
One producer sends 1,000 records of 100 B per second, one at a time, on a schedule that does not wait for responses.
One consumer uses long polls. The latency is from before the producer's `send` to after the consumer's `recv`, on one
clock.""",
    "partitions": """
Batches of 10 records of 100 B go to each partition in turn, with 50 requests in flight on one connection. Each
partition was written to once before.""",
    "many": """
Each case has the given number of connections to one partition, with acks=1. Each producer sends a record of 100 B
when its previous record is acknowledged. Waiting consumers use long polls. One more connection sends the next record
when all consumers have the previous one, or on a schedule. A record counts once per consumer, and the latency is
from `send` to each consumer's `recv`. All connections belong to one process with one thread, which uses nearly a
full core in large cases.""",
    "sessions": """
A consumer has a fetch session (KIP-227) with the given number of partitions. A producer sends a record of 100 B to
one of them when the consumer has the previous record. The latency is from `send` to `recv`, and the CPU time is that
of both requests. In the cases without records, the consumer fetches repeatedly without waiting. In the produce
cases, each request contains a record for each of the partitions, with five requests in flight.""",
    "librdkafka": """
confluent-kafka from Python with its default settings, acks=1 and one partition. The client uses most of a core, so
the rate says more about the client than about the broker. The CPU time is the broker's. One setting differs from the
default: with fetch.queue.backoff.ms=0, a consumer with a full queue fetches again as soon as there is space. By
default, it pauses for a second. A faster broker fills the queue earlier, so this pause would take a larger share of
its time.""",
    "groups": """
A group of 200 members, each with its own connection. The time is from the first request until each member has its
assignment: when all members join, when one leaves, and when 50 leave together. Groups do not wait for members
(group.initial.rebalance.delay.ms=0, group.consumer.assignment.interval.ms=0). A member with an assignment sends a
heartbeat every 50 ms, and at once when another member has left. The defaults, which are seconds, would dominate
these times. In the classic protocol, the leader computes the assignment (a few bytes per member). With KIP-848, the
broker assigns a topic with 200 partitions. The CPU time is the broker's for all three phases, including the end of
the group.""",
    "commits": """
One producer sends records of 100 B, one at a time, on a schedule. The latency is from `send`, or from the scheduled
time if the previous response was late, to the acknowledgment. At the same time, 1,000 groups without members commit
one offset per second each, at different moments, over ten other connections. `alone` is without commits. With
`elsewhere`, the groups commit to another Odradek on the same machine, which separates the load on the machine from
the load on the broker. With `here`, they commit to the measured broker. `ratio` is `here` divided by `alone`.
Odradek syncs a commit before the response, as for acks=all, and Kafka does not. `odradek-relaxed` does not sync
(log.flush.interval.messages). `kafka-strict` syncs every write, including acks=1, with the same setting.""",
    "idempotent": """
The cost of sequence numbers: one producer with five requests in flight and acks=all, alternately with and without
sequence numbers. The load generator patches each request in both cases. Neither broker syncs. `without` is the rate
without sequence numbers. The ratios next to it divide the value with sequence numbers by the value without: the
rate, and the broker's CPU time per record.""",
    "transactions": """
One producer runs one transaction after the other with acks=all. Each transaction writes 100 records of 100 B,
divided equally over all partitions. With `offsets`, it also commits an offset of a group. `frames` sends two
requests per transaction, Produce and EndTxn, like clients of version 4.0 and later, without a client library.
librdkafka and the Java client use their default settings.

Cases without a remark compare Odradek without sync to Kafka with its defaults, which do not sync either. `synced`
cases compare Odradek with its defaults to Kafka with log.flush.interval.messages=1. Odradek's defaults sync records,
decision and markers before the response; Kafka's setting syncs every write.

Kafka answers EndTxn before it has written the markers. The next transaction may have to wait until the broker checks
again: after 1 ms here (add.partitions.to.txn.retry.backoff.ms), and after 20 ms by default, which would dominate the
result. librdkafka registers partitions itself, and retries after its own delay if it is too early. The rate of one
producer without pauses therefore depends strongly on this wait, while the CPU time shows the work.""",
}

BEHIND = """
## Cases in which Kafka is ahead

These are the cases above in which Kafka has a higher rate, a lower p99 or a lower CPU time (by more than 3 %)."""

# Keys: the group, a part of the case's name, and the measure in which Kafka is ahead: "rate", "p99" or "CPU".
REASONS: dict[tuple[str, str, str], str] = {
    ("small", "one at a time", "rate"): (
        "Until 558a69a, the broker read a connection that had sent 1 MiB in total like one of very many connections."
        " Since then, the rate is 1.99 times Kafka's with acks=1 (in another run)."
    ),
    ("small", "synced", "CPU"): (
        "A separate thread syncs, so that other clients do not wait for the disk, and then wakes the main thread."
        " In Kafka, the request handler thread syncs."
    ),
    ("produce", "100 B, acks=1", "p99"): (
        "This is one of the first cases of the run, in which memory is used for the first time. With acks=all, later in"
        " the run, the p99 is 0.49 to 0.82 times Kafka's."
    ),
}

METHOD = """
## Method

    (source scripts/venv)                # creates .venv
    .venv/bin/python bench/run.py        # about 40 minutes; --quick runs the most important cases
    bench/report

- Each client is a process that sends requests encoded in advance and counts responses by their size. It checks the
  error code of every Produce and Fetch response. After each measurement, ListOffsets must show that the log contains
  exactly the acknowledged records.
- Each number is the median of three repetitions, run in turn (Odradek, Kafka, lower bound, Odradek, ...). Each
  repetition uses a new, temporary topic. All data is on one file system.
- Every broker is warmed up with several seconds of small and large requests after its start, and before each case.
- Only one broker is under load at a time. The others keep running, because a stop would discard the code that the
  JVM has compiled, and a suspended KRaft node loses its session. An idle Odradek uses no CPU time. An idle Kafka
  uses the few percent of a core shown in the first table, which are missing for the others.
- CPU is the CPU time of all threads of the broker process from /proc, per million records. The ratios of CPU compare
  the same number of records, not the same time.
- Kafka needs a long time to create a topic with 2,000 partitions, so all repetitions of that case use one topic. The
  first write to each partition, some milliseconds in Kafka, is not measured. Groups and commits also keep their topic.
- Kafka runs with the settings of `kafka-server-start.sh` (1 GB heap, G1 with its flags) as one KRaft node with
  default settings. Two exceptions apply to both brokers: deleted topics' files are removed sooner, and groups and
  transactions hardly wait.
- Comparisons with and without another load run in the order without, with, with, without, so changes on the machine
  affect both.
- The lower bound is one Python thread. It writes received data to a file, acknowledges it with constant bytes, and
  answers fetches with sendfile. It validates nothing and keeps no index and no offsets.
- Clients and brokers share the machine, so a broker that uses more than its share of the cores slows its clients.
"""
