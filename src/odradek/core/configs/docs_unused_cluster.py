"""Documentation of cluster, log, KRaft, ZooKeeper and remote storage keys without an effect here.

A key moves to core/configs/docs.py when it gets an effect.
"""

from __future__ import annotations

UNUSED_CLUSTER: dict[str, str] = {
    "alter.config.policy.class.name": "Java class that can reject changes of configurations.",
    "alter.log.dirs.replication.quota.window.num": (
        "Number of samples kept to limit the rate of moves between log directories."
    ),
    "alter.log.dirs.replication.quota.window.size.seconds": (
        "Length in seconds of one sample of the rate of moves between log directories."
    ),
    "background.threads": "Number of threads for background tasks.",
    "broker.heartbeat.interval.ms": "Interval in ms between the heartbeats of a broker to the KRaft controllers.",
    "broker.session.timeout.ms": "Time in ms without a heartbeat after which the KRaft controllers fence a broker.",
    "controller.performance.always.log.threshold.ms": (
        "Duration in ms above which an event of a KRaft controller is always logged."
    ),
    "controller.performance.sample.period.ms": (
        "Interval in ms at which a KRaft controller logs the durations of its events."
    ),
    "controller.quorum.append.linger.ms": "Time in ms that a KRaft leader collects records before it writes them.",
    "controller.quorum.auto.join.enable": "Add a KRaft controller to the voters automatically.",
    "controller.quorum.bootstrap.servers": "Addresses used to find the KRaft quorum.",
    "controller.quorum.election.backoff.max.ms": "Maximum time in ms before a KRaft candidate starts another election.",
    "controller.quorum.election.timeout.ms": "Maximum time in ms that a KRaft candidate waits for votes.",
    "controller.quorum.fetch.max.bytes": (
        "Maximum size in bytes of one fetch of the KRaft metadata log. One batch is sent even if it is larger."
    ),
    "controller.quorum.fetch.snapshot.max.bytes": "Maximum size in bytes of one fetch of a KRaft snapshot.",
    "controller.quorum.fetch.timeout.ms": (
        "Time in ms without contact to the leader after which a KRaft voter starts an election."
    ),
    "controller.quorum.request.timeout.ms": "Maximum time in ms that a KRaft node waits for a response from another.",
    "controller.quorum.retry.backoff.ms": "Time in ms before a KRaft node retries a request.",
    "controller.quorum.voters": "KRaft voters, as id@host:port.",
    "controller.socket.timeout.ms": "Maximum time in ms that a controller waits for a broker's response.",
    "cordoned.log.dirs": "Log directories that receive no new partitions, or * for all.",
    "create.topic.policy.class.name": "Java class that can reject the creation of topics.",
    "eligible.leader.replicas.enable": (
        "Track in KRaft the replicas that can become leader without losing records (KIP-966)."
    ),
    "follower.fetch.last.tiered.offset.enable": (
        "Start a new follower of a topic with remote storage after the data that is already remote."
    ),
    "follower.replication.throttled.rate": (
        "Maximum bytes per second that this broker fetches for its throttled replicas."
    ),
    "initial.broker.registration.timeout.ms": (
        "Maximum time in ms that a starting broker tries to register with the KRaft controllers."
    ),
    "internal.metadata.delete.delay.millis": (
        "Time in ms for which removed files of the KRaft metadata log stay on disk."
    ),
    "internal.metadata.log.segment.bytes": (
        "Segment size in bytes of the KRaft metadata log, without a minimum, for tests."
    ),
    "internal.metadata.max.batch.size.in.bytes": (
        "Maximum size in bytes of a batch of the KRaft metadata log, for tests."
    ),
    "leader.replication.throttled.rate": (
        "Maximum bytes per second that this broker sends to followers of throttled replicas."
    ),
    "log.dir.failure.timeout.ms": (
        "Time in ms that a broker with a failed log directory tries to report it to the controller before it stops."
    ),
    "log.flush.offset.checkpoint.interval.ms": "Interval in ms at which recovery points are saved to disk.",
    "log.flush.start.offset.checkpoint.interval.ms": "Interval in ms at which log start offsets are saved to disk.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes of new KRaft metadata after which a snapshot is taken.",
    "metadata.log.max.snapshot.interval.ms": (
        "Maximum age in ms of the newest KRaft snapshot before another is taken. 0 means no limit."
    ),
    "metadata.log.segment.bytes": "Size in bytes at which the KRaft metadata log rolls to a new segment.",
    "metadata.log.segment.min.bytes": "Minimum value of `metadata.log.segment.bytes`, for tests.",
    "metadata.log.segment.ms": "Age in ms at which the KRaft metadata log rolls to a new segment.",
    "metadata.max.idle.interval.ms": (
        "Interval in ms at which an idle KRaft leader writes a record without content. 0 disables these records."
    ),
    "metadata.max.retention.bytes": "Bytes to keep of the KRaft metadata log and its snapshots.",
    "metadata.max.retention.ms": "Time in ms to keep the KRaft metadata log and its snapshots.",
    "num.recovery.threads.per.data.dir": "Number of threads per log directory that load its logs at startup.",
    "num.replica.alter.log.dirs.threads": "Number of threads that move replicas between log directories.",
    "queued.max.requests": "Maximum number of queued requests; above it, the broker stops reading.",
    "remote.fetch.max.wait.ms": "Maximum time in ms that a fetch waits for remote storage.",
    "remote.list.offsets.request.timeout.ms": "Maximum time in ms that ListOffsets waits for remote storage.",
    "remote.log.index.file.cache.total.size.bytes": (
        "Disk space in bytes for local copies of the indexes of remote segments."
    ),
    "remote.log.index.file.cache.ttl.ms": "Time in ms that an unused copy of a remote segment's index is kept.",
    "remote.log.manager.copier.thread.pool.size": "Number of threads that copy segments to remote storage.",
    "remote.log.manager.copy.max.bytes.per.second": "Maximum bytes per second copied to remote storage.",
    "remote.log.manager.copy.quota.window.num": "Number of samples kept to limit the rate of copies to remote storage.",
    "remote.log.manager.copy.quota.window.size.seconds": (
        "Length in seconds of one sample of the rate of copies to remote storage."
    ),
    "remote.log.manager.expiration.thread.pool.size": (
        "Number of threads that delete expired segments from remote storage."
    ),
    "remote.log.manager.fetch.max.bytes.per.second": "Maximum bytes per second read from remote storage.",
    "remote.log.manager.fetch.quota.window.num": (
        "Number of samples kept to limit the rate of reads from remote storage."
    ),
    "remote.log.manager.fetch.quota.window.size.seconds": (
        "Length in seconds of one sample of the rate of reads from remote storage."
    ),
    "remote.log.manager.follower.thread.pool.size": (
        "Number of threads with which followers track the contents of remote storage."
    ),
    "remote.log.manager.task.interval.ms": (
        "Interval in ms at which segments are copied to remote storage and deleted from it."
    ),
    "remote.log.manager.task.retry.backoff.max.ms": (
        "Maximum time in ms before a failed request to remote storage is retried."
    ),
    "remote.log.manager.task.retry.backoff.ms": (
        "Initial time in ms before a failed request to remote storage is retried."
    ),
    "remote.log.manager.task.retry.jitter": (
        "Random fraction of the time before a failed request to remote storage is retried."
    ),
    "remote.log.manager.thread.pool.size": "Number of threads for remote storage tasks.",
    "remote.log.metadata.custom.metadata.max.bytes": (
        "Maximum bytes of its own metadata that a remote storage plug-in may store for each segment."
    ),
    "remote.log.metadata.manager.class.name": "Java class that stores the metadata of remote storage.",
    "remote.log.metadata.manager.class.path": "Class path of `remote.log.metadata.manager.class.name`.",
    "remote.log.metadata.manager.impl.prefix": (
        "Prefix of the keys that are passed to `remote.log.metadata.manager.class.name`."
    ),
    "remote.log.metadata.manager.listener.name": (
        "Listener through which `remote.log.metadata.manager.class.name` connects to brokers."
    ),
    "remote.log.reader.max.pending.tasks": "Maximum number of queued reads from remote storage.",
    "remote.log.reader.threads": "Number of threads that read from remote storage.",
    "remote.log.storage.manager.class.name": "Java class that reads and writes remote storage.",
    "remote.log.storage.manager.class.path": "Class path of `remote.log.storage.manager.class.name`.",
    "remote.log.storage.manager.impl.prefix": (
        "Prefix of the keys that are passed to `remote.log.storage.manager.class.name`."
    ),
    "remote.log.storage.system.enable": "Provide remote storage for topics that enable it.",
    "replication.quota.window.num": "Number of samples kept to limit the rate of throttled replication.",
    "replication.quota.window.size.seconds": "Length in seconds of one sample of the rate of throttled replication.",
    "unclean.leader.election.interval.ms": (
        "Interval in ms at which out-of-sync replicas become leaders of partitions without one, where that is allowed."
    ),
    "zookeeper.metadata.migration.enable": "Migrate the metadata from ZooKeeper to KRaft.",
    "zookeeper.metadata.migration.min.batch.size": (
        "Minimum number of records in a batch of the migration from ZooKeeper to KRaft."
    ),
    "zookeeper.sync.time.ms": "Maximum time in ms by which a ZooKeeper follower may lag behind its leader.",
}
