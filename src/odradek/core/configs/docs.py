"""Documentation of each key in one or two sentences, for DescribeConfigs and for docs/CONFIGURATION.md.

The sentences of keys without an effect end with a note that says so; docs_unused_*.py contain the broker's.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.core.configs.docs_unused_cluster import UNUSED_CLUSTER
from odradek.core.configs.docs_unused_groups import UNUSED_GROUPS
from odradek.core.configs.docs_unused_network import UNUSED_NETWORK
from odradek.core.configs.topic_keys import TOPIC_SYNONYMS

UNUSED = "Has no effect in Odradek."

_TOPIC: dict[str, str] = {
    "cleanup.policy": (
        "Cleanup of old segments: delete removes them, compact keeps the last record of each key. Both can be combined."
    ),
    "compression.gzip.level": "Compression level of gzip, 1 (fastest) to 9 (smallest). -1 selects gzip's own default.",
    "compression.type": (
        "Compression of stored batches. With producer, the broker keeps the producer's choice; otherwise it uses the "
        "given codec or none (uncompressed)."
    ),
    "compression.zstd.level": "Compression level of zstd, -131072 (fastest) to 22 (smallest).",
    "file.delete.delay.ms": (
        "Time in ms for which a removed file stays on disk, renamed to .deleted, for readers that still use it."
    ),
    "flush.messages": (
        "Number of records after which the log is synced to disk; 1 syncs after every batch. If set, responses no "
        "longer wait for the disk."
    ),
    "flush.ms": (
        "Age in ms of the oldest unsynced record at which the log is synced to disk. If set, responses no longer wait "
        "for the disk."
    ),
    "index.interval.bytes": "Log bytes between two entries of the offset index.",
    "internal.segment.bytes": "Segment size in bytes, for tests. Replaces `segment.bytes` and has a lower minimum.",
    "max.decompressed.message.bytes": (
        "Maximum uncompressed size in bytes of a record in a compressed batch that the broker reads. A larger record "
        "is rejected, makes timestamp lookups fail and prevents compaction of its partition."
    ),
    "max.message.bytes": "Maximum size in bytes of a batch as stored: compressed, with its header.",
    "message.timestamp.after.max.ms": (
        "Maximum time in ms by which a record's timestamp may be ahead of the broker's clock."
    ),
    "message.timestamp.before.max.ms": (
        "Maximum time in ms by which a record's timestamp may be behind the broker's clock."
    ),
    "message.timestamp.difference.max.ms": (
        "Older name for both timestamp limits (before and after). Applies to a limit whose own key is not set."
    ),
    "message.timestamp.type": (
        "Source of record timestamps: the producer (CreateTime) or the broker's clock (LogAppendTime)."
    ),
    "min.insync.replicas": "Minimum number of in-sync replicas for acks=all. With fewer, the broker rejects the batch.",
    "odradek.record.validation": (
        "Validation of produced batches. With header, the broker checks the batch header and the checksum; with "
        "records, it also decompresses the batch and checks each record, as Kafka does."
    ),
    "preallocate": "Reserve the full size of a new segment on disk when it is created.",
    "retention.bytes": "Bytes to keep of each partition, in whole segments. -1 means no limit.",
    "retention.ms": "Time in ms to keep a segment, counted from its newest record. -1 means no limit.",
    "segment.bytes": "Size in bytes at which the log rolls to a new segment.",
    "segment.index.bytes": (
        "Maximum size in bytes of an index file. The log rolls to a new segment when the index is full."
    ),
    "segment.jitter.ms": (
        "Maximum random time in ms by which a segment rolls early, so that partitions do not all roll at once."
    ),
    "segment.ms": "Age in ms at which the log rolls to a new segment even if the current one is small.",
    "unclean.leader.election.enable": (
        "Allow an out-of-sync replica to become leader if no in-sync replica is available. Records may be lost."
    ),
}

_TOPIC_UNUSED: dict[str, str] = {
    "compression.lz4.level": "Compression level of lz4, 1 to 17.",
    "errors.deadletterqueue.group.enable": "Allow share groups to send undeliverable records to this topic.",
    "follower.replication.throttled.replicas": (
        "Replicas whose fetches are throttled, as partition:broker pairs, or * for all."
    ),
    "leader.replication.throttled.replicas": (
        "Replicas whose leaders throttle what they send, as partition:broker pairs, or * for all."
    ),
    "local.retention.bytes": (
        "Local bytes to keep of a partition with remote storage. -2 uses the value of `retention.bytes`."
    ),
    "local.retention.ms": (
        "Local retention time in ms of a partition with remote storage. -2 uses the value of `retention.ms`."
    ),
    "message.downconversion.enable": "Convert records to the older format that an old consumer requests.",
    "message.format.version": "Record format of the log, as a Kafka release. Ignored since Kafka 4.",
    "remote.copy.lag.bytes": "Bytes that may stay local before a segment is copied to remote storage.",
    "remote.copy.lag.ms": "Time in ms that a segment may stay local before it is copied to remote storage.",
    "remote.log.copy.disable": "Stop copying segments to remote storage.",
    "remote.log.delete.on.disable": "Delete the remote data when remote storage is disabled.",
}

_BROKER: dict[str, str] = {
    "add.partitions.to.txn.retry.backoff.max.ms": (
        "Maximum time in ms for which AddPartitionsToTxn is retried while the previous transaction is still ending."
    ),
    "add.partitions.to.txn.retry.backoff.ms": (
        "Time in ms between two attempts of AddPartitionsToTxn while the previous transaction is still ending."
    ),
    "advertised.host.name": "Host that the broker gives to clients, before Kafka 0.9. Use `advertised.listeners`.",
    "advertised.listeners": (
        "Addresses that the broker gives to clients. If not set: the hosts of `listeners`, or the address at which "
        "the client connected."
    ),
    "advertised.port": "Port that the broker gives to clients, before Kafka 0.9. Use `advertised.listeners`.",
    "auto.create.topics.enable": "Create a topic automatically when a client requests one that does not exist.",
    "auto.leader.rebalance.enable": "Return leadership to the preferred replicas automatically.",
    "broker.id": "Id of this broker in its cluster. Older name of `node.id`.",
    "broker.id.generation.enable": "Generate an id greater than `reserved.broker.max.id` for a broker without one.",
    "broker.rack": (
        "Rack or zone of this broker. Replicas are spread over racks, and consumers can read from a replica in their "
        "own rack."
    ),
    "connections.max.idle.ms": (
        "Time in ms without requests after which a connection is closed. 0 or less disables the limit."
    ),
    "controlled.shutdown.enable": (
        "Move the leadership of this broker's partitions to other brokers before it stops. Applies to brokers of a "
        "cluster."
    ),
    "controlled.shutdown.max.retries": (
        "Maximum number of requests to the controller to move leadership before the broker stops."
    ),
    "controlled.shutdown.retry.backoff.ms": (
        "Time in ms between two requests to the controller to move leadership before the broker stops."
    ),
    "controller.listener.names": (
        "Names of the listeners of a KRaft controller. Odradek has no such controller and does not open these "
        "listeners."
    ),
    "default.replication.factor": "Replication factor of a topic that is created without an explicit one.",
    "delete.topic.enable": "Allow clients to delete topics.",
    "fetch.max.bytes": (
        "Maximum size in bytes of a Fetch response, even if the client requests more. One batch is sent even if it is "
        "larger."
    ),
    "group.consumer.assignment.interval.ms": (
        "Minimum time in ms between two assignments of a consumer group. 0 computes an assignment after every change."
    ),
    "group.consumer.assignors": (
        "Assignors of the consumer protocol: uniform and range. The first is used for groups that request none."
    ),
    "group.consumer.heartbeat.interval.ms": (
        "Heartbeat interval in ms that the broker sets for members of consumer groups."
    ),
    "group.consumer.max.heartbeat.interval.ms": "Maximum value of `group.consumer.heartbeat.interval.ms`.",
    "group.consumer.max.session.timeout.ms": "Maximum value of `group.consumer.session.timeout.ms`.",
    "group.consumer.max.size": "Maximum number of members of a group that uses the consumer protocol.",
    "group.consumer.migration.policy": (
        "Protocol changes allowed for a group with members: to the newer protocol (upgrade), to the older "
        "(downgrade), both (bidirectional) or none (disabled)."
    ),
    "group.consumer.min.heartbeat.interval.ms": "Minimum value of `group.consumer.heartbeat.interval.ms`.",
    "group.consumer.min.session.timeout.ms": "Minimum value of `group.consumer.session.timeout.ms`.",
    "group.consumer.regex.refresh.interval.ms": (
        "Time in ms after which the regex of a subscription is matched against the topics again, even if no topic has "
        "changed."
    ),
    "group.consumer.session.timeout.ms": (
        "Time in ms without a heartbeat after which a member is removed from its consumer group."
    ),
    "group.coordinator.rebalance.protocols": (
        "Group protocols that the broker accepts. Odradek supports classic and consumer."
    ),
    "group.initial.rebalance.delay.ms": (
        "Time in ms that a new group of the classic protocol waits for more members before its first rebalance."
    ),
    "group.max.session.timeout.ms": "Maximum session timeout in ms that a member of a classic group may request.",
    "group.max.size": "Maximum number of members of a group that uses the classic protocol.",
    "group.min.session.timeout.ms": "Minimum session timeout in ms that a member of a classic group may request.",
    "host.name": "Host on which the broker listens, before Kafka 0.9. Use `listeners`.",
    "inter.broker.listener.name": (
        "Listener for requests between brokers. If not set, the first listener with `security.inter.broker.protocol`."
    ),
    "inter.broker.protocol.version": (
        "Oldest Kafka release among the brokers of the cluster, 0.11.0 to 3.9. Requests between brokers and stored "
        "state use the formats of that release. Must be the same on all brokers (CLUSTER.md)."
    ),
    "java.security.auth.login.config": "JAAS file whose section Client contains the user and password for ZooKeeper.",
    "leader.imbalance.check.interval.seconds": (
        "Interval in seconds at which the controller checks whether to return leadership to the preferred replicas."
    ),
    "leader.imbalance.per.broker.percentage": (
        "Percentage of a broker's preferred partitions that other brokers may lead. Above it, leadership returns to "
        "the broker."
    ),
    "listener.security.protocol.map": "Security protocol of each listener, as NAME:PROTOCOL pairs.",
    "listeners": "Addresses on which the broker listens, as NAME://host:port. An empty host means all interfaces.",
    "log.dir": "Directory for the logs. Ignored if `log.dirs` is set.",
    "log.dirs": "Directories for the logs. If not set, `log.dir` applies.",
    "log.flush.interval.messages": (
        "Number of records after which a log is synced to disk. If set, responses no longer wait for the disk."
    ),
    "log.flush.interval.ms": (
        "Age in ms of the oldest unsynced record at which a log is synced to disk. If set, responses no longer wait "
        "for the disk."
    ),
    "log.flush.scheduler.interval.ms": (
        "Value of `log.flush.interval.ms` if that key is not set. If set, responses no longer wait for the disk."
    ),
    "log.initial.task.delay.ms": "Time in ms after startup before logs are first checked for segments to delete.",
    "log.retention.check.interval.ms": (
        "Interval in ms at which logs are checked for segments to delete. The cleaner checks compacted logs "
        "(`log.cleaner.backoff.ms`)."
    ),
    "log.retention.hours": (
        "Time in hours to keep records. Ignored if `log.retention.minutes` or `log.retention.ms` is set."
    ),
    "log.retention.minutes": "Time in minutes to keep records. Ignored if `log.retention.ms` is set.",
    "log.roll.hours": "Age in hours at which the log rolls to a new segment. Ignored if `log.roll.ms` is set.",
    "log.roll.jitter.hours": (
        "Maximum random time in hours by which a segment rolls early. Ignored if `log.roll.jitter.ms` is set."
    ),
    "max.connections": (
        "Maximum number of open connections. A separate inter-broker listener has its own limit of the same size."
    ),
    "max.connections.per.ip": (
        "Maximum number of open connections from one IP address. A separate inter-broker listener counts its own "
        "connections."
    ),
    "max.incremental.fetch.session.cache.slots": "Maximum number of incremental fetch sessions (KIP-227).",
    "max.request.partition.size.limit": "Maximum number of partitions in one DescribeTopicPartitions response.",
    "metadata.log.dir": "Directory for the cluster's metadata. If not set, the first of `log.dirs`.",
    "node.id": "Id of this broker in its cluster.",
    "num.network.threads": (
        "Threads that receive large batches; up to as many again send large responses. A single thread does all other "
        "work."
    ),
    "num.partitions": "Number of partitions of a topic that is created without an explicit number.",
    "num.replica.fetchers": "Number of fetchers for each leader that this broker follows. Each has its own connection.",
    "odradek.zookeeper.auth": "User for a ZooKeeper ensemble without SASL, as digest:USER:PASSWORD.",
    "offset.metadata.max.bytes": "Maximum size in bytes of the metadata text that a consumer commits with an offset.",
    "offsets.commit.timeout.ms": (
        "Maximum time in ms that an offset commit waits to be replicated or synced before it fails."
    ),
    "offsets.retention.check.interval.ms": "Interval in ms at which expired offsets are removed.",
    "offsets.retention.minutes": (
        "Time in minutes to keep committed offsets after the group becomes empty or stops reading the topic."
    ),
    "offsets.topic.num.partitions": (
        "Number of partitions of `__consumer_offsets` at its creation. Do not change it afterwards."
    ),
    "offsets.topic.replication.factor": (
        "Replication factor of `__consumer_offsets`, which is created once that many brokers are running. The default "
        "is 1 if `zookeeper.connect` is not set."
    ),
    "offsets.topic.segment.bytes": (
        "Value of `segment.bytes` for `__consumer_offsets` at its creation. Small segments load faster."
    ),
    "password.encoder.cipher.algorithm": (
        "Cipher for passwords in the metadata. Only AES/CBC/PKCS5Padding is supported."
    ),
    "password.encoder.iterations": "Number of iterations to derive the key for passwords in the metadata.",
    "password.encoder.key.length": "Length in bits of the key for passwords in the metadata: 128, 192 or 256.",
    "password.encoder.keyfactory.algorithm": (
        "Derivation of the key for passwords in the metadata: PBKDF2WithHmacSHA512 (the default), or the same with "
        "SHA1, SHA256 or SHA384."
    ),
    "password.encoder.old.secret": (
        "Previous value of `password.encoder.secret`, needed while the secret is being changed."
    ),
    "password.encoder.secret": (
        "Secret that encrypts passwords set while brokers run. Without it, no password can be set that way."
    ),
    "port": "Port on which the broker listens, before Kafka 0.9. Use `listeners`.",
    "process.roles": "Roles of a KRaft node: broker, controller or both. An Odradek node is always a broker.",
    "producer.id.expiration.check.interval.ms": (
        "Interval in ms at which expired producers are removed from the logs' producer state."
    ),
    "producer.id.expiration.ms": "Time in ms without writes after which a partition forgets an idempotent producer.",
    "queued.max.request.bytes": (
        "Maximum memory in bytes for requests; above it, the broker stops reading. The default, -1, means 256 MiB. A "
        "separate inter-broker listener has its own limit of the same size."
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "Maximum bytes per second copied to move partitions between data directories."
    ),
    "replica.fetch.backoff.ms": "Time in ms that a follower waits after a failed fetch.",
    "replica.fetch.max.bytes": (
        "Maximum bytes of each partition in one fetch of a follower. One batch is sent even if it is larger."
    ),
    "replica.fetch.min.bytes": (
        "Minimum bytes of a response to a follower's fetch. The leader waits for them for at most "
        "`replica.fetch.wait.max.ms`."
    ),
    "replica.fetch.response.max.bytes": (
        "Maximum size in bytes of a response to a follower's fetch. One batch is sent even if it is larger."
    ),
    "replica.fetch.wait.max.ms": "Maximum time in ms that a follower's fetch waits for data.",
    "replica.high.watermark.checkpoint.interval.ms": (
        "Interval in ms at which high watermarks, recovery points and log start offsets are saved to disk."
    ),
    "replica.lag.time.max.ms": "Time in ms after which a follower that has not caught up leaves the in-sync replicas.",
    "replica.selector.class": (
        "Replica that consumers read from. By default the leader; with "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector, a replica in the consumer's rack."
    ),
    "replica.socket.receive.buffer.bytes": (
        "Receive buffer in bytes of a follower's connection. If not set, the operating system chooses its size."
    ),
    "replica.socket.timeout.ms": (
        "Maximum time in ms that a follower waits for its leader's response before it reconnects."
    ),
    "reserved.broker.max.id": (
        "Upper bound of the broker ids reserved for manual configuration. Generated ids are greater."
    ),
    "security.inter.broker.protocol": "Security protocol of connections between brokers.",
    "socket.listen.backlog.size": (
        "Maximum number of connections that the operating system queues before the broker accepts them."
    ),
    "socket.receive.buffer.bytes": (
        "Receive buffer in bytes of a connection. If not set or -1, the operating system chooses its size."
    ),
    "socket.request.max.bytes": "Maximum size in bytes of a request.",
    "socket.send.buffer.bytes": "Send buffer in bytes of a connection. With -1, the operating system chooses its size.",
    "ssl.cipher.suites": "Enabled TLS cipher suites, by their names in Java. If empty, all secure suites are enabled.",
    "ssl.client.auth": (
        "Client certificates: none, requested, or required. With required, clients without a trusted certificate are "
        "rejected."
    ),
    "ssl.enabled.protocols": "Enabled TLS versions: TLSv1.2, TLSv1.3.",
    "ssl.key.password": "Password of an encrypted private key in PEM format.",
    "ssl.keystore.certificate.chain": "Certificate chain of the broker as PEM text, instead of a file.",
    "ssl.keystore.key": "Private key for `ssl.keystore.certificate.chain`, as PEM text.",
    "ssl.keystore.location": (
        "File with the broker's certificate and private key. The broker reloads it when it changes."
    ),
    "ssl.keystore.password": "Password of a PKCS12 keystore. For PEM, use `ssl.key.password`.",
    "ssl.keystore.type": "Format of the keystore: PEM or PKCS12. As in Java, JKS also accepts a PKCS12 store.",
    "ssl.truststore.certificates": "Trusted certificates as PEM text, instead of a file.",
    "ssl.truststore.location": "File with the trusted certificates. The broker reloads it when it changes.",
    "ssl.truststore.password": "Password of a PKCS12 truststore.",
    "ssl.truststore.type": "Format of the truststore: PEM or PKCS12. As in Java, JKS also accepts a PKCS12 store.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "Interval in ms at which transactions that exceed their timeout are aborted."
    ),
    "transaction.max.timeout.ms": "Maximum transaction timeout in ms that a producer may request.",
    "transaction.partition.verification.enable": (
        "Verify with the coordinator that a transaction is open before its first records are written to a partition."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "Interval in ms at which expired transactional ids are removed."
    ),
    "transaction.state.log.min.isr": (
        "Value of `min.insync.replicas` for `__transaction_state` at its creation. The default is 1 if "
        "`zookeeper.connect` is not set."
    ),
    "transaction.state.log.num.partitions": (
        "Number of partitions of `__transaction_state` at its creation. Do not change it afterwards."
    ),
    "transaction.state.log.replication.factor": (
        "Replication factor of `__transaction_state`, which is created once that many brokers are running. The "
        "default is 1 if `zookeeper.connect` is not set."
    ),
    "transaction.state.log.segment.bytes": (
        "Value of `segment.bytes` for `__transaction_state` at its creation. Small segments load faster."
    ),
    "transaction.two.phase.commit.enable": (
        "Allow producers to prepare transactions without a timeout, for an external transaction coordinator (KIP-939)."
    ),
    "transactional.id.expiration.ms": "Time in ms without transactions after which a transactional id is removed.",
    "zookeeper.clientCnxnSocket": (
        "Java class of the connection to ZooKeeper. TLS requires the Netty class if this key is set."
    ),
    "zookeeper.connection.timeout.ms": (
        "Maximum time in ms to wait for the first connection to ZooKeeper. If not set, `zookeeper.session.timeout.ms` "
        "applies."
    ),
    "zookeeper.max.in.flight.requests": "Maximum number of concurrent requests to ZooKeeper.",
    "zookeeper.sasl.client": (
        "Use the JAAS file for ZooKeeper. The value false is rejected if the file has a section for ZooKeeper."
    ),
    "zookeeper.sasl.clientconfig": "Name of the JAAS section for ZooKeeper.",
    "zookeeper.session.timeout.ms": (
        "Time in ms without contact after which a broker of a cluster is considered dead. The default is 6000 if "
        "`zookeeper.connect` is not set."
    ),
    "zookeeper.set.acl": "Create znodes with ACLs that allow only the brokers to change them.",
    "zookeeper.ssl.cipher.suites": "Enabled TLS cipher suites for ZooKeeper.",
    "zookeeper.ssl.client.enable": "Connect to ZooKeeper over TLS.",
    "zookeeper.ssl.crl.enable": (
        "Check ZooKeeper's certificate against revocation lists. Not supported: over TLS, the value true is rejected."
    ),
    "zookeeper.ssl.enabled.protocols": (
        "Enabled TLS versions for ZooKeeper. If not set, `zookeeper.ssl.protocol` applies."
    ),
    "zookeeper.ssl.endpoint.identification.algorithm": (
        "Verification of the ZooKeeper server's host name: https, or empty for no verification."
    ),
    "zookeeper.ssl.keystore.location": (
        "File with the certificate and private key that authenticate the broker to ZooKeeper."
    ),
    "zookeeper.ssl.keystore.password": "Password of the keystore for ZooKeeper or, for PEM, of its private key.",
    "zookeeper.ssl.keystore.type": (
        "Format of the keystore for ZooKeeper: PEM, PKCS12, or JKS for a PKCS12 store. If not set, PEM for file names "
        "with .pem, otherwise JKS."
    ),
    "zookeeper.ssl.ocsp.enable": (
        "Check with an OCSP server whether ZooKeeper's certificate was revoked. Not supported: over TLS, the value "
        "true is rejected."
    ),
    "zookeeper.ssl.protocol": (
        "TLS version for ZooKeeper if `zookeeper.ssl.enabled.protocols` is not set. TLS enables all supported versions."
    ),
    "zookeeper.ssl.truststore.location": "File with the trusted certificates of ZooKeeper servers.",
    "zookeeper.ssl.truststore.password": "Password of the truststore for ZooKeeper.",
    "zookeeper.ssl.truststore.type": (
        "Format of the truststore for ZooKeeper: PEM, PKCS12, or JKS for a PKCS12 store. If not set, PEM for file "
        "names with .pem, otherwise JKS."
    ),
}

_COMPACTION: dict[str, str] = {
    "delete.retention.ms": (
        "Time in ms for which compaction keeps a tombstone, so that slow readers still see the deletion."
    ),
    "log.cleaner.backoff.ms": (
        "Time in ms that the cleaner sleeps if it finds no log to compact and no segment of a compacted log to delete."
    ),
    "log.cleaner.dedupe.buffer.size": (
        "Memory in bytes for the keys of the logs being compacted, shared by all cleaner threads."
    ),
    "log.cleaner.enable": "Compact logs. If false, logs with `compact,delete` are not deleted by retention, either.",
    "log.cleaner.io.buffer.load.factor": "Maximum load factor of the memory for keys, as a fraction.",
    "log.cleaner.io.buffer.size": "Memory in bytes for the cleaner's reads and writes, shared by all cleaner threads.",
    "log.cleaner.io.max.bytes.per.second": "Maximum bytes per second that the cleaner reads and writes.",
    "log.cleaner.threads": "Number of threads that compact logs.",
    "max.compaction.lag.ms": "Maximum time in ms before a record becomes due for compaction.",
    "min.cleanable.dirty.ratio": "Minimum fraction of the log that is not yet compacted before a compaction starts.",
    "min.compaction.lag.ms": "Minimum time in ms before a record can be compacted.",
}

_REFUSED: dict[str, str] = {
    "authorizer.class.name": (
        "Java class that authorizes requests. Not supported: Odradek has no access control, so this key is rejected "
        "unless --insecure is set."
    ),
    "remote.storage.enable": "Move old segments to remote storage. Not supported: the value true is rejected.",
    "ssl.engine.factory.class": (
        "Java class that creates TLS engines. Not supported: Odradek does not run Java, so this key is rejected."
    ),
    "zookeeper.connect": (
        "ZooKeeper servers and chroot that store the cluster's metadata, as host:port,host:port/chroot. If not set, a "
        "local file stores it."
    ),
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
