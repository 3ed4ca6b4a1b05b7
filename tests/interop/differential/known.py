"""Differences explained in docs/DIFFERENCES.md, each with its id there, and the responses that contain it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from differential.masks import UNORDERED, Tree, labelled
from differential.player import CLOSED, NOTHING

ABSENT = "absent"


class Anything:
    """A value equal to every other value."""

    def __repr__(self) -> str:
        return "anything"

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANY = Anything()


class Like(str):
    """A value equal to any text that matches a pattern with * for anything."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and _pattern(str(self)).fullmatch(other) is not None

    __hash__ = None  # type: ignore[assignment]


class Difference(NamedTuple):
    """One field of one response. `step` is "scenario / step"."""

    step: str
    path: str
    kafka: object
    ours: object

    def __str__(self) -> str:
        return f"{self.step}: {self.path or 'the answer'}: Kafka {self.kafka!r}, here {self.ours!r}"


class Known(NamedTuple):
    """A known difference; in `step` and `path`, * matches anything."""

    id: str
    step: str = "*"
    path: str = "*"
    kafka: object = ANY
    ours: object = ANY

    def covers(self, difference: Difference) -> bool:
        return (
            self.kafka == difference.kafka
            and self.ours == difference.ours
            and _pattern(self.path).fullmatch(difference.path) is not None
            and _pattern(self.step).fullmatch(difference.step) is not None
        )


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def differences(step: str, kafka: Tree, ours: Tree) -> list[Difference]:
    """Yield the differing values; a value that only one side has is one difference."""
    return list(_differences(step, "", "", kafka, ours))


def _differences(step: str, path: str, name: str, kafka: Tree, ours: Tree) -> Iterator[Difference]:
    if kafka == ours:
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        codes = [side.get("error_code", "NONE") for side in (kafka, ours)]
        if codes[0] != codes[1]:  # The other differences follow from it.
            yield Difference(step, f"{path}.error_code".lstrip("."), *codes)
            return
        for key in sorted(kafka.keys() | ours.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _differences(step, inner, key, kafka.get(key, ABSENT), ours.get(key, ABSENT))
    elif isinstance(kafka, list) and isinstance(ours, list):
        theirs, mine = (labelled(each, is_ordered=name not in UNORDERED) for each in (kafka, ours))
        for key in sorted(theirs.keys() | mine.keys()):
            yield from _differences(step, f"{path}[{key}]", "", theirs.get(key, ABSENT), mine.get(key, ABSENT))
    else:
        yield Difference(step, path, _brief(kafka), _brief(ours))


def _brief(value: Tree) -> object:
    if isinstance(value, dict):
        return f"an answer with {value['error_code']}" if "error_code" in value else "something"
    return f"{len(value)} elements" if isinstance(value, list) else value


def unknown(found: Iterable[Difference]) -> list[Difference]:
    return [one for one in found if not any(known.covers(one) for known in KNOWN)]


STUMBLES = "UNKNOWN_SERVER_ERROR"
PARTITION = "*partitions[*]"
PRODUCED = "responses[*].partition_responses[*]"
# The partitions of scenarios.produce with records that Kafka refuses or fixes, by their position there.
UNREAD = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17)

KNOWN = (
    # Unsupported features, or newer than Kafka 4.4.0.
    Known("apis-to-come", "*ApiVersions*", "api_keys[*]", ours=ABSENT),
    Known("features", "ApiVersions*", "*features*", ours=ABSENT),
    *(Known("old-epochs", f"OffsetForLeaderEpoch v{version} *", "", CLOSED) for version in (0, 1)),
    Known("resource-types", "DescribeConfigs * / resource type *", "results[x].error_code", "NONE", "INVALID_REQUEST"),
    Known("resource-types", "IncrementalAlterConfigs * / resource type *", "responses[1].error_code", "INVALID_CONFIG"),
    Known("streams-protocol", path="*configs[group.coordinator.rebalance.protocols]*"),
    Known("newer-configs", "DescribeConfigs * / the broker", "results[1].configs[*]", kafka=ABSENT),
    Known("newer-configs", "DescribeConfigs * / the broker", "*[group.consumer.migration.policy]", ours=ABSENT),
    Known("own-configs", path="*configs[odradek.*]", kafka=ABSENT),
    *(
        Known("alone", "DescribeConfigs * / the broker", f"*configs[{name}].synonyms[1].value", kafka, "1")
        for name, kafka in (
            ("offsets.topic.replication.factor", "3"),
            ("transaction.state.log.min.isr", "2"),
            ("transaction.state.log.replication.factor", "3"),
        )
    ),
    # KRaft, which is not supported.
    Known("eligible-leader-replicas", path="*configs[min.insync.replicas]*"),
    *(
        Known("kraft", "DescribeConfigs * / the broker", f"results[1].configs[{name}].*")
        for name in (
            "advertised.listeners",
            "controller.listener.names",
            "controller.quorum.voters",
            "node.id",
            "process.roles",
        )
    ),
    # More, or more precise.
    Known("sentences", path="*error_message", kafka=ABSENT, ours="a sentence"),
    Known("sentences", path="*error_message", kafka="", ours="a sentence"),
    Known("metadata-creates", "Metadata * creates / made on sight", "topics[*].error_code", ours="NONE"),
    Known("metadata-creates", "Metadata * creates / collides", "topics[*].error_code", ours="INVALID_TOPIC_EXCEPTION"),
    Known("metadata-mixed", "Metadata * / one by id, one by name", "topics[*]", kafka=ABSENT),
    Known("metadata-mixed", "Metadata * / the same by id and name", "topics[*]", kafka=ABSENT),
    Known("timeout-0", "topics with timeout *", "*.error_code", kafka="REQUEST_TIMED_OUT"),
    Known("elections", "ElectLeaders * / topic_partitions null", "replica_election_results[*]", ours=ABSENT),
    Known("elections", "ElectLeaders * / topic_partitions twice", "replica_election_results[*]", ours=ABSENT),
    Known("elections", "ElectLeaders * empty", "replica_election_results[*]", ours=ABSENT),
    Known("elections", "ElectLeaders * twice", "replica_election_results[*].partition_result[*]", ours=ABSENT),
    Known("null-records", "Produce * / null", "", NOTHING),
    Known("silences", "AddPartitionsToTxn * / no transactions", "", NOTHING),
    Known("silences", "WriteTxnMarkers * / two markers, one of nowhere", "", NOTHING),
    Known("silences", "AlterConfigs * / a resource twice", "", NOTHING),
    Known("named-twice", "Produce * twice", "responses[*]", kafka=ABSENT),
    Known("named-twice", "Produce * twice", "responses[*]", ours=ABSENT),
    Known("named-twice", "Produce * / no partitions", "responses[*]", kafka=ABSENT),
    Known("named-twice", "Produce * fields / topic_data.partition_data empty", "responses[*]", kafka=ABSENT),
    *(
        Known("asked-twice", f"{api} * topics twice", f"topics[*]{of}", **sides)
        for api in ("OffsetCommit", "TxnOffsetCommit", "OffsetDelete")
        for of, sides in (("", {"ours": ABSENT}), (".partitions[*]", {"kafka": ABSENT}))
    ),
    Known("asked-twice", "WriteTxnMarkers * twice", "markers[*]*", kafka=ABSENT),
    Known("asked-twice", "WriteTxnMarkers * empty", "markers[*]", kafka=ABSENT),
    Known("acks-first", "Produce *", f"{PRODUCED}.error_code", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUIRED_ACKS"),
    *(
        Known("stumbles", step, path, STUMBLES, ours)
        for step, path, ours in (
            ("Fetch *", "error_code", "INVALID_REQUEST"),
            ("Fetch v* fields / session_id *", "error_code", "NONE"),
            ("Fetch *", f"{PARTITION}.error_code", "INVALID_REQUEST"),
            ("Fetch *", f"{PARTITION}.error_code", "INVALID_FETCH_SIZE"),
            ("ListOffsets *", f"{PARTITION}.error_code", "INVALID_REQUEST"),
            ("Produce * records / codec *", f"{PRODUCED}.error_code", "UNSUPPORTED_COMPRESSION_TYPE"),
            ("DescribeTopicPartitions * / bad names", "topics[*].error_code", "INVALID_TOPIC_EXCEPTION"),
            ("Metadata v13 * / id zero, no name", "error_code", "NONE"),
            ("*AlterConfigs * / unknown tags, one twice", "responses[base].error_code", "NONE"),
            ("IncrementalAlterConfigs *", "responses[base].error_code", "INVALID_REQUEST"),
            ("Metadata v13 * / topics.name null", "error_code", "NONE"),
        )
    ),
    Known("stumbles", "Metadata v12 * / id zero, no name"),
    Known("stumbles", "Metadata v12 * / topics.name null"),
    Known("stumbles", "DescribeTopicPartitions * / cursor.partition_index 2147483647", "next_cursor", ours=ABSENT),
    Known("patterns-at-once", "consumer groups by pattern / joins with a pattern", "assignment.topic_partitions[*]"),
    Known("patterns-at-once", "consumer groups by pattern / joins with a pattern", "member_epoch", 1, 2),
    # Otherwise.
    Known("broker-typos", "IncrementalAlterConfigs * brokers / unknown", "*.error_code", "NONE", "INVALID_REQUEST"),
    Known("contradictions", "IncrementalAlterConfigs * / contradiction", "*.error_code", "NONE", "INVALID_REQUEST"),
    Known("dynamic-passwords", "IncrementalAlterConfigs * / a password", "*.error_code", "NONE", "INVALID_REQUEST"),
    Known("failed-joins", "JoinGroup * / what that leaves", "groups[*].group_state", "Empty", "Dead"),
    Known("durations", "ListTransactions * / for *", "transaction_states[*]", ours=ABSENT),
    Known("whole-batches", path="*records[*]", kafka=Like("and * bytes of the next"), ours=ABSENT),
    Known("records-unread", "Produce * records / *", f"{PRODUCED}.error_code", "INVALID_RECORD", "NONE"),
    Known("records-unread", "Produce * records / *", f"{PRODUCED}.error_code", STUMBLES, "NONE"),
    *(
        Known("records-unread", "Produce * records / what is stored", f"responses[*].partitions[{place}].*")
        for place in UNREAD
    ),
    Known("record-errors", "Produce *", f"{PRODUCED}.log_start_offset", ours=ABSENT),
    Known("record-errors", "Produce *", f"{PRODUCED}.record_errors", ours=ABSENT),
    Known("api-versions-header", "ApiVersions * headers / *", "", CLOSED),
    Known("api-versions-header", "frames / ApiVersions *", "", CLOSED),
    Known("session-of-a-deleted-topic", "Fetch * / after it went", f"{PARTITION}.error_code", ours="UNKNOWN_TOPIC_ID"),
    Known("repeated-resources", "* / 18 times the same", "results[*].error_code", "NONE", "INVALID_REQUEST"),
    Known("partitions-at-once", "CreateTopics * / counts", "topics[*].error_code", "POLICY_VIOLATION"),
    Known("deleted-greatest", "DeleteRecords * made / the greatest time, of none", "topics[*].partitions[0].*"),
    Known("dry-run-id", "CreateTopics v7*", "topics[*].topic_id", ours=ABSENT),
    Known("documentation", path="*configs[unstable.*.versions.enable].documentation", kafka=ABSENT),
    Known("trimmed-values", "CreateTopics * / configured badly", "topics[spaces].configs[*].value"),
)
