"""Table of all metrics, from which the metric families and the table in docs/OPERATIONS.md are made.

Names are those of Kafka's MBeans in snake case, with times in seconds as usual in Prometheus. Metrics without an MBean
in Kafka begin with odradek_. `python -m odradek.app.metrics.metrics_table` prints the table.
"""

from __future__ import annotations

from odradek.app.metrics.metrics_kinds import counter, gauge, histogram
from odradek.app.metrics.metrics_replication_table import REPLICATION

# Metrics in every scrape, even while the loop does not answer.
LOOP_RESPONSIVE = gauge(
    "odradek_event_loop_responsive",
    "",
    "0 or 1",
    "1 if the event loop answered this scrape within 3 s. If 0, only this metric and those after it are exported.",
)
LOOP_OVERDUE = gauge(
    "odradek_event_loop_overdue_seconds", "", "seconds", "Time for which the event loop is currently blocked"
)

LOOP_LAG = histogram("odradek_event_loop_lag_seconds", "", "Delay of the event loop, measured by a tick every 100 ms")
LOOP_LAG_MAX = gauge(
    "odradek_event_loop_lag_max_seconds", "", "seconds", "Maximum lag of the event loop in the last 30 to 60 s"
)
SCRAPE_LOOP = gauge("odradek_scrape_loop_seconds", "", "seconds", "Time that this scrape took on the event loop")

APP_INFO = gauge(
    "kafka_server_app_info",
    "version broker_id cluster_id",
    "1",
    "Id of this broker and of its cluster. The version is Odradek's.",
    "kafka.server:type=app-info,id=*",
)
REQUESTS = counter(
    "kafka_network_request_metrics_requests_total",
    "request version",
    "requests",
    "Handled requests by API and version",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*",
)
TOTAL_TIME = histogram(
    "kafka_network_request_metrics_total_time_seconds",
    "request version",
    "Time from the start of handling a request until its response is ready, including waits for data or a sync",
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*",
)
BYTES_IN = counter(
    "kafka_server_socket_server_metrics_incoming_byte_total",
    "",
    "bytes",
    "Bytes received from clients on all listeners",
    "kafka.server:type=socket-server-metrics incoming-byte-total",
)
BYTES_OUT = counter(
    "kafka_server_socket_server_metrics_outgoing_byte_total",
    "",
    "bytes",
    "Bytes sent to clients on all listeners",
    "kafka.server:type=socket-server-metrics outgoing-byte-total",
)
CONNECTIONS = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "listener",
    "connections",
    "Open connections",
    "kafka.server:type=socket-server-metrics,listener=* connection-count",
)
CONNECTIONS_MADE = counter(
    "kafka_server_socket_server_metrics_connection_creation_total",
    "",
    "connections",
    "Connections accepted on all listeners",
    "kafka.server:type=socket-server-metrics connection-creation-total",
)
CONNECTIONS_REFUSED = counter(
    "odradek_connections_refused_total",
    "",
    "connections",
    "Connections rejected by `max.connections` or `max.connections.per.ip`",
)
MESSAGES_IN = counter(
    "kafka_server_broker_topic_metrics_messages_in_total",
    "topic",
    "records",
    "Records that clients wrote to a topic on this broker. The sum over all topics is the total of the broker.",
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*",
)
TOPIC_BYTES_IN = counter(
    "kafka_server_broker_topic_metrics_bytes_in_total",
    "topic",
    "bytes",
    "Size of batches that clients wrote to a topic on this broker. The sum over all topics is the total of the broker.",
    "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*",
)
LOG_SIZE = gauge(
    "kafka_log_log_size", "topic partition", "bytes", "Size of a partition's log", "kafka.log:type=Log,name=Size"
)
LOG_START = gauge(
    "kafka_log_log_start_offset",
    "topic partition",
    "offset",
    "First offset that the log still contains",
    "kafka.log:type=Log,name=LogStartOffset",
)
LOG_END = gauge(
    "kafka_log_log_end_offset",
    "topic partition",
    "offset",
    "Offset of the next record",
    "kafka.log:type=Log,name=LogEndOffset",
)
LOG_SEGMENTS = gauge(
    "kafka_log_log_num_log_segments",
    "topic partition",
    "segments",
    "Segment files of a partition's log",
    "kafka.log:type=Log,name=NumLogSegments",
)
FLUSH_TIME = histogram(
    "kafka_log_log_flush_time_seconds",
    "",
    "Duration of a round of syncs to disk. A round syncs all waiting data of every log.",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
PARTITIONS = gauge(
    "kafka_server_replica_manager_partition_count",
    "",
    "partitions",
    "Partitions with a replica on this broker",
    "kafka.server:type=ReplicaManager,name=PartitionCount",
)
LEADERS = gauge(
    "kafka_server_replica_manager_leader_count",
    "",
    "partitions",
    "Partitions that this broker leads",
    "kafka.server:type=ReplicaManager,name=LeaderCount",
)
ACTIVE_CONTROLLER = gauge(
    "kafka_controller_kafka_controller_active_controller_count",
    "",
    "0 or 1",
    "1 on the controller, 0 on all other brokers of the cluster",
    "kafka.controller:type=KafkaController,name=ActiveControllerCount",
)
ACTIVE_BROKERS = gauge(
    "kafka_controller_kafka_controller_active_broker_count",
    "",
    "brokers",
    "Live brokers, as known to this broker",
    "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
)
OFFLINE = gauge(
    "kafka_server_replica_manager_offline_replica_count",
    "",
    "partitions",
    "Partitions of this broker that are offline because of a disk failure",
    "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
)
OFFLINE_DIRECTORIES = gauge(
    "kafka_log_log_manager_offline_log_directory_count",
    "",
    "directories",
    "Data directories that failed completely",
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
OFFLINE_DIRECTORY = gauge(
    "kafka_log_log_manager_log_directory_offline",
    "log_directory",
    "0 or 1",
    "1 if the data directory failed completely",
    "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*",
)
DAMAGED = gauge(
    "odradek_log_damaged_places",
    "",
    "places",
    "Damaged places in logs, without a complete batch. The broker does not serve them.",
)
PURGATORY = gauge(
    "kafka_server_delayed_operation_purgatory_size",
    "",
    "requests",
    "Requests that wait for data, a sync or a state change",
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=*",
)
FETCH_SESSIONS = gauge(
    "kafka_server_fetch_session_cache_num_incremental_fetch_sessions",
    "",
    "sessions",
    "Open incremental fetch sessions",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
)

GROUPS = gauge(
    "kafka_coordinator_group_groups",
    "type state",
    "groups",
    "Groups that this broker coordinates",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups*",
)
GROUP_OFFSETS = gauge(
    "kafka_coordinator_group_offsets",
    "",
    "offsets",
    "Committed offsets of the groups that this broker coordinates",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
)
TRANSACTIONS = gauge(
    "odradek_coordinator_transactions",
    "state",
    "transactional ids",
    "Transactional ids that this broker coordinates, by state",
)
PRODUCER_IDS = gauge(
    "kafka_server_replica_manager_producer_id_count",
    "",
    "producers",
    "Producers with remembered sequence numbers, counted once per partition",
    "kafka.server:type=ReplicaManager,name=ProducerIdCount",
)
CLEANER_DIRTY = gauge(
    "kafka_log_log_cleaner_manager_max_dirty_percent",
    "",
    "percent",
    "Highest dirty ratio of a log at the cleaner's last check",
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent",
)
CLEANER_SET_ASIDE = gauge(
    "kafka_log_log_cleaner_manager_uncleanable_partitions_count",
    "log_directory",
    "partitions",
    "Partitions that cannot be compacted and are skipped. The broker's log contains the reason.",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,logDirectory=*",
)
CLEANER_RECOPY = gauge(
    "kafka_log_log_cleaner_cleaner_recopy_percent",
    "",
    "percent",
    "Percentage of the bytes read in the last cleaner pass that were written back",
    "kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
)
CLEANER_PASSES = counter("odradek_log_cleaner_passes_total", "", "passes", "Completed compactions of a log")
CLEANER_READ = counter("odradek_log_cleaner_read_bytes_total", "", "bytes", "Log bytes read by compactions")
CLEANER_KEPT = counter("odradek_log_cleaner_kept_bytes_total", "", "bytes", "Log bytes that compactions kept")
CLEANER_DROPPED = counter("odradek_log_cleaner_dropped_records_total", "", "records", "Records removed by compactions")

METRICS = (
    APP_INFO,
    REQUESTS,
    TOTAL_TIME,
    BYTES_IN,
    BYTES_OUT,
    CONNECTIONS,
    CONNECTIONS_MADE,
    CONNECTIONS_REFUSED,
    MESSAGES_IN,
    TOPIC_BYTES_IN,
    LOG_SIZE,
    LOG_START,
    LOG_END,
    LOG_SEGMENTS,
    FLUSH_TIME,
    PARTITIONS,
    LEADERS,
    ACTIVE_CONTROLLER,
    ACTIVE_BROKERS,
    OFFLINE,
    OFFLINE_DIRECTORIES,
    OFFLINE_DIRECTORY,
    DAMAGED,
    *REPLICATION,
    PURGATORY,
    FETCH_SESSIONS,
    GROUPS,
    GROUP_OFFSETS,
    TRANSACTIONS,
    PRODUCER_IDS,
    CLEANER_DIRTY,
    CLEANER_SET_ASIDE,
    CLEANER_RECOPY,
    CLEANER_PASSES,
    CLEANER_READ,
    CLEANER_KEPT,
    CLEANER_DROPPED,
    LOOP_LAG,
    LOOP_LAG_MAX,
    SCRAPE_LOOP,
    LOOP_RESPONSIVE,
    LOOP_OVERDUE,
)

# Metrics of the process, which prometheus_client adds.
PROCESS_METRICS = (
    counter("process_cpu_seconds_total", "", "seconds", "User and system CPU time"),
    gauge("process_resident_memory_bytes", "", "bytes", "Resident memory"),
    gauge("process_virtual_memory_bytes", "", "bytes", "Virtual memory"),
    gauge("process_open_fds", "", "descriptors", "Open file descriptors"),
    gauge("process_max_fds", "", "descriptors", "Maximum number of open file descriptors"),
    gauge("process_start_time_seconds", "", "seconds", "Start time of the process, in seconds since 1970 (Unix time)"),
)


def markdown() -> list[str]:
    """Return the lines of the table in docs/OPERATIONS.md."""
    rows = ["| metric | type | labels | unit | meaning | MBean of Kafka |", "|---|---|---|---|---|---|"]
    for metric in (*METRICS, *PROCESS_METRICS):
        labels = ", ".join(metric.labels)
        mbean = f"`{metric.mbean}`" if metric.mbean else ""
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.unit} | {metric.meaning} | {mbean} |")
    return rows


if __name__ == "__main__":
    print("\n".join(markdown()))
