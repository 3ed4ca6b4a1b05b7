"""Table of replication metrics, a part of metrics_table, which has the naming rules."""

from __future__ import annotations

from odradek.app.metrics.metrics_kinds import counter, gauge

UNDER_REPLICATED = gauge(
    "kafka_server_replica_manager_under_replicated_partitions",
    "",
    "partitions",
    "Led here, and a replica is not in sync",
    "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
)
UNDER_MIN_ISR = gauge(
    "kafka_server_replica_manager_under_min_isr_partition_count",
    "",
    "partitions",
    "Led here, with fewer in-sync replicas than min.insync.replicas: acks=all is refused",
    "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
)
AT_MIN_ISR = gauge(
    "kafka_server_replica_manager_at_min_isr_partition_count",
    "",
    "partitions",
    "Led here, with as many in-sync replicas as min.insync.replicas, or all where there are no more",
    "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
)
ISR_SHRINKS = counter(
    "kafka_server_replica_manager_isr_shrinks_total",
    "",
    "changes",
    "In-sync replicas of partitions led here that became fewer, as the controller or the tree has confirmed",
    "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
)
ISR_EXPANDS = counter(
    "kafka_server_replica_manager_isr_expands_total",
    "",
    "changes",
    "In-sync replicas of partitions led here that became more",
    "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
)
ISR_FAILURES = counter(
    "kafka_server_replica_manager_failed_isr_updates_total",
    "",
    "changes",
    "Changes of in-sync replicas that were refused, or got no answer; most are tried again",
    "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec",
)
PARTITION_UNDER_REPLICATED = gauge(
    "kafka_cluster_partition_under_replicated",
    "topic partition",
    "0 or 1",
    "Whether a partition that is led here has a replica that is not in sync",
    "kafka.cluster:type=Partition,name=UnderReplicated,topic=*,partition=*",
)
PARTITION_IN_SYNC = gauge(
    "kafka_cluster_partition_in_sync_replicas_count",
    "topic partition",
    "replicas",
    "In-sync replicas of a partition that is led here, the leader among them",
    "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=*,partition=*",
)
REPLICATION_IN = counter(
    "kafka_server_broker_topic_metrics_replication_bytes_in_total",
    "",
    "bytes",
    "Of batches that replicas here have fetched from their leaders",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
)
REPLICATION_OUT = counter(
    "kafka_server_broker_topic_metrics_replication_bytes_out_total",
    "",
    "bytes",
    "Of batches that followers were sent",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)
FETCHER_MAX_LAG = gauge(
    "kafka_server_replica_fetcher_manager_max_lag",
    "",
    "records",
    "The greatest lag of a replica that follows here",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
)
FETCHER_FAILED = gauge(
    "kafka_server_replica_fetcher_manager_failed_partitions_count",
    "",
    "partitions",
    "Replicas here that do not fetch, fenced by their leader, until the controller says who leads",
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount,clientId=Replica",
)
FETCHER_LAG = gauge(
    "kafka_server_fetcher_lag_metrics_consumer_lag",
    "client_id topic partition",
    "records",
    "How far a replica that follows here was behind its leader's high watermark when it last fetched",
    "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
)
OFFLINE_PARTITIONS = gauge(
    "kafka_controller_kafka_controller_offline_partitions_count",
    "",
    "partitions",
    "Partitions of the cluster without a leader; 0 on who is not the controller",
    "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
)
NOT_PREFERRED = gauge(
    "kafka_controller_kafka_controller_preferred_replica_imbalance_count",
    "",
    "partitions",
    "Partitions of the cluster that their first replica does not lead; 0 on who is not the controller",
    "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
)
UNCLEAN_ELECTIONS = counter(
    "kafka_controller_controller_stats_unclean_leader_elections_total",
    "",
    "elections",
    "Leaders that were elected from outside the ISR since this broker is the controller: records may be lost",
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
