"""Documentation of each key in one sentence, for DescribeConfigs and for docs/CONFIGURATION.md.

The sentences of keys without an effect end with a note that says so; docs_unused_*.py contain the broker's.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.core.configs.docs_unused_cluster import UNUSED_CLUSTER
from odradek.core.configs.docs_unused_groups import UNUSED_GROUPS
from odradek.core.configs.docs_unused_network import UNUSED_NETWORK
from odradek.core.configs.topic_keys import TOPIC_SYNONYMS

UNUSED = "Without effect here."

_TOPIC: dict[str, str] = {
    "cleanup.policy": (
        "What happens to old segments: delete removes them; compact keeps the last record of each key; or both."
    ),
    "compression.gzip.level": "How hard gzip tries, 1 to 9; -1 is gzip's own default.",
    "compression.type": "How batches are stored: as the producer chose (producer), uncompressed, or by one codec.",
    "compression.zstd.level": "How hard zstd tries, -131072 to 22.",
    "file.delete.delay.ms": "How long a removed file stays on disk as .deleted, for readers still inside it.",
    "flush.messages": "Sync to disk after this many records; 1 is after every batch.",
    "flush.ms": "Sync to disk when the oldest record not yet synced is this old.",
    "index.interval.bytes": "Log bytes between two entries of the offset index.",
    "internal.segment.bytes": "Like segment.bytes without its lower bound; for tests.",
    "max.decompressed.message.bytes": (
        "The largest record, unpacked, of a compressed batch that the broker looks into: a larger one is refused, finds"
        " no time, and keeps a partition from being compacted."
    ),
    "max.message.bytes": "The largest batch that is accepted, as it is stored: compressed, with its header.",
    "message.timestamp.after.max.ms": "How far ahead of the broker's clock a record's timestamp may be.",
    "message.timestamp.before.max.ms": "How far behind the broker's clock a record's timestamp may be.",
    "message.timestamp.difference.max.ms": "The older name for both the before and the after bound.",
    "message.timestamp.type": "Whose time a record has: the producer's (CreateTime) or the broker's (LogAppendTime).",
    "min.insync.replicas": "Replicas that must be in sync for acks=all; with fewer, the batch is refused.",
    "odradek.record.validation": (
        "What is checked of a produced batch: header is what its header says under its checksum; records is that as"
        " well as every record, which is unpacked for it, as Kafka does."
    ),
    "preallocate": "Whether a new segment takes its whole size on disk at once.",
    "retention.bytes": "Bytes to keep of each partition, in whole segments; -1 is no limit.",
    "retention.ms": "Time to keep records, by the newest of a segment; -1 is for ever.",
    "segment.bytes": "The size at which a new segment file is begun.",
    "segment.index.bytes": "The largest an index file gets; a full index begins a new segment.",
    "segment.jitter.ms": "A random time taken off segment.ms, so that not all partitions roll at once.",
    "segment.ms": "The age at which a new segment file is begun even if the old one is small.",
    "unclean.leader.election.enable": "Whether a replica that is behind may lead when no other can, losing records.",
}

_TOPIC_UNUSED: dict[str, str] = {
    "compression.lz4.level": "How hard lz4 tries, 1 to 17.",
    "errors.deadletterqueue.group.enable": "Whether the topic takes records that share groups have given up.",
    "follower.replication.throttled.replicas": "Replicas whose fetching is throttled, as partition:broker pairs, or *.",
    "leader.replication.throttled.replicas": "Replicas whose serving is throttled, as partition:broker pairs, or *.",
    "local.retention.bytes": "Local bytes to keep of a tiered partition; -2 follows retention.bytes.",
    "local.retention.ms": "Local time to keep of a tiered partition; -2 follows retention.ms.",
    "message.downconversion.enable": "Whether old consumers get records converted to the format they know.",
    "message.format.version": "The record format of the log, by Kafka release; ignored since Kafka 4.",
    "remote.copy.lag.bytes": "Bytes a segment may stay local before it is copied to remote storage.",
    "remote.copy.lag.ms": "Time a segment may stay local before it is copied to remote storage.",
    "remote.log.copy.disable": "Whether copying to remote storage is stopped.",
    "remote.log.delete.on.disable": "Whether remote data is deleted when remote storage is switched off.",
}

_BROKER: dict[str, str] = {
    "add.partitions.to.txn.retry.backoff.max.ms": (
        "The longest wait before AddPartitionsToTxn is tried again while the transaction before it ends."
    ),
    "add.partitions.to.txn.retry.backoff.ms": "The first wait before it is tried again.",
    "advertised.host.name": "Before Kafka 0.9: the host clients are told; use advertised.listeners.",
    "advertised.listeners": (
        "The addresses clients are told; where not set, the hosts of listeners, or the address a client came in on."
    ),
    "advertised.port": "Before Kafka 0.9: the port clients are told; use advertised.listeners.",
    "auto.create.topics.enable": "Whether a topic is made when a client asks for one that is not there.",
    "auto.leader.rebalance.enable": "Whether leadership goes back to the preferred replicas by itself.",
    "broker.id": "The number of this broker in its cluster; the older name of node.id.",
    "broker.id.generation.enable": "Whether a broker without a number gets one above reserved.broker.max.id.",
    "broker.rack": "The rack or zone of this broker, for placing replicas apart and reading nearby.",
    "connections.max.idle.ms": "A connection without requests for this long is closed.",
    "controlled.shutdown.enable": "Whether a broker of a cluster has others lead what it leads before it stops.",
    "controlled.shutdown.max.retries": "How often it asks the controller for that.",
    "controlled.shutdown.retry.backoff.ms": "How long it waits between these tries.",
    "controller.listener.names": "Listeners of a KRaft controller; a broker here has none and does not open them.",
    "default.replication.factor": "Replicas of a topic that is made without saying how many.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "fetch.max.bytes": "The most a fetch answer holds, whatever the client asks; one batch is sent even if larger.",
    "group.consumer.assignment.interval.ms": (
        "A consumer group gets a new assignment at most this often; 0 is at every change."
    ),
    "group.consumer.assignors": (
        "The assignors of the consumer protocol, uniform and range; groups that ask for none get the first."
    ),
    "group.consumer.heartbeat.interval.ms": "How often members of a consumer group are told to send heartbeats.",
    "group.consumer.max.heartbeat.interval.ms": "The longest that group.consumer.heartbeat.interval.ms may be.",
    "group.consumer.max.session.timeout.ms": "The longest that group.consumer.session.timeout.ms may be.",
    "group.consumer.max.size": "Members that one group of the consumer protocol may have.",
    "group.consumer.migration.policy": (
        "Whether a group may change its protocol while it has members: to the newer one, the older, both or neither."
    ),
    "group.consumer.min.heartbeat.interval.ms": "The shortest that group.consumer.heartbeat.interval.ms may be.",
    "group.consumer.min.session.timeout.ms": "The shortest that group.consumer.session.timeout.ms may be.",
    "group.consumer.regex.refresh.interval.ms": (
        "How often the regex of a subscription is matched against the topics anew, if no topic has changed."
    ),
    "group.consumer.session.timeout.ms": "A member of a consumer group that is not heard of for this long is removed.",
    "group.coordinator.rebalance.protocols": "The protocols that groups may speak: classic and consumer.",
    "group.initial.rebalance.delay.ms": (
        "How long a new group of the classic protocol waits for more members before its first rebalance."
    ),
    "group.max.session.timeout.ms": "The longest session timeout that a member of a classic group may ask for.",
    "group.max.size": "Members that one group of the classic protocol may have.",
    "group.min.session.timeout.ms": "The shortest session timeout that a member of a classic group may ask for.",
    "host.name": "Before Kafka 0.9: the host to listen on; use listeners.",
    "inter.broker.listener.name": "Where brokers find each other; else the first listener of their protocol.",
    "inter.broker.protocol.version": (
        "The oldest release of Kafka that a broker of the cluster may be of, 0.11.0 to 3.9: brokers speak with each "
        "other, and write their state, as it does. The same on all brokers (CLUSTER.md)."
    ),
    "java.security.auth.login.config": "The JAAS file with the user and password for ZooKeeper, in its section Client.",
    "leader.imbalance.check.interval.seconds": (
        "How often the controller looks whether preferred replicas should lead again."
    ),
    "leader.imbalance.per.broker.percentage": (
        "Percentage of a broker's partitions that others may lead before leadership goes back."
    ),
    "listener.security.protocol.map": "The protocol of each listener, as NAME:PROTOCOL pairs.",
    "listeners": "Where to listen, as NAME://host:port; an empty host is every interface.",
    "log.dir": "One folder for the logs; log.dirs has precedence.",
    "log.dirs": "The folders for the logs, one or more.",
    "log.flush.interval.messages": "Sync a log after this many records; if set, answers no longer wait for the disk.",
    "log.flush.interval.ms": "Sync a log at least this often; if set, answers no longer wait for the disk.",
    "log.flush.scheduler.interval.ms": "How often logs are looked through for some that are due to be synced.",
    "log.initial.task.delay.ms": "How long after the start logs are first looked through for what is due.",
    "log.retention.check.interval.ms": (
        "How often logs are looked through for segments to delete; those that are compacted are by the cleaner."
    ),
    "log.retention.hours": "Hours to keep records; log.retention.minutes and log.retention.ms have precedence.",
    "log.retention.minutes": "Minutes to keep records; log.retention.ms has precedence.",
    "log.roll.hours": "Hours until a new segment is begun; log.roll.ms has precedence.",
    "log.roll.jitter.hours": "Hours of jitter taken off that; log.roll.jitter.ms has precedence.",
    "max.connections": "Connections this broker holds at once; those of a listener for brokers alone count apart.",
    "max.connections.per.ip": "Connections from one address at once; those of a listener for brokers count apart.",
    "max.incremental.fetch.session.cache.slots": "Fetch sessions (KIP-227) kept at once.",
    "max.request.partition.size.limit": "Partitions that one answer to DescribeTopicPartitions holds.",
    "metadata.log.dir": "The folder for the cluster's metadata; where not set, the first of log.dirs.",
    "node.id": "The number of this broker in its cluster.",
    "num.network.threads": "Threads that receive large batches; at most as many more send them. All else needs one.",
    "num.partitions": "Partitions of a topic that is made without saying how many.",
    "num.replica.fetchers": "Fetchers for each leader that is followed, with a connection each.",
    "odradek.zookeeper.auth": "Who this is at a ZooKeeper without SASL: digest:USER:PASSWORD.",
    "offset.metadata.max.bytes": "The longest text that a consumer may commit with an offset.",
    "offsets.commit.timeout.ms": "How long a commit of offsets waits to be safe before it is refused.",
    "offsets.retention.check.interval.ms": "How often committed offsets are looked through for some that have expired.",
    "offsets.retention.minutes": (
        "Minutes that committed offsets are kept once their group is empty or does not read the topic any more."
    ),
    "offsets.topic.num.partitions": "Partitions of __consumer_offsets when it is made; to be left as it is after that.",
    "offsets.topic.replication.factor": (
        "Replicas of __consumer_offsets, which is made once so many brokers are there; 1 for a broker that is alone."
    ),
    "offsets.topic.segment.bytes": (
        "The segment.bytes of __consumer_offsets when it is made: small ones are loaded sooner."
    ),
    "password.encoder.cipher.algorithm": "The cipher of passwords in the metadata: AES/CBC/PKCS5Padding.",
    "password.encoder.iterations": "Rounds of deriving the key for passwords in the metadata.",
    "password.encoder.key.length": "Bits of the key for passwords in the metadata: 128, 192 or 256.",
    "password.encoder.keyfactory.algorithm": (
        "How the key for passwords in the metadata is derived: PBKDF2WithHmacSHA512, or with SHA1, SHA256 or SHA384."
    ),
    "password.encoder.old.secret": "The secret before password.encoder.secret, while it is being changed.",
    "password.encoder.secret": (
        "The secret that passwords are encrypted with which are set while brokers run; without it none can be."
    ),
    "port": "Before Kafka 0.9: the port to listen on; use listeners.",
    "process.roles": "What a KRaft node is: broker, controller or both; a node here is a broker.",
    "producer.id.expiration.check.interval.ms": "How often logs are looked through for producers that have expired.",
    "producer.id.expiration.ms": "How long a partition remembers an idempotent producer that writes nothing.",
    "queued.max.request.bytes": (
        "Bytes of requests waiting at once before reading stops; a listener for brokers has as many for itself."
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "Bytes a second that are copied of a partition that moves to another data directory."
    ),
    "replica.fetch.backoff.ms": "How long a follower waits after a fetch that failed.",
    "replica.fetch.max.bytes": (
        "The most that a follower fetches of each partition at a time; one batch is sent even if larger."
    ),
    "replica.fetch.min.bytes": "Bytes that a follower's fetch waits for, up to replica.fetch.wait.max.ms.",
    "replica.fetch.response.max.bytes": "The most that a follower fetches at a time; one batch is sent even if larger.",
    "replica.fetch.wait.max.ms": "How long a follower's fetch waits for data.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks and recovery points are saved.",
    "replica.lag.time.max.ms": "A follower that has not caught up for this long leaves the in-sync replicas.",
    "replica.selector.class": (
        "Whom consumers read from: the leader, or a replica of their rack with "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector."
    ),
    "replica.socket.receive.buffer.bytes": "The receive buffer of a follower's connection; unset, the system's.",
    "replica.socket.timeout.ms": "How long a follower waits for its leader's answer before it connects anew.",
    "reserved.broker.max.id": "Generated broker ids are greater than this.",
    "security.inter.broker.protocol": "The protocol that brokers speak with each other.",
    "socket.listen.backlog.size": "Connections the system keeps waiting to be accepted.",
    "socket.receive.buffer.bytes": "The system's receive buffer of a connection; -1 leaves it to the system.",
    "socket.request.max.bytes": "The largest request that is accepted.",
    "socket.send.buffer.bytes": "The system's send buffer of a connection; -1 leaves it to the system.",
    "ssl.cipher.suites": "The cipher suites of TLS that may be spoken, by Java's names; empty is all that are safe.",
    "ssl.client.auth": "Whether a client shows a certificate: none, requested, or required, else it is turned away.",
    "ssl.enabled.protocols": "The versions of TLS that may be spoken: TLSv1.2, TLSv1.3.",
    "ssl.key.password": "What opens an encrypted private key in PEM.",
    "ssl.keystore.certificate.chain": "The broker's certificate and those above it, as PEM text in place of a file.",
    "ssl.keystore.key": "The private key to that, as PEM text.",
    "ssl.keystore.location": "The file with the broker's certificate and its private key; read again when it changes.",
    "ssl.keystore.password": "What opens a PKCS12 store; PEM has ssl.key.password.",
    "ssl.keystore.type": "PEM or PKCS12; a PKCS12 store may also go by the name of JKS, as in Java.",
    "ssl.truststore.certificates": "The certificates that are trusted, as PEM text in place of a file.",
    "ssl.truststore.location": "The file with the certificates that are trusted; read again when it changes.",
    "ssl.truststore.password": "What opens a PKCS12 store.",
    "ssl.truststore.type": "PEM or PKCS12; a PKCS12 store may also go by the name of JKS, as in Java.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "How often transactions that have lasted too long are looked for and aborted."
    ),
    "transaction.max.timeout.ms": "The longest transaction timeout that a producer may ask for.",
    "transaction.partition.verification.enable": (
        "Whether a partition asks the coordinator if a transaction is open before the first of its records is written."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "How often transactional ids that have expired are looked for and forgotten."
    ),
    "transaction.state.log.min.isr": (
        "The min.insync.replicas of __transaction_state when it is made; 1 for a broker that is alone."
    ),
    "transaction.state.log.num.partitions": (
        "Partitions of __transaction_state when it is made; to be left as it is after that."
    ),
    "transaction.state.log.replication.factor": (
        "Replicas of __transaction_state, which is made once so many brokers are there; 1 for a broker that is alone."
    ),
    "transaction.state.log.segment.bytes": (
        "The segment.bytes of __transaction_state when it is made: small ones are loaded sooner."
    ),
    "transaction.two.phase.commit.enable": (
        "Whether producers may prepare transactions that have no timeout, for a coordinator of their own (KIP-939)."
    ),
    "transactional.id.expiration.ms": "How long a transactional id without transactions is remembered.",
    "zookeeper.clientCnxnSocket": "The class of the connection to ZooKeeper; Netty's for TLS.",
    "zookeeper.connection.timeout.ms": "How long to wait for the first connection to ZooKeeper.",
    "zookeeper.max.in.flight.requests": "Requests to ZooKeeper that may be under way at once.",
    "zookeeper.sasl.client": "Whether the JAAS file counts for ZooKeeper.",
    "zookeeper.sasl.clientconfig": "The section of the JAAS file that is for ZooKeeper.",
    "zookeeper.session.timeout.ms": (
        "A broker of a cluster is taken for dead after this time without a sign of it; 6000 without zookeeper.connect."
    ),
    "zookeeper.set.acl": "Whether znodes are made so that only the brokers may change them.",
    "zookeeper.ssl.cipher.suites": "The cipher suites of TLS to ZooKeeper.",
    "zookeeper.ssl.client.enable": "Whether ZooKeeper is spoken to over TLS.",
    "zookeeper.ssl.crl.enable": "Whether lists of revoked certificates are asked for with ZooKeeper.",
    "zookeeper.ssl.enabled.protocols": "The versions of TLS that may be spoken to ZooKeeper.",
    "zookeeper.ssl.endpoint.identification.algorithm": (
        "Whether the name of the ZooKeeper server is checked: https, or empty for no."
    ),
    "zookeeper.ssl.keystore.location": "The file with the certificate that is shown to ZooKeeper.",
    "zookeeper.ssl.keystore.password": "What opens that file.",
    "zookeeper.ssl.keystore.type": "The kind of that file: JKS, PKCS12 or PEM.",
    "zookeeper.ssl.ocsp.enable": "Whether it is asked online if ZooKeeper's certificate was revoked.",
    "zookeeper.ssl.protocol": "The version of TLS that the talk with ZooKeeper begins with.",
    "zookeeper.ssl.truststore.location": "The file with the certificates of ZooKeeper servers that are trusted.",
    "zookeeper.ssl.truststore.password": "What opens that file.",
    "zookeeper.ssl.truststore.type": "The kind of that file: JKS, PKCS12 or PEM.",
}

_COMPACTION: dict[str, str] = {
    "delete.retention.ms": "How long compaction keeps a tombstone, so that slow readers still see the deletion.",
    "log.cleaner.backoff.ms": "How long the cleaner sleeps when there is nothing to compact, or to delete of what is.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys of the logs that are compacted, of all threads together.",
    "log.cleaner.enable": "Whether logs are compacted; what is compact,delete is not deleted without it, either.",
    "log.cleaner.io.buffer.load.factor": "How full the memory for keys may get.",
    "log.cleaner.io.buffer.size": "Memory of the cleaner for reading and writing, of all threads together.",
    "log.cleaner.io.max.bytes.per.second": "Bytes a second that the cleaner reads and writes.",
    "log.cleaner.threads": "Threads that compact logs.",
    "max.compaction.lag.ms": "A record is compacted at the latest after this time.",
    "min.cleanable.dirty.ratio": "The share of the log that must be uncompacted before compaction runs.",
    "min.compaction.lag.ms": "A record stays uncompacted for at least this time.",
}

_REFUSED: dict[str, str] = {
    "authorizer.class.name": (
        "Who decides what a principal may do; refused without --insecure, since there is no access control here."
    ),
    "remote.storage.enable": "Whether old segments move to remote storage; refused, since there is none here.",
    "ssl.engine.factory.class": "The class that makes Java's TLS; refused, since there is no Java here.",
    "zookeeper.connect": "The ZooKeeper ensemble and chroot that has the metadata; without it, a local file has.",
}


def _noted(sentences: Mapping[str, str], note: str) -> dict[str, str]:
    return {name: f"{sentence} {note}" for name, sentence in sentences.items()}


def _of_synonyms(topic: Mapping[str, str]) -> dict[str, str]:
    """Return the topic key's sentence for each broker key that is its default."""
    return {
        synonyms[0]: topic[name]
        for name, synonyms in TOPIC_SYNONYMS.items()
        if name in topic and synonyms[0] not in topic
    }


_OF_TOPICS = {**_TOPIC, **_noted(_TOPIC_UNUSED, UNUSED), **_COMPACTION}
DOCS: dict[str, str] = {
    **_of_synonyms(_OF_TOPICS),
    **_noted({**UNUSED_CLUSTER, **UNUSED_GROUPS, **UNUSED_NETWORK}, UNUSED),
    **_OF_TOPICS,
    **_BROKER,
    **_REFUSED,
}
