"""Documentation of cluster, log, KRaft, ZooKeeper and remote storage keys without an effect here.

A key moves to core/configs/docs.py when it gets an effect.
"""

from __future__ import annotations

UNUSED_CLUSTER: dict[str, str] = {
    "alter.config.policy.class.name": "The class that may refuse changes of configurations.",
    "alter.log.dirs.replication.quota.window.num": "Samples kept to bound the rate of moves between log folders.",
    "alter.log.dirs.replication.quota.window.size.seconds": "Seconds of each of these samples.",
    "background.threads": "Threads for tasks in the background.",
    "broker.heartbeat.interval.ms": "How often a broker sends heartbeats to the KRaft controllers.",
    "broker.session.timeout.ms": "A broker that the KRaft controllers do not hear of for this long is fenced.",
    "controller.performance.always.log.threshold.ms": (
        "Events of a KRaft controller that take longer than this are always logged."
    ),
    "controller.performance.sample.period.ms": "How often a KRaft controller logs how long its events took.",
    "controller.quorum.append.linger.ms": "How long a KRaft leader gathers records before it writes them.",
    "controller.quorum.auto.join.enable": "Whether a KRaft controller joins the voters by itself.",
    "controller.quorum.bootstrap.servers": "Addresses at which the KRaft quorum is found.",
    "controller.quorum.election.backoff.max.ms": (
        "The longest wait of a KRaft candidate before it tries again to be elected."
    ),
    "controller.quorum.election.timeout.ms": "How long a KRaft candidate waits for votes.",
    "controller.quorum.fetch.max.bytes": (
        "The most that one fetch of the KRaft metadata log returns; one batch is sent even if larger."
    ),
    "controller.quorum.fetch.snapshot.max.bytes": "The most that one fetch of a KRaft snapshot returns.",
    "controller.quorum.fetch.timeout.ms": (
        "How long a KRaft voter does without its leader before it asks to be elected."
    ),
    "controller.quorum.request.timeout.ms": "How long a KRaft node waits for an answer of another.",
    "controller.quorum.retry.backoff.ms": "How long a KRaft node waits before it asks again.",
    "controller.quorum.voters": "The KRaft voters, as id@host:port pairs.",
    "controller.socket.timeout.ms": "How long a controller waits for an answer of a broker.",
    "cordoned.log.dirs": "Log folders that get no new partitions, or * for all of them.",
    "create.topic.policy.class.name": "The class that may refuse topics that are to be made.",
    "eligible.leader.replicas.enable": (
        "Whether KRaft keeps the replicas that may lead without losing records (KIP-966)."
    ),
    "follower.fetch.last.tiered.offset.enable": (
        "Whether a new follower of a tiered topic begins after what is in remote storage."
    ),
    "follower.replication.throttled.rate": "Bytes a second that this broker fetches for its throttled replicas.",
    "initial.broker.registration.timeout.ms": (
        "How long a broker tries to register with the KRaft controllers before it gives up."
    ),
    "internal.metadata.delete.delay.millis": "How long removed files of the KRaft metadata log stay on disk.",
    "internal.metadata.log.segment.bytes": "Like metadata.log.segment.bytes without its lower bound; for tests.",
    "internal.metadata.max.batch.size.in.bytes": "The largest batch of the KRaft metadata log; for tests.",
    "leader.replication.throttled.rate": "Bytes a second that this broker serves to followers of throttled replicas.",
    "log.dir.failure.timeout.ms": (
        "How long a broker whose log folder failed tries to tell the controller before it stops."
    ),
    "log.flush.offset.checkpoint.interval.ms": "How often recovery points are saved.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often log start offsets are saved.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes of KRaft metadata after which a snapshot is taken.",
    "metadata.log.max.snapshot.interval.ms": (
        "How old the newest KRaft snapshot gets before another is taken; 0 is any age."
    ),
    "metadata.log.segment.bytes": "The size at which the KRaft metadata log begins a new segment file.",
    "metadata.log.segment.min.bytes": "The lower bound of metadata.log.segment.bytes; for tests.",
    "metadata.log.segment.ms": "The age at which the KRaft metadata log begins a new segment file.",
    "metadata.max.idle.interval.ms": "How often an idle KRaft leader writes a record that changes nothing; 0 is never.",
    "metadata.max.retention.bytes": "Bytes of KRaft metadata log and snapshots to keep.",
    "metadata.max.retention.ms": "Time to keep KRaft metadata log and snapshots.",
    "num.recovery.threads.per.data.dir": "Threads that open the logs of a folder at start.",
    "num.replica.alter.log.dirs.threads": "Threads that move replicas between log folders.",
    "queued.max.requests": "Requests waiting at once before reading stops.",
    "remote.fetch.max.wait.ms": "How long a fetch waits for remote storage before it is answered.",
    "remote.list.offsets.request.timeout.ms": "How long ListOffsets waits for remote storage before it is answered.",
    "remote.log.index.file.cache.total.size.bytes": "Disk space for copies of the indexes of remote segments.",
    "remote.log.index.file.cache.ttl.ms": "How long the copy of a remote segment's index is kept unused.",
    "remote.log.manager.copier.thread.pool.size": "Threads that copy segments to remote storage.",
    "remote.log.manager.copy.max.bytes.per.second": "Bytes a second that are copied to remote storage.",
    "remote.log.manager.copy.quota.window.num": "Samples kept to bound the rate of copying.",
    "remote.log.manager.copy.quota.window.size.seconds": "Seconds of each of these samples.",
    "remote.log.manager.expiration.thread.pool.size": "Threads that delete what has expired from remote storage.",
    "remote.log.manager.fetch.max.bytes.per.second": "Bytes a second that are read from remote storage.",
    "remote.log.manager.fetch.quota.window.num": "Samples kept to bound the rate of reading.",
    "remote.log.manager.fetch.quota.window.size.seconds": "Seconds of each of these samples.",
    "remote.log.manager.follower.thread.pool.size": (
        "Threads in which followers keep up with what is in remote storage."
    ),
    "remote.log.manager.task.interval.ms": "How often segments are copied to remote storage and deleted from it.",
    "remote.log.manager.task.retry.backoff.max.ms": (
        "The longest wait before a failed request to remote storage is tried again."
    ),
    "remote.log.manager.task.retry.backoff.ms": (
        "The first wait before a failed request to remote storage is tried again."
    ),
    "remote.log.manager.task.retry.jitter": "The share of that wait that is random.",
    "remote.log.manager.thread.pool.size": "Threads for the tasks of remote storage.",
    "remote.log.metadata.custom.metadata.max.bytes": (
        "The most that a plug-in for remote storage may keep with each segment."
    ),
    "remote.log.metadata.manager.class.name": "The class that keeps the metadata of remote storage.",
    "remote.log.metadata.manager.class.path": "Where that class is loaded from.",
    "remote.log.metadata.manager.impl.prefix": "The prefix of the keys that are handed to that class.",
    "remote.log.metadata.manager.listener.name": "The listener over which that class speaks to brokers.",
    "remote.log.reader.max.pending.tasks": "Reads from remote storage that may wait.",
    "remote.log.reader.threads": "Threads that read from remote storage.",
    "remote.log.storage.manager.class.name": "The class that reads and writes remote storage.",
    "remote.log.storage.manager.class.path": "Where that class is loaded from.",
    "remote.log.storage.manager.impl.prefix": "The prefix of the keys that are handed to that class.",
    "remote.log.storage.system.enable": "Whether there is remote storage for topics that ask for it.",
    "replication.quota.window.num": "Samples kept to bound the rate of throttled replication.",
    "replication.quota.window.size.seconds": "Seconds of each of these samples.",
    "unclean.leader.election.interval.ms": (
        "How often partitions without a leader are given one that is behind, where that is allowed."
    ),
    "zookeeper.metadata.migration.enable": "Whether the metadata moves from ZooKeeper to KRaft.",
    "zookeeper.metadata.migration.min.batch.size": "Records in a batch of that move, at least.",
    "zookeeper.sync.time.ms": "How far a ZooKeeper follower may be behind its leader.",
}
