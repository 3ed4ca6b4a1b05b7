"""Table of all metrics, from which the metric families and the table in docs/OPERATIONS.md are made.

Names are those of Kafka's MBeans in snake case, with times in seconds as usual in Prometheus. Metrics without an MBean
in Kafka begin with odradek_. `python -m odradek.app.metrics.metrics_table` prints the table.
"""

from __future__ import annotations

from odradek.app.metrics.metrics_kinds import counter, gauge, histogram
from odradek.app.metrics.metrics_replication_table import REPLICATION

# Metrics in every scrape, even while the loop does not answer.
LOOP_RESPONSIVE = gauge(
    "odradek_event_loop_responsive", "", "0 or 1", "Whether the loop answered this scrape in time; 0: only what follows"
)
LOOP_OVERDUE = gauge(
    "odradek_event_loop_overdue_seconds", "", "seconds", "How long the loop has been held up at this moment"
)

LOOP_LAG = histogram("odradek_event_loop_lag_seconds", "", "How late the loop came to a tick every 100 ms")
LOOP_LAG_MAX = gauge("odradek_event_loop_lag_max_seconds", "", "seconds", "The greatest lag of the last 30 to 60 s")
SCRAPE_LOOP = gauge("odradek_scrape_loop_seconds", "", "seconds", "How much of the loop's time this scrape took")

APP_INFO = gauge(
    "kafka_server_app_info",
    "version broker_id cluster_id",
    "1",
    "Which broker this is; the version is Odradek's",
    "kafka.server:type=app-info,id=*",
)
REQUESTS = counter(
    "kafka_network_request_metrics_requests_total",
    "request version",
    "requests",
    "Requests that were handled, by API and version",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*",
)
TOTAL_TIME = histogram(
    "kafka_network_request_metrics_total_time_seconds",
    "request version",
    "From a request's turn until its answer is ready, waiting for data or for a sync included",
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*",
)
BYTES_IN = counter(
    "kafka_server_socket_server_metrics_incoming_byte_total",
    "",
    "bytes",
    "Received from clients on all listeners",
    "kafka.server:type=socket-server-metrics incoming-byte-total",
)
BYTES_OUT = counter(
    "kafka_server_socket_server_metrics_outgoing_byte_total",
    "",
    "bytes",
    "Sent to clients on all listeners",
    "kafka.server:type=socket-server-metrics outgoing-byte-total",
)
CONNECTIONS = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "listener",
    "connections",
    "Open now",
    "kafka.server:type=socket-server-metrics,listener=* connection-count",
)
CONNECTIONS_MADE = counter(
    "kafka_server_socket_server_metrics_connection_creation_total",
    "",
    "connections",
    "Accepted on all listeners",
    "kafka.server:type=socket-server-metrics connection-creation-total",
)
CONNECTIONS_REFUSED = counter(
    "odradek_connections_refused_total", "", "connections", "Closed at once: max.connections or max.connections.per.ip"
)
MESSAGES_IN = counter(
    "kafka_server_broker_topic_metrics_messages_in_total",
    "topic",
    "records",
    "Written to a topic here by clients; the sum over topics is the broker's",
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*",
)
TOPIC_BYTES_IN = counter(
    "kafka_server_broker_topic_metrics_bytes_in_total",
    "topic",
    "bytes",
    "Of batches that clients wrote to a topic here; the sum over topics is the broker's",
    "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*",
)
LOG_SIZE = gauge(
    "kafka_log_log_size", "topic partition", "bytes", "Size of a partition's log", "kafka.log:type=Log,name=Size"
)
LOG_START = gauge(
    "kafka_log_log_start_offset",
    "topic partition",
    "offset",
    "The first offset that is still there",
    "kafka.log:type=Log,name=LogStartOffset",
)
LOG_END = gauge(
    "kafka_log_log_end_offset",
    "topic partition",
    "offset",
    "The offset of the next record",
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
    "Rounds of syncs to disk: one round makes durable whatever waits for it, in every log",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
PARTITIONS = gauge(
    "kafka_server_replica_manager_partition_count",
    "",
    "partitions",
    "Partitions that this broker has",
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
    "Whether this broker is the controller; of a cluster's brokers one is",
    "kafka.controller:type=KafkaController,name=ActiveControllerCount",
)
ACTIVE_BROKERS = gauge(
    "kafka_controller_kafka_controller_active_broker_count",
    "",
    "brokers",
    "Brokers that live, as this one knows",
    "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
)
OFFLINE = gauge(
    "kafka_server_replica_manager_offline_replica_count",
    "",
    "partitions",
    "Partitions whose disk has failed",
    "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
)
OFFLINE_DIRECTORIES = gauge(
    "kafka_log_log_manager_offline_log_directory_count",
    "",
    "directories",
    "Data directories that failed as a whole",
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
OFFLINE_DIRECTORY = gauge(
    "kafka_log_log_manager_log_directory_offline",
    "log_directory",
    "0 or 1",
    "Whether this data directory failed as a whole",
    "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*",
)
DAMAGED = gauge(
    "odradek_log_damaged_places",
    "",
    "places",
    "Places found in logs that are no whole batches; they are not served",
)
PURGATORY = gauge(
    "kafka_server_delayed_operation_purgatory_size",
    "",
    "requests",
    "Requests that wait for data, a sync or a change",
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=*",
)
FETCH_SESSIONS = gauge(
    "kafka_server_fetch_session_cache_num_incremental_fetch_sessions",
    "",
    "sessions",
    "Incremental fetch sessions",
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
    "Committed offsets that this broker keeps for groups",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
)
TRANSACTIONS = gauge(
    "odradek_coordinator_transactions", "state", "transactional ids", "Those that this broker coordinates"
)
PRODUCER_IDS = gauge(
    "kafka_server_replica_manager_producer_id_count",
    "",
    "producers",
    "Producers whose sequences are remembered, once for each partition they wrote to",
    "kafka.server:type=ReplicaManager,name=ProducerIdCount",
)
CLEANER_DIRTY = gauge(
    "kafka_log_log_cleaner_manager_max_dirty_percent",
    "",
    "percent",
    "The highest dirty ratio of a log when the cleaner last looked",
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent",
)
CLEANER_SET_ASIDE = gauge(
    "kafka_log_log_cleaner_manager_uncleanable_partitions_count",
    "log_directory",
    "partitions",
    "Partitions that can't be compacted, and are left alone; the broker's log says why",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,logDirectory=*",
)
CLEANER_RECOPY = gauge(
    "kafka_log_log_cleaner_cleaner_recopy_percent",
    "",
    "percent",
    "How much of what the last pass read it has written again",
    "kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
)
CLEANER_PASSES = counter("odradek_log_cleaner_passes_total", "", "passes", "Logs that were compacted")
CLEANER_READ = counter("odradek_log_cleaner_read_bytes_total", "", "bytes", "Log bytes that were compacted")
CLEANER_KEPT = counter("odradek_log_cleaner_kept_bytes_total", "", "bytes", "What was left of them")
CLEANER_DROPPED = counter("odradek_log_cleaner_dropped_records_total", "", "records", "Records that went")

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
    counter("process_cpu_seconds_total", "", "seconds", "Processor time, of user and system"),
    gauge("process_resident_memory_bytes", "", "bytes", "Resident memory"),
    gauge("process_virtual_memory_bytes", "", "bytes", "Virtual memory"),
    gauge("process_open_fds", "", "descriptors", "Open file descriptors"),
    gauge("process_max_fds", "", "descriptors", "How many there may be"),
    gauge("process_start_time_seconds", "", "seconds", "When the process started, since 1970"),
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
