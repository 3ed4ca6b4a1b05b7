"""Where answers to the requests of access.py are not those of Apache Kafka, beside what known.py has.

They have the ids that docs/DIFFERENCES.md gives to the same of other requests.
"""

from __future__ import annotations

from differential.known import ABSENT, Known

KNOWN = (
    Known("sentences", "*AlterConfigs * / topics*", "*error_message", None, "a sentence"),
    Known("metadata-creates", "Metadata * / creates*", "topics[*].error_code", "UNKNOWN_TOPIC_OR_PARTITION", "NONE"),
    Known("patterns-at-once", "ConsumerGroupHeartbeat * / a pattern", "assignment.topic_partitions[*]", ABSENT),
    Known("patterns-at-once", "ConsumerGroupHeartbeat * / a pattern", "member_epoch", 3, 4),
)
