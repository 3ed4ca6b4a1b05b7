"""Documentation of group, transaction and coordinator keys without an effect here.

A key moves to core/configs/docs.py when it gets an effect.
"""

from __future__ import annotations

UNUSED_GROUPS: dict[str, str] = {
    "delete.records.purgatory.purge.interval.requests": (
        "Number of completed DeleteRecords requests that are purged from the purgatory at a time."
    ),
    "errors.deadletterqueue.auto.create.topics.enable": "Create dead-letter topics for share groups automatically.",
    "errors.deadletterqueue.topic.name.prefix": "Prefix of the names of dead-letter topics.",
    "fetch.purgatory.purge.interval.requests": (
        "Number of completed Fetch requests that are purged from the purgatory at a time."
    ),
    "group.consumer.assignor.offload.enable": (
        "Compute the assignments of consumer groups outside the coordinator's threads."
    ),
    "group.consumer.max.assignment.interval.ms": (
        "Maximum assignment interval in ms that can be configured for a consumer group."
    ),
    "group.consumer.min.assignment.interval.ms": (
        "Minimum assignment interval in ms that can be configured for a consumer group."
    ),
    "group.coordinator.append.linger.ms": (
        "Time in ms that a group coordinator collects records before it writes them. -1 means as long as it is busy."
    ),
    "group.coordinator.background.threads": "Number of threads for the background work of a group coordinator.",
    "group.coordinator.cached.buffer.max.bytes": (
        "Maximum size in bytes of a write buffer that a group coordinator reuses."
    ),
    "group.coordinator.new.enable": "Use the group coordinator of KIP-848.",
    "group.coordinator.threads": "Number of threads of the group coordinator.",
    "group.share.assignment.interval.ms": "Minimum time in ms between two assignments of a share group.",
    "group.share.assignor.offload.enable": "Compute the assignments of share groups outside the coordinator's threads.",
    "group.share.assignors": "Assignors of share groups.",
    "group.share.delivery.count.limit": "Maximum number of times that a record is delivered to a share group.",
    "group.share.dlq.manager.class.name": "Java class that handles records that share groups cannot deliver.",
    "group.share.enable": "Enable share groups.",
    "group.share.heartbeat.interval.ms": "Heartbeat interval in ms that the broker sets for members of share groups.",
    "group.share.initialize.retry.interval.ms": (
        "Time in ms before the initialization of a share partition's state is retried."
    ),
    "group.share.max.assignment.interval.ms": (
        "Maximum assignment interval in ms that can be configured for a share group."
    ),
    "group.share.max.delivery.count.limit": "Maximum delivery count limit that can be configured for a share group.",
    "group.share.max.groups": "Maximum number of share groups.",
    "group.share.max.heartbeat.interval.ms": (
        "Maximum heartbeat interval in ms that can be configured for a share group."
    ),
    "group.share.max.partition.max.record.locks": (
        "Maximum number of record locks per partition that can be configured for a share group."
    ),
    "group.share.max.record.lock.duration.ms": (
        "Maximum record lock duration in ms that can be configured for a share group."
    ),
    "group.share.max.session.timeout.ms": "Maximum session timeout in ms that can be configured for a share group.",
    "group.share.max.share.sessions": "Maximum number of share sessions.",
    "group.share.max.size": "Maximum number of members of a share group.",
    "group.share.min.assignment.interval.ms": (
        "Minimum assignment interval in ms that can be configured for a share group."
    ),
    "group.share.min.delivery.count.limit": "Minimum delivery count limit that can be configured for a share group.",
    "group.share.min.heartbeat.interval.ms": (
        "Minimum heartbeat interval in ms that can be configured for a share group."
    ),
    "group.share.min.partition.max.record.locks": (
        "Minimum number of record locks per partition that can be configured for a share group."
    ),
    "group.share.min.record.lock.duration.ms": (
        "Minimum record lock duration in ms that can be configured for a share group."
    ),
    "group.share.min.session.timeout.ms": "Minimum session timeout in ms that can be configured for a share group.",
    "group.share.partition.max.record.locks": (
        "Maximum number of records of a partition that a share group can lock at once."
    ),
    "group.share.persister.class.name": "Java class that stores the state of share groups.",
    "group.share.record.lock.duration.ms": "Time in ms for which a member of a share group locks a record.",
    "group.share.session.timeout.ms": (
        "Time in ms without a heartbeat after which a member is removed from its share group."
    ),
    "group.streams.acceptable.recovery.lag": (
        "Maximum lag in records at which a copy of a task's state is considered caught up."
    ),
    "group.streams.assignment.interval.ms": "Minimum time in ms between two assignments of a streams group.",
    "group.streams.assignor.offload.enable": (
        "Compute the assignments of streams groups outside the coordinator's threads."
    ),
    "group.streams.assignors": "Assignors of streams groups.",
    "group.streams.heartbeat.interval.ms": (
        "Heartbeat interval in ms that the broker sets for members of streams groups."
    ),
    "group.streams.initial.rebalance.delay.ms": (
        "Time in ms that a new streams group waits for more members before its first assignment."
    ),
    "group.streams.max.assignment.interval.ms": (
        "Maximum assignment interval in ms that can be configured for a streams group."
    ),
    "group.streams.max.heartbeat.interval.ms": (
        "Maximum heartbeat interval in ms that can be configured for a streams group."
    ),
    "group.streams.max.session.timeout.ms": "Maximum session timeout in ms that can be configured for a streams group.",
    "group.streams.max.size": "Maximum number of members of a streams group.",
    "group.streams.max.standby.replicas": (
        "Maximum number of standby replicas that can be configured for a streams group."
    ),
    "group.streams.max.warmup.replicas": (
        "Maximum number of warm-up replicas that can be configured for a streams group."
    ),
    "group.streams.min.assignment.interval.ms": (
        "Minimum assignment interval in ms that can be configured for a streams group."
    ),
    "group.streams.min.heartbeat.interval.ms": (
        "Minimum heartbeat interval in ms that can be configured for a streams group."
    ),
    "group.streams.min.session.timeout.ms": "Minimum session timeout in ms that can be configured for a streams group.",
    "group.streams.min.task.offset.interval.ms": (
        "Minimum task offset interval in ms that can be configured for a streams group."
    ),
    "group.streams.num.standby.replicas": "Number of copies of each task's state in addition to the active one.",
    "group.streams.num.warmup.replicas": (
        "Number of state copies that catch up at the same time so that their tasks can move."
    ),
    "group.streams.rack.aware.assignment.tags": "Client tags by which the copies of a state are spread.",
    "group.streams.session.timeout.ms": (
        "Time in ms without a heartbeat after which a member is removed from its streams group."
    ),
    "group.streams.task.offset.interval.ms": (
        "Interval in ms at which members of a streams group report the progress of their tasks' states."
    ),
    "group.streams.topology.description.plugin.class": (
        "Java class that receives the topology descriptions of streams groups."
    ),
    "offsets.commit.required.acks": "Value of acks with which offsets are committed.",
    "offsets.load.buffer.size": "Bytes per read when `__consumer_offsets` is loaded.",
    "offsets.topic.compression.codec": "Compression codec of `__consumer_offsets`, by number.",
    "producer.purgatory.purge.interval.requests": (
        "Number of completed Produce requests that are purged from the purgatory at a time."
    ),
    "share.coordinator.append.linger.ms": (
        "Time in ms that a share coordinator collects records before it writes them. -1 means as long as it is busy."
    ),
    "share.coordinator.cached.buffer.max.bytes": (
        "Maximum size in bytes of a write buffer that a share coordinator reuses."
    ),
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "Interval in ms at which the state of an idle share partition is written as a snapshot."
    ),
    "share.coordinator.load.buffer.size": "Bytes per read when `__share_group_state` is loaded.",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "Number of updates of a share group's state between two snapshots."
    ),
    "share.coordinator.state.topic.compression.codec": "Compression codec of `__share_group_state`, by number.",
    "share.coordinator.state.topic.min.isr": (
        "Value of `min.insync.replicas` for `__share_group_state` at its creation."
    ),
    "share.coordinator.state.topic.num.partitions": "Number of partitions of `__share_group_state` at its creation.",
    "share.coordinator.state.topic.prune.interval.ms": (
        "Interval in ms at which records that are no longer needed are deleted from `__share_group_state`."
    ),
    "share.coordinator.state.topic.replication.factor": "Replication factor of `__share_group_state` at its creation.",
    "share.coordinator.state.topic.segment.bytes": (
        "Value of `segment.bytes` for `__share_group_state` at its creation."
    ),
    "share.coordinator.threads": "Number of threads of the share coordinator.",
    "share.coordinator.write.timeout.ms": (
        "Maximum time in ms that a write of the share coordinator waits to be replicated."
    ),
    "share.fetch.purgatory.purge.interval.requests": (
        "Number of completed ShareFetch requests that are purged from the purgatory at a time."
    ),
    "transaction.state.log.load.buffer.size": "Bytes per read when `__transaction_state` is loaded.",
}
