"""What can go wrong between this client and a cluster, each with the sentence a person needs.

Every class pickles (a Spark executor sends its exceptions to the driver) and every text says what, where, and, where
it helps, what to do.  An error *code* of the protocol is an ErrorAnswer or one of its subclasses; an unreachable or
silent peer is a KafkaUnavailable; a peer that is too old is Unsupported.
"""

from __future__ import annotations

from odradek.base.errors import RETRIABLE, ErrorCode, error_code


class ClientError(Exception):
    """Anything that stops a request for good.  str() of it is one sentence."""


class ConfigurationError(ClientError, ValueError):
    """An option that is missing, malformed, or not supported by this client."""


class KafkaUnavailable(ClientError):
    """Nothing answers, or nothing answered in time."""


class ConnectionLost(KafkaUnavailable):
    """The peer closed the connection, or was silent past its deadline, while answers were outstanding."""


class NotKafka(ClientError):
    """Something answers at that address, but not in Kafka's protocol."""


class TlsRefused(ClientError):
    """The two sides share no way to speak TLS, or one does not trust the other's certificate: trying again is vain."""


class Unsupported(ClientError):
    """The broker does not know an API, or no version of it that this client speaks."""


class Unsendable(ClientError, ValueError):
    """No version of the protocol that both sides speak can carry this: a name that is too long, say."""


class ErrorAnswer(ClientError):
    """A broker answered with an error code of the protocol."""

    def __init__(self, code: int, what: str, detail: str | None = None) -> None:
        super().__init__(code, what, detail)
        self.code = error_code(code)
        self.what = what
        self.detail = detail

    def __str__(self) -> str:
        plain = "the broker failed on this request, its log says why"
        if self.code != ErrorCode.UNKNOWN_SERVER_ERROR:
            plain = self.code.name.lower().replace("_", " ")
        reason = MEANINGS.get(self.code) or (self.detail or plain).rstrip(".")
        return f"{self.what}: {reason} ({self.code.name})"

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later, after new metadata."""
        return self.code in RETRIABLE


class UnknownTopic(ErrorAnswer):
    """The cluster has no such topic or partition, and did not get it while this client waited."""


class OffsetOutOfRange(ErrorAnswer):
    """The offset is below the log start (retention removed it) or above the log end (the log was cut or re-created)."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition}", f"offset {offset} is not in the partition's log"
        )
        self.args = (topic, partition, offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TopicRecreated(ClientError):
    """The topic was deleted and created again (its id changed) while it was being read."""


def answer_error(code: int, what: str, detail: str | None = None) -> ErrorAnswer:
    """The typed error for a code other than 0; `what` names the topic, partition or resource it is about."""
    kind = UnknownTopic if code in UNKNOWN_TOPIC_CODES else ErrorAnswer
    return kind(code, what, detail)


UNKNOWN_TOPIC_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

# Only where Kafka's own text does not tell a person what to do; all others show the broker's text, or the code's name.
MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the cluster has no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "the cluster has no topic with this id, it was deleted or created again",
    ErrorCode.LEADER_NOT_AVAILABLE: "no broker leads this partition at present",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the leader moved and did not come back in time",
    ErrorCode.REQUEST_TIMED_OUT: "the brokers did not finish this in time",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than the topic's max.message.bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but on fewer replicas than min.insync.replicas asks for",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to use this topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized on this cluster",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot reach the disk of this partition",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still reading what was kept",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "it has no coordinator at present",
    ErrorCode.NOT_COORDINATOR: "its coordinator moved and was not found again in time",
    ErrorCode.GROUP_ID_NOT_FOUND: "the cluster has no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members, stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group's members subscribe to this topic, stop them first",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to use this group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has as many members as the broker's group.max.size allows",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members share no way of assigning partitions with this one",
    ErrorCode.FENCED_INSTANCE_ID: "another member took over this group instance id",
    ErrorCode.PRODUCER_FENCED: "a newer producer with this transactional id has taken over",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has taken over, or the transaction's time was over",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not open any more, its time may have been over",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the cluster has no such transactional id",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to use this transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the timeout is longer than the broker's transaction.max.timeout.ms",
}
