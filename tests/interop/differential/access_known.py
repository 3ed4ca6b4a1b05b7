"""Responses to the requests of access.py that differ from Apache Kafka's, in addition to known.py.

They have the ids of the same differences of other requests in docs/DIFFERENCES.md.
"""

from __future__ import annotations

from differential.known import ABSENT, Known

KNOWN = (
    Known("sentences", "*AlterConfigs * / topics*", "*error_message", None, "a sentence"),
    Known("metadata-creates", "Metadata * / creates*", "topics[*].error_code", "UNKNOWN_TOPIC_OR_PARTITION", "NONE"),
    Known("patterns-at-once", "ConsumerGroupHeartbeat * / a pattern", "assignment.topic_partitions[*]", ABSENT),
    Known("patterns-at-once", "ConsumerGroupHeartbeat * / a pattern", "member_epoch", 3, 4),
)
