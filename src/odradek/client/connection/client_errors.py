"""Errors between this client and a cluster, each with a message for the user.

Every class pickles, because Spark executors send their exceptions to the driver. Every message says what failed, where
and, if useful, what to do. A protocol error code becomes an ErrorResponse or a subclass; an unreachable or silent peer
is a KafkaUnavailable; a peer that is too old is Unsupported.
"""

from __future__ import annotations

from odradek.base.errors import RETRIABLE, ErrorCode, error_code


class ClientError(Exception):
    """Base of all errors that end a request; str() returns one sentence."""


class ConfigurationError(ClientError, ValueError):
    """A missing, malformed or unsupported client option."""


class KafkaUnavailable(ClientError):
    """No answer, or no answer in time."""


class ConnectionLost(KafkaUnavailable):
    """Connection that was closed by the peer, or silent past its deadline, with answers outstanding."""


class NotKafka(ClientError):
    """Peer that does not use Kafka's protocol."""


class TlsRefused(ClientError):
    """Failed TLS negotiation, or an untrusted certificate; a retry can't succeed."""


class Unsupported(ClientError):
    """API or version that the broker does not support."""


class Unsendable(ClientError, ValueError):
    """Request that no protocol version of both sides can represent, for example a name that is too long."""


class ErrorResponse(ClientError):
    """Answer of a broker with a protocol error code."""

    def __init__(self, code: int, what: str, detail: str | None = None) -> None:
        super().__init__(code, what, detail)
        self.code = error_code(code)
        self.what = what
        self.detail = detail

    def __str__(self) -> str:
        plain = "the broker failed to handle the request; see its log"
        if self.code != ErrorCode.UNKNOWN_SERVER_ERROR:
            plain = self.code.name.lower().replace("_", " ")
        reason = MEANINGS.get(self.code) or (self.detail or plain).rstrip(".")
        return f"{self.what}: {reason} ({self.code.name})"

    @property
    def retriable(self) -> bool:
        """Return whether the same request may succeed later, after a metadata refresh."""
        return self.code in RETRIABLE


class UnknownTopic(ErrorResponse):
    """Topic or partition that the cluster does not have, or did not get while this client waited."""


class OffsetOutOfRange(ErrorResponse):
    """Offset outside the log.

    It is below the log start (retention removed it) or above the log end (the log was truncated or recreated).
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition}", f"offset {offset} is out of range")
        self.args = (topic, partition, offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TopicRecreated(ClientError):
    """Topic that was deleted and recreated (with a new id) while it was being read."""


def response_error(code: int, what: str, detail: str | None = None) -> ErrorResponse:
    """Return the typed error for a code other than 0; `what` names the topic, partition or resource."""
    kind = UnknownTopic if code in UNKNOWN_TOPIC_CODES else ErrorResponse
    return kind(code, what, detail)


UNKNOWN_TOPIC_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

# Only for codes whose Kafka text does not say what to do. All others use the broker's text or the name of the code.
MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id; it was deleted or recreated",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the leader changed and was not found in time",
    ErrorCode.REQUEST_TIMED_OUT: "the request timed out on the broker",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than the topic's max.message.bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas requires",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but to fewer replicas than min.insync.replicas requires",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to access the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized to access the cluster",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log directory of the partition is offline; see the broker's log",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    ErrorCode.NOT_COORDINATOR: "the coordinator moved and was not found in time",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group subscribe to this topic; stop them first",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access the group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has reached group.max.size members",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's members do not support this member's partition assignors",
    ErrorCode.FENCED_INSTANCE_ID: "another member with the same group.instance.id has joined",
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same transactional id has started",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has started, or the transaction timed out",
    ErrorCode.INVALID_TXN_STATE: "the transaction is no longer open; it may have timed out",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to access the transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the timeout exceeds the broker's transaction.max.timeout.ms",
}
