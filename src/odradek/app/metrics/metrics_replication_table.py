"""Table of replication metrics, a part of metrics_table, which has the naming rules."""

from __future__ import annotations

from odradek.app.metrics.metrics_kinds import counter, gauge

UNDER_REPLICATED = gauge(
    "kafka_server_replica_manager_under_replicated_partitions",
    "",
    "partitions",
    "Partitions led by this broker with at least one out-of-sync replica",
    "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
)
UNDER_MIN_ISR = gauge(
    "kafka_server_replica_manager_under_min_isr_partition_count",
    "",
    "partitions",
    "Partitions led by this broker with fewer in-sync replicas than `min.insync.replicas`; acks=all is rejected",
    "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
)
AT_MIN_ISR = gauge(
    "kafka_server_replica_manager_at_min_isr_partition_count",
    "",
    "partitions",
    "Partitions led by this broker with `min.insync.replicas` in-sync replicas, or with all if there are no more",
    "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
)
ISR_SHRINKS = counter(
    "kafka_server_replica_manager_isr_shrinks_total",
    "",
    "changes",
    "ISR shrinks of partitions led by this broker, as confirmed by the controller or in the stored metadata",
    "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
)
ISR_EXPANDS = counter(
    "kafka_server_replica_manager_isr_expands_total",
    "",
    "changes",
    "ISR expansions of partitions led by this broker, as confirmed by the controller or in the stored metadata",
    "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
)
ISR_FAILURES = counter(
    "kafka_server_replica_manager_failed_isr_updates_total",
    "",
    "changes",
    "ISR changes that were rejected or not answered. Most are retried.",
    "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec",
)
PARTITION_UNDER_REPLICATED = gauge(
    "kafka_cluster_partition_under_replicated",
    "topic partition",
    "0 or 1",
    "1 if a partition led by this broker has an out-of-sync replica",
    "kafka.cluster:type=Partition,name=UnderReplicated,topic=*,partition=*",
)
PARTITION_IN_SYNC = gauge(
    "kafka_cluster_partition_in_sync_replicas_count",
    "topic partition",
    "replicas",
    "In-sync replicas of a partition led by this broker, including the leader",
    "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=*,partition=*",
)
REPLICATION_IN = counter(
    "kafka_server_broker_topic_metrics_replication_bytes_in_total",
    "",
    "bytes",
    "Size of batches that followers on this broker fetched from their leaders",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
)
REPLICATION_OUT = counter(
    "kafka_server_broker_topic_metrics_replication_bytes_out_total",
    "",
    "bytes",
    "Size of batches that this broker sent to followers",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)
FETCHER_MAX_LAG = gauge(
    "kafka_server_replica_fetcher_manager_max_lag",
    "",
    "records",
    "Maximum lag of the followers on this broker",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
)
FETCHER_FAILED = gauge(
    "kafka_server_replica_fetcher_manager_failed_partitions_count",
    "",
    "partitions",
    "Followers on this broker that were fenced by their leader and do not fetch until a new leader is known",
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount,clientId=Replica",
)
FETCHER_LAG = gauge(
    "kafka_server_fetcher_lag_metrics_consumer_lag",
    "client_id topic partition",
    "records",
    "Records by which a follower on this broker was behind its leader's high watermark at its last fetch",
    "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
)
OFFLINE_PARTITIONS = gauge(
    "kafka_controller_kafka_controller_offline_partitions_count",
    "",
    "partitions",
    "Partitions without a leader in the cluster. Always 0 on brokers that are not the controller.",
    "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
)
NOT_PREFERRED = gauge(
    "kafka_controller_kafka_controller_preferred_replica_imbalance_count",
    "",
    "partitions",
    "Partitions not led by their preferred replica. Always 0 on brokers that are not the controller.",
    "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
)
UNCLEAN_ELECTIONS = counter(
    "kafka_controller_controller_stats_unclean_leader_elections_total",
    "",
    "elections",
    "Leaders elected from outside the ISR since this broker became the controller. Records may be lost.",
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)

REPLICATION = (
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    ISR_SHRINKS,
    ISR_EXPANDS,
    ISR_FAILURES,
    PARTITION_UNDER_REPLICATED,
    PARTITION_IN_SYNC,
    REPLICATION_IN,
    REPLICATION_OUT,
    FETCHER_MAX_LAG,
    FETCHER_FAILED,
    FETCHER_LAG,
    OFFLINE_PARTITIONS,
    NOT_PREFERRED,
    UNCLEAN_ELECTIONS,
)
