"""Documentation of group, transaction and coordinator keys without an effect here.

A key moves to core/configs/docs.py when it gets an effect.
"""

from __future__ import annotations

UNUSED_GROUPS: dict[str, str] = {
    "delete.records.purgatory.purge.interval.requests": "How many DeleteRecords that waited are forgotten at a time.",
    "errors.deadletterqueue.auto.create.topics.enable": (
        "Whether topics for records that a share group could not handle are made on sight."
    ),
    "errors.deadletterqueue.topic.name.prefix": "What the names of such topics begin with.",
    "fetch.purgatory.purge.interval.requests": "How many fetches that waited are forgotten at a time.",
    "group.consumer.assignor.offload.enable": (
        "Whether assignments of consumer groups are computed beside the coordinator's threads."
    ),
    "group.consumer.max.assignment.interval.ms": (
        "The longest assignment interval that a consumer group may be configured to."
    ),
    "group.consumer.min.assignment.interval.ms": (
        "The shortest assignment interval that a consumer group may be configured to."
    ),
    "group.coordinator.append.linger.ms": (
        "How long a group coordinator gathers records before it writes them; -1 is as long as it is busy."
    ),
    "group.coordinator.background.threads": "Threads for a group coordinator's work in the background.",
    "group.coordinator.cached.buffer.max.bytes": (
        "The largest write buffer that a group coordinator keeps to use again."
    ),
    "group.coordinator.new.enable": "Whether the group coordinator is the one of KIP-848.",
    "group.coordinator.threads": "Threads of the group coordinator.",
    "group.share.assignment.interval.ms": "A share group gets a new assignment at most this often.",
    "group.share.assignor.offload.enable": (
        "Whether assignments of share groups are computed beside the coordinator's threads."
    ),
    "group.share.assignors": "The assignors of share groups.",
    "group.share.delivery.count.limit": "How often a record is delivered to a share group before it is given up.",
    "group.share.dlq.manager.class.name": "The class that takes what share groups have given up.",
    "group.share.enable": "Whether there are share groups.",
    "group.share.heartbeat.interval.ms": "How often members of a share group are told to send heartbeats.",
    "group.share.initialize.retry.interval.ms": (
        "How long the first state of a share group's partition waits to be written again."
    ),
    "group.share.max.assignment.interval.ms": (
        "The longest assignment interval that a share group may be configured to."
    ),
    "group.share.max.delivery.count.limit": "The highest delivery count limit that a share group may be configured to.",
    "group.share.max.groups": "Share groups that there may be.",
    "group.share.max.heartbeat.interval.ms": "The longest heartbeat interval that a share group may be configured to.",
    "group.share.max.partition.max.record.locks": (
        "The most locks on a partition's records that a share group may be configured to."
    ),
    "group.share.max.record.lock.duration.ms": "The longest lock on a record that a share group may be configured to.",
    "group.share.max.session.timeout.ms": "The longest session timeout that a share group may be configured to.",
    "group.share.max.share.sessions": "Share sessions kept at once.",
    "group.share.max.size": "Members that one share group may have.",
    "group.share.min.assignment.interval.ms": (
        "The shortest assignment interval that a share group may be configured to."
    ),
    "group.share.min.delivery.count.limit": "The lowest delivery count limit that a share group may be configured to.",
    "group.share.min.heartbeat.interval.ms": "The shortest heartbeat interval that a share group may be configured to.",
    "group.share.min.partition.max.record.locks": (
        "The fewest locks on a partition's records that a share group may be configured to."
    ),
    "group.share.min.record.lock.duration.ms": "The shortest lock on a record that a share group may be configured to.",
    "group.share.min.session.timeout.ms": "The shortest session timeout that a share group may be configured to.",
    "group.share.partition.max.record.locks": (
        "Records of a partition that members of a share group may have in hand at once."
    ),
    "group.share.persister.class.name": "The class that keeps the state of share groups.",
    "group.share.record.lock.duration.ms": "How long a member of a share group may have a record in hand.",
    "group.share.session.timeout.ms": "A member of a share group that is not heard of for this long is removed.",
    "group.streams.acceptable.recovery.lag": (
        "How many records behind a copy of a task's state may be to count as caught up."
    ),
    "group.streams.assignment.interval.ms": "A streams group gets a new assignment at most this often.",
    "group.streams.assignor.offload.enable": (
        "Whether assignments of streams groups are computed beside the coordinator's threads."
    ),
    "group.streams.assignors": "The assignors of streams groups.",
    "group.streams.heartbeat.interval.ms": "How often members of a streams group are told to send heartbeats.",
    "group.streams.initial.rebalance.delay.ms": (
        "How long a new streams group waits for more members before its first assignment."
    ),
    "group.streams.max.assignment.interval.ms": (
        "The longest assignment interval that a streams group may be configured to."
    ),
    "group.streams.max.heartbeat.interval.ms": (
        "The longest heartbeat interval that a streams group may be configured to."
    ),
    "group.streams.max.session.timeout.ms": "The longest session timeout that a streams group may be configured to.",
    "group.streams.max.size": "Members that one streams group may have.",
    "group.streams.max.standby.replicas": "The most standby replicas that a streams group may be configured to.",
    "group.streams.max.warmup.replicas": "The most warm-up replicas that a streams group may be configured to.",
    "group.streams.min.assignment.interval.ms": (
        "The shortest assignment interval that a streams group may be configured to."
    ),
    "group.streams.min.heartbeat.interval.ms": (
        "The shortest heartbeat interval that a streams group may be configured to."
    ),
    "group.streams.min.session.timeout.ms": "The shortest session timeout that a streams group may be configured to.",
    "group.streams.min.task.offset.interval.ms": (
        "The shortest task offset interval that a streams group may be configured to."
    ),
    "group.streams.num.standby.replicas": "Copies of each task's state that are kept beside the active one.",
    "group.streams.num.warmup.replicas": (
        "Copies of states at once that are brought up to date so that their task can move."
    ),
    "group.streams.rack.aware.assignment.tags": "Tags of clients by which the copies of a state are placed apart.",
    "group.streams.session.timeout.ms": "A member of a streams group that is not heard of for this long is removed.",
    "group.streams.task.offset.interval.ms": (
        "How often members of a streams group tell how far their tasks' states are."
    ),
    "group.streams.topology.description.plugin.class": (
        "The class that takes the descriptions of streams groups' topologies."
    ),
    "offsets.commit.required.acks": "The acks with which offsets are committed.",
    "offsets.load.buffer.size": "Bytes that are read at a time when __consumer_offsets is loaded.",
    "offsets.topic.compression.codec": "The codec of __consumer_offsets, by its number.",
    "producer.purgatory.purge.interval.requests": "How many produces that waited are forgotten at a time.",
    "share.coordinator.append.linger.ms": (
        "How long a share coordinator gathers records before it writes them; -1 is as long as it is busy."
    ),
    "share.coordinator.cached.buffer.max.bytes": (
        "The largest write buffer that a share coordinator keeps to use again."
    ),
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "How often the state of a partition that nobody reads is written whole."
    ),
    "share.coordinator.load.buffer.size": "Bytes that are read at a time when __share_group_state is loaded.",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "Changes of a share group's state that are written before it is written whole."
    ),
    "share.coordinator.state.topic.compression.codec": "The codec of __share_group_state, by its number.",
    "share.coordinator.state.topic.min.isr": "The min.insync.replicas of __share_group_state when it is made.",
    "share.coordinator.state.topic.num.partitions": "Partitions of __share_group_state when it is made.",
    "share.coordinator.state.topic.prune.interval.ms": (
        "How often __share_group_state is cut off before what is still needed."
    ),
    "share.coordinator.state.topic.replication.factor": "Replicas of __share_group_state when it is made.",
    "share.coordinator.state.topic.segment.bytes": "The segment.bytes of __share_group_state when it is made.",
    "share.coordinator.threads": "Threads of the share coordinator.",
    "share.coordinator.write.timeout.ms": "How long a share coordinator's write waits to be safe.",
    "share.fetch.purgatory.purge.interval.requests": "How many share fetches that waited are forgotten at a time.",
    "transaction.state.log.load.buffer.size": "Bytes that are read at a time when __transaction_state is loaded.",
}
